"""What a run tells while it goes on: resources, many metrics, levels of lines, the way to a line."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlparse

from playwright.sync_api import Locator, Page, Request, expect

from jupyter_dist.conformance.deadlines import wait_until
from jupyter_dist.job import State
from tests.rigs.run_maker import RunMaker

from .pages import LOAD, Lab
from .server import JupyterServer
from .test_pictures import well_laid_out

Picture = Callable[[Page, str], Path]

FAILS_LATE = """%%distribute -np 2
import os

def step(batch):
    if batch % 1000 == 0 and os.path.exists("seen-enough"):
        raise ValueError("late")

for batch in range(10**12):
    step(batch)
"""
_CURSOR = """() => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  const editor = notebook.activeCell.editor;
  return [notebook.activeCellIndex, editor.getLine(editor.getCursorPosition().line)];
}"""


def test_resources_the_pill_and_the_way_to_the_line(
    lab: Lab, server: JupyterServer, picture: Picture
) -> None:
    notebook = lab.notebook(LOAD)
    cell = notebook.start(FAILS_LATE)
    view = notebook.view(cell).to_be("running")
    pill = lab.page.locator(".jpd-pill-button")
    expect(pill).to_have_text("1 run")
    resources = view.node.locator(".jpd-resources")
    expect(resources.locator("summary")).to_have_text(re.compile(r"^Resources CPU \d+ % · memory [\d.]+ MB$"))
    resources.locator("summary").click()
    busy = resources.locator("tbody tr", has_text=re.compile(r"^0\d+ %"))
    expect(busy).to_have_count(1)
    (server.root / "seen-enough").touch()
    view.to_be("failed")
    expect(pill).to_be_hidden()
    lab.page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 0; }")
    view.failure.locator("[role=link]").last.click()
    lab.until(f"() => String(({_CURSOR})()[1]).includes('raise ValueError')")
    assert lab.page.evaluate(_CURSOR)[0] > 0
    picture(lab.page, "frame-followed")


def test_bars_within_each_other(
    lab: Lab, no_leftovers: None, server: JupyterServer, pictures: Callable[..., None]
) -> None:
    run = RunMaker(server.runs, 2, label="In[2]", began=time.time() - 60)
    for rank in (0, 1):
        for second in range(30):
            when, epoch = time.time() - 30 + second, 1 + second // 20
            bars = (
                ("epochs", epoch, 3, ""),
                (f"epoch {epoch}", second % 20 - rank, 20, f"loss=0.{62 - second}"),
            )
            for number, (desc, n, total, note) in enumerate(bars):
                run.event(rank, "progress", when, id=number, n=n, total=total, desc=desc, note=note)
        run.print(rank, "the data is here\n", time.time() - 40)
    lab.command("jupyter-dist:open-run", id=run.folder.id)
    view = lab.tab(run.folder.id)
    expect(
        view.node.get_by_role("group", name="Progress of each rank").get_by_text(re.compile("^epoch 2"))
    ).to_have_count(2)
    well_laid_out(view.node)
    pictures(lab, "bars", 480)


_ELSEWHERE = """() => {
  window.jpdTold = [];
  document.hasFocus = () => false;  // another window is in front
  window.Notification = class extends window.Notification {
    constructor(text, options) {
      super(text, options);
      window.jpdTold.push([text, options.body, options.tag]);
    }
  };
}"""
_HERE = """() => {
  delete document.hasFocus;
  window.Notification = Object.getPrototypeOf(window.Notification);
}"""


def test_the_end_of_a_run_is_told_to_who_looks_elsewhere(
    lab: Lab, no_leftovers: None, server: JupyterServer, picture: Picture
) -> None:
    lab.page.context.grant_permissions(["notifications", "clipboard-read", "clipboard-write"])
    run = RunMaker(server.runs, 2, label="In[3]", began=time.time() - 60)
    for rank in (0, 1):
        run.event(rank, "progress", time.time(), id=0, n=37, total=100, desc="")
    expect(lab.page.locator(".jpd-pill-button")).to_have_text(re.compile(r"^1 run · 37 %"))
    lab.page.evaluate(_ELSEWHERE)
    try:
        run.end(State.FAILED, after_s=42, reason="rank 1 failed: ValueError: bad")
        toast = lab.notification().filter(has_text="In[3]: failed after 42 s")
        expect(toast).to_contain_text("rank 1 failed: ValueError: bad")
        picture(lab.page, "toast")
        told = lab.page.evaluate("() => window.jpdTold")
        assert told == [
            ["In[3]: failed after 42 s", "rank 1 failed: ValueError: bad", f"jupyter-dist-{run.folder.id}"]
        ]
        toast.get_by_role("button", name="Show").click()
        expect(lab.tab(run.folder.id).node).to_be_visible()
    finally:
        lab.page.evaluate(_HERE)


_OFF = "(row, [edge, log]) => row.getBoundingClientRect()[edge] - log.getBoundingClientRect()[edge]"


def test_many_metrics_and_a_log_with_levels(lab: Lab, server: JupyterServer, picture: Picture) -> None:
    run = RunMaker(server.runs, 8, label="eight", began=time.time() - 60)
    for rank in range(8):
        for step in range(40):
            names = [f"{part}/{name}" for part in ("train", "val", "grad") for name in "abcdef"]
            values = {name: (place + 1) / (1 + step / 9) + rank / 20 for place, name in enumerate(names)}
            run.metric(rank, step, {"loss": 1 / (1 + step), "lr": 0.1, **values})
        times = {"wall_s": 40.0, "data_s": 2.0 + rank / 10, "wait_s": 9.0 - rank / 2}
        run.event(rank, "steps", by="optimizer", steps=40, samples=40 * 64, gc=0, gc_s=0.0, **times)
        with run.rank(rank).usage.open("w") as file:
            for second in range(60):
                values = {"cpu": 70 + 30 * ((second * 7 + rank) % 10) / 10, "memory": 2e9 + second * 1e7}
                more = {"gpu": 40 + (second * 13 + rank * 5) % 60, "gpu_memory": 3e10, "net_in": 1e6 * second}
                file.write(
                    json.dumps({"time": time.time() - 60 + second, "values": {**values, **more}}) + "\n"
                )
    lines = [f"INFO:train:step {step}" for step in range(200)]
    lines += [
        "WARNING:train:slow, see https://example.org/slow?x=1.",
        "ERROR:train:" + " long" * 100,
        "the end",
    ]
    run.print(0, "\n".join(lines) + "\n", time.time() - 30)
    lab.command("jupyter-dist:open-run", id=run.folder.id)
    view = lab.tab(run.folder.id)
    expect(view.metrics.locator("summary")).to_have_text(["train 6", "val 6", "grad 6"])
    expect(view.metrics.locator(".jpd-chart")).to_have_count(14)
    view.node.locator(".jpd-resources summary").click()
    expect(view.node.locator(".jpd-resources tbody tr")).to_have_count(8)
    view.rank(0).to_show("the end")
    for name in ("JupyterLab Light", "JupyterLab Dark"):
        lab.set_theme(name)
        for width in (1280, 900):
            lab.page.set_viewport_size({"width": width, "height": 800})
            view.node.evaluate("node => node.closest('.jpd-tab').scrollTo(0, 0)")
            picture(lab.page, f"live-{name[11:].lower()}-{width}")
            well_laid_out(view.node)
    lab.page.set_viewport_size({"width": 1280, "height": 800})
    lab.set_theme("JupyterLab Light")
    view.metrics.get_by_role("textbox", name="Filter metrics by name").fill("val/[ab]")
    expect(view.metrics.locator(".jpd-chart:visible")).to_have_count(2)
    view.metrics.locator(".jpd-rank-toggles").get_by_role("button", name="Rank 3").click()
    chart = view.metrics.locator(".jpd-chart:visible").first
    chart.hover()
    chart.get_by_role("button", name="Enlarge val/a").click()
    expect(view.metrics.locator(".jpd-chart-large canvas")).to_have_count(1)
    picture(lab.page, "large-chart")
    view.rank(0)
    # The log's end stays in sight when its lines are wrapped, and so does its beginning.
    view.logs.scroll_into_view_if_needed()
    view.logs.get_by_role("button", name="wrap").click()
    view.logs.get_by_role("button", name="times").click()
    long = view.rows.filter(has_text="ERROR")
    expect(long.locator(".jpd-level-error")).to_have_text("ERROR")
    expect(long.locator("time")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d\.\d{3}$"))

    def off(edge: str, row: Locator) -> float:
        """Return how far a row's edge is from the log's."""
        return abs(float(row.evaluate(_OFF, [edge, view.log.element_handle()])))

    wait_until(lambda: off("bottom", view.rows.last) < 4, "the end of the log")
    height = long.bounding_box()
    assert height
    assert height["height"] >= 2 * 18
    expect(view.rows.get_by_role("link")).to_have_attribute("href", "https://example.org/slow?x=1")
    picture(lab.page, "log-wrapped")
    view.log.locator(".jpd-log").press("Home")
    expect(view.rows.first).to_contain_text("step 0")
    wait_until(lambda: off("top", view.rows.first) < 4, "the beginning of the log")
    view.log.locator(".jpd-log").press("End")
    expect(view.rows.filter(has_text="the end")).to_be_in_viewport()
    view.logs.get_by_role("button", name="wrap").click()
    view.logs.get_by_role("button", name="times").click()
    expect(long).to_have_css("height", "18px")


def test_plots_of_a_row_are_level_and_charts_out_of_sight_are_not_read(lab: Lab, own_folders: Path) -> None:
    made = RunMaker(own_folders, 16, label="level", began=time.time())
    names = [f"part/m{number}" for number in range(12)]
    for rank in range(16):
        for step in range(3):
            made.metric(rank, step, dict.fromkeys(names, float(rank + step)))
    # The head of the first chart has a second line.
    made.metric(3, 3, {names[0]: "NaN"})

    def reads_some(request: Request) -> bool:
        asked = parse_qs(urlparse(request.url).query)
        return "/curves" in request.url and 0 < len(json.loads(asked["names"][0])) < 12 and "since" in asked

    lab.command("jupyter-dist:open-run", id=made.folder.id)
    tab = lab.tab(made.folder.id)
    expect(tab.metrics.locator(".jpd-chart-special").first).to_contain_text("NaN")
    boxes = tab.metrics.locator(".jpd-chart-box")
    (_, first, _, _), (_, second, _, _), *_ = boxes.evaluate_all(_BOXES)
    assert first == second
    with lab.page.expect_request(reads_some):
        for rank in range(16):
            made.metric(rank, 4, dict.fromkeys(names, 1.0))
    expect(boxes.nth(1)).to_have_attribute("aria-label", re.compile(r"at step 4 it is 1\b"))
    made.end(State.SUCCEEDED)


HEADS = """%%distribute -np 12
import jupyter_dist as dist
for step in range(3):
    values = {"a/metric/whose/name/is/longer/than/its/chart/is/wide": dist.rank() / 7, "loss": 1 / (1 + step)}
    dist.log(values, step=step)
"""
_BOXES = """nodes => nodes.map(node => {
  const { x, y, width, height } = node.getBoundingClientRect();
  return [x, y, width, height].map(Math.round);
})"""


def test_plots_of_a_row_are_level_and_chips_stand_in_columns(lab: Lab) -> None:
    view = lab.notebook(LOAD).distribute(HEADS).to_be("succeeded")
    plots = view.metrics.locator(".jpd-chart-box")
    expect(plots).to_have_count(2)
    (_, first, _, _), (_, second, _, _) = plots.evaluate_all(_BOXES)
    assert first == second
    heads = view.metrics.locator("figcaption").evaluate_all(_BOXES)
    assert {height for *_, height in heads} == {26}, heads
    assert {width for _, _, width, _ in view.chips.evaluate_all(_BOXES)} == {48}

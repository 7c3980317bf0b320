"""What the view and a notebook's file say of a run is so: also later, elsewhere, and of a run that hangs."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from jupyter_dist.conformance.deadlines import Deadline, wait_until
from jupyter_dist.job import State
from jupyter_dist.record.cursor import Tail
from jupyter_dist.showing.display import static_html
from jupyter_dist.showing.run import Run
from jupyter_dist.showing.screens import kernel_text
from jupyter_dist.showing.summary import gather
from jupyter_dist.showing.view import View
from tests.rigs.run_maker import RunMaker

from .pages import LOAD, Lab, Notebook
from .server import JupyterServer

Picture = Callable[[Page, str], Path]

RUN_MIME = "application/x-jupyter-dist-run+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
SUMMARY = "<div>run 20200101-000000-gone succeeded: 4 ranks on ray, 12.3 s</div>"
HANGS = """%%distribute -np 2 --stall-timeout 1 {more}
import jupyter_dist as dist, time
def wait_for_the_others():
    time.sleep(600)
print("began")
wait_for_the_others()
"""


def notebook_of(lab: Lab, *outputs: dict[str, Any]) -> Path:
    """A notebook with a cell for each of these outputs, as another page or machine has saved it."""
    cells = [
        {
            "cell_type": "code",
            "id": f"cell{number}",
            "execution_count": number + 1,
            "metadata": {},
            "source": "%%distribute -np 2\ntrain()",
            "outputs": [{"output_type": "display_data", "data": data, "metadata": {}}],
        }
        for number, data in enumerate(outputs)
    ]
    path = lab.server.root / f"saved-{time.monotonic_ns()}.ipynb"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path.write_text(json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))
    return path


def shown(text: str, run: str, **more: Any) -> dict[str, Any]:
    view = {"version_major": 2, "version_minor": 0, "model_id": "0123456789abcdef0123456789abcdef"}
    return {RUN_MIME: {"run": run, "root": "/their/runs", **more}, WIDGET: view, "text/plain": text}


def test_what_a_file_has_of_runs_that_are_not_here_or_have_ended_since(
    lab: Lab, no_leftovers: None, own_folders: Path, picture: Picture
) -> None:
    over = RunMaker(own_folders, 2, label="In[7]", began=time.time() - 60)
    over.end()
    going = RunMaker(own_folders, 2, label="In[8]", began=time.time() - 30)
    path = notebook_of(
        lab,
        {**shown("running", "20200101-000000-gone", ended=True), "text/html": SUMMARY},
        shown("running · 2.1 s · ranks: 2 pending", over.folder.id, ended=False),
        shown("running · 1.0 s · ranks: 2 running", going.folder.id),  # saved by an earlier version
    )
    notebook = lab.open_notebook(path.name)
    first = notebook.cell(0)
    expect(first).to_contain_text("run 20200101-000000-gone succeeded: 4 ranks on ray, 12.3 s")
    expect(first).to_contain_text("Saved with this notebook. Run 20200101-000000-gone is not on this")
    expect(first.get_by_text("Loading widget")).to_be_hidden()
    picture(lab.page, "not-on-this-server")
    # The one that went on when the file was saved has ended; the other one ends now, and somebody looks.
    expect(notebook.view(notebook.cell(2)).to_be("running").node).to_be_visible()
    going.end(State.FAILED, reason="rank 1 failed")
    texts = texts_of(lab, notebook, until=lambda found: all("running" not in text for text in found[1:]))
    assert f"run {over.folder.id} succeeded: 2 ranks on local" in texts[1]
    assert f"run {going.folder.id} failed: 2 ranks on local" in texts[2]
    assert texts[0] == "running"


def texts_of(lab: Lab, notebook: Notebook, until: Callable[[list[str]], bool]) -> list[str]:
    """The outputs' texts in the notebook's file, which is saved until they are so."""
    deadline = Deadline()
    while True:
        notebook.save()
        cells = json.loads(notebook.file.read_text())["cells"]
        texts = [
            "".join(out["data"]["text/plain"]) for cell in cells for out in cell["outputs"] if "data" in out
        ]
        if until(texts):
            return texts
        assert not deadline.passed(), texts
        lab.page.wait_for_timeout(200)


def test_a_run_that_hangs_shows_where_and_for_how_long(lab: Lab, picture: Picture) -> None:
    notebook = lab.notebook(LOAD)
    cell = notebook.start(HANGS.format(more=""))
    view = notebook.view(cell).to_be("running")
    stall = view.node.get_by_text(re.compile(r"No rank has printed or logged for \d+ s$"))

    def seconds() -> int:
        return int(stall.inner_text().split()[-2])

    first = seconds()
    assert first >= 1
    wait_until(lambda: seconds() > first, "it to go on counting")
    stacks = view.node.get_by_role("region", name="Stacks")
    expect(stacks).to_contain_text("time.sleep(600)")  # nobody has pressed a button
    expect(stacks).to_contain_text("Ranks 0-1")
    picture(lab.page, "stalled")
    view.stop.click()
    view.to_be("stopped")
    notebook.done(cell)
    expect(stacks).to_contain_text("wait_for_the_others")


def test_a_run_that_hung_until_its_timeout_keeps_where(lab: Lab, picture: Picture) -> None:
    notebook = lab.notebook(LOAD)
    cell = notebook.start(HANGS.format(more="--timeout 3"))
    view = notebook.view(cell).to_be("failed")
    notebook.done(cell)
    expect(view.node.get_by_role("region", name="Stacks")).to_contain_text("wait_for_the_others")
    expect(cell).to_contain_text("Its log is in the view above")
    notebook.save()
    # Also for who looks later.
    lab.reload()
    notebook = lab.open_notebook(notebook.path)
    later = notebook.view(notebook.cell(1)).to_be("failed")
    expect(later.node.get_by_role("region", name="Stacks")).to_contain_text("wait_for_the_others")
    expect(later.node).to_contain_text("not done within --timeout 3 s")
    picture(lab.page, "stalled-later")


def test_a_failure_says_first_what_to_do(
    lab: Lab, no_leftovers: None, own_folders: Path, picture: Picture
) -> None:
    made = RunMaker(own_folders, 4, label="In[3]", began=time.time() - 60)
    made.fail(2, "RuntimeError", "CUDA out of memory. Tried to allocate 2.00 GiB", "Traceback …")
    made.set_rank(0, state=State.FAILED, exit_code=1, ended=time.time())
    made.end(State.FAILED, reason="rank 2 failed: RuntimeError")
    path = notebook_of(lab, shown("failed", made.folder.id, ended=True))
    notebook = lab.open_notebook(path.name)
    view = notebook.view(notebook.cell(0)).to_be("failed")
    hint = view.failure.get_by_text("The GPU is full: a smaller batch per rank")
    expect(hint).to_be_visible()
    # Both in one look: between two, the page may scroll, or draw the box anew.
    expect(view.failure).to_contain_text(re.compile("smaller batch per rank.*Full traceback", re.DOTALL))
    assert "smaller batch" in Run(made.folder)._summary().failure  # type: ignore[union-attr]
    picture(lab.page, "hint")


def test_marks_titles_and_names_in_the_view(
    lab: Lab, no_leftovers: None, own_folders: Path, picture: Picture
) -> None:
    made = RunMaker(own_folders, 4, label="In[3]", began=time.time() - 60, cluster="gpu-box")
    for rank in range(4):
        for step in range(6):
            bad = {1: float("inf"), 3: float("nan")}.get(rank) if step >= 3 + rank // 3 else None
            made.metric(rank, step, {"loss": bad if bad is not None else 1.0 + rank, "lr": 0.5})
        made.result(rank, None)
    made.end()
    failed = RunMaker(own_folders, 3, label="In[4]", began=time.time() - 60)
    failed.fail(1, "ValueError", "bad batch", "Traceback …", when=time.time() - 50)
    failed.fail(0, "RuntimeError", "Connection closed by peer", "Traceback …", when=time.time() - 49)
    failed.fail(2, "RuntimeError", "Connection closed by peer", "Traceback …", when=time.time() - 49)
    failed.end(State.FAILED, reason="rank 1 failed: ValueError")
    path = notebook_of(lab, *(shown("over", run.folder.id, ended=True) for run in (made, failed)))
    notebook = lab.open_notebook(path.name)
    view = notebook.view(notebook.cell(0)).to_be("succeeded")
    expect(view.header).to_contain_text(made.folder.id)
    expect(view.header).to_contain_text("gpu-box (local)")
    expect(view.node.get_by_role("region", name="Results")).to_have_count(0)  # no "None"
    loss = view.metrics.locator("figure").filter(has=lab.page.get_by_text("loss", exact=True))
    expect(loss).to_contain_text("mean 2 (1 – 3)")
    expect(loss).to_contain_text("Infinity from step 3 [1], NaN from step 4 [3]")
    same = view.metrics.locator("figure").filter(has=lab.page.get_by_text("lr", exact=True))
    expect(same.locator(".jpd-chart-value")).to_have_text("0.5")
    expect(view.chips.nth(3)).to_have_accessible_name(re.compile("loss is NaN from step 4"))
    expect(view.chips.nth(1)).to_have_attribute("data-bad", "")
    expect(view.chips.nth(0)).not_to_have_attribute("data-bad", "")
    picture(lab.page, "gone-bad")
    view = notebook.view(notebook.cell(1)).to_be("failed")
    expect(view.chips.nth(1)).to_have_accessible_name(re.compile("failed first"))
    expect(view.chips.nth(0)).to_have_accessible_name(re.compile("because of rank 1"))
    look = [
        chip.evaluate("node => getComputedStyle(node).backgroundColor + getComputedStyle(node).color")
        for chip in view.chips.all()
    ]
    assert look[0] == look[2] != look[1]
    view.node.scroll_into_view_if_needed()
    picture(lab.page, "culprit")


FIGURES = """%%distribute -np 4
import jupyter_dist as dist
from matplotlib.figure import Figure
figure = Figure()
figure.subplots().plot([0, dist.rank() // 2])
figure
"""


def test_results_that_only_look_alike_stand_apart_and_a_warning_is_no_error(
    lab: Lab, picture: Picture
) -> None:
    pytest.importorskip("matplotlib")
    notebook = lab.notebook(LOAD)
    cell = notebook.run(FIGURES)
    view = notebook.view(cell).to_be("succeeded")
    ranks = view.node.get_by_role("region", name="Results").locator(".jpd-ranks")
    expect(ranks).to_have_text(["[0-1]", "[2-3]"])
    if os.cpu_count() and len(os.sched_getaffinity(0)) < 4:
        expect(cell).to_contain_text("4 workers share")
    expect(cell.locator("[data-mime-type='application/vnd.jupyter.stderr']")).to_have_count(0)
    picture(lab.page, "figures-apart")
    # A user who has pressed Stop is told of no traceback, for there is none.
    cell = notebook.start("%%distribute -np 1\nimport time\ntime.sleep(600)")
    view = notebook.view(cell).to_be("running")
    view.stop.click()
    view.to_be("stopped")
    notebook.done(cell)
    expect(cell).to_contain_text("RunStopped")
    expect(cell).not_to_contain_text("traceback")


def test_a_cluster_belongs_to_the_notebook(lab: Lab, server: JupyterServer, picture: Picture) -> None:
    server.clusters.parent.mkdir(parents=True, exist_ok=True)
    server.clusters.write_text('[clusters.mine]\nbackend = "local"\nnp = 3\n')
    notebook = lab.notebook(LOAD)
    button = notebook.panel.locator(".jpd-toolbar-item")
    expect(
        notebook.panel.get_by_role("button", name="Select the cluster that %%distribute uses")
    ).to_be_visible()
    notebook.run("%dist use mine")
    expect(button).to_have_text("mine")
    notebook.save()
    assert json.loads(notebook.file.read_text())["metadata"]["jupyter-dist"] == {"cluster": "mine"}
    # It survives the kernel, and also a cell that comes before anybody could tell the new one.
    notebook.restart_kernel()
    notebook.run(LOAD)
    expect(button).to_have_text("mine")
    sidebar = lab.sidebar()
    sidebar.clusters.page.get_by_role("button", name="Refresh").first.click()
    sidebar.choose("mine", "Edit…")
    # What is wrong is not said of what is typed into the field now.
    sidebar.form.get_by_label("Workers", exact=True).fill("none")
    sidebar.form.get_by_role("button", name="Save", exact=True).click()
    expect(sidebar.form.get_by_role("alert")).to_be_visible()
    sidebar.form.get_by_label("Workers", exact=True).fill("3")
    expect(sidebar.form.get_by_role("alert")).to_have_count(0)
    sidebar.form.get_by_label("Name").fill("ours")
    sidebar.form.get_by_role("button", name="Save", exact=True).click()
    expect(button).to_have_text("ours")
    view = notebook.distribute("%%distribute\n1").to_be("succeeded")
    expect(view.chips).to_have_count(3)
    expect(view.header).to_contain_text("ours (local)")
    # A notebook that has only the old name, in a kernel that starts with it.
    said = notebook.run("%dist use mine")
    expect(said).to_contain_text("ours")
    picture(lab.page, "cluster-of-the-notebook")


_CLIPPED = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(text => {
    const own = text.getBoundingClientRect();
    return own.left < box.left || own.right > box.right;
  }).map(text => text.textContent);
})"""


def test_html_of_a_run_tells_the_cause_first_and_clips_nothing(
    browser: Browser, own_folders: Path, no_leftovers: None, picture: Picture
) -> None:
    made = RunMaker(own_folders, 2, label="In[3]", began=time.time() - 60)
    for step in range(8):
        made.metric(0, step, {"wide": -1.2345e-05 * (step + 1), "large": 1.234e11 + 1e9 * step})
        made.event(0, "progress", time.time() - 50 + step, id=1, n=step, total=100, desc="steps")
    made.print(0, "the last line\n", time.time() - 40)
    made.fail(0, "ValueError", "bad batch", "Traceback …")
    made.end(State.FAILED, reason="rank 0 failed: ValueError")
    view = View(made.folder, made.job, keep=100)
    for batch in Tail(made.folder, tail_bytes=100_000).drain():
        view.feed(batch, 0.0)
    text = kernel_text(view, time.time())
    assert "steps" in text
    assert "left" not in text
    html = static_html(gather(made.folder).html(), text)
    page = browser.new_page(viewport={"width": 700, "height": 900})
    page.set_content(html)
    expect(page.locator("svg")).to_have_count(2)
    assert page.evaluate(_CLIPPED) == []
    cause = page.get_by_text("rank 0 failed first").first.bounding_box()
    log = page.get_by_text("the last line").last.bounding_box()
    assert cause
    assert log
    assert cause["y"] < log["y"]
    picture(page, "static-html")
    page.close()

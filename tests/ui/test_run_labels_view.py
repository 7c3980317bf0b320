"""Runs told apart in the browser: a table of hundreds, names in place, what differs, run again."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from jupyter_dist.job import State
from jupyter_dist.record import run_labels
from tests.rigs.run_maker import RunMaker

from .pages import LOAD, Lab
from .test_pictures import well_laid_out

Picture = Callable[[Page, str], Path]
Pictures = Callable[..., None]
CODE = """model = build(name, dropout={dropout})
optimizer = {optimizer}(model.parameters(), lr=lr)
for epoch in dist.progress(range(epochs)):
    for x, y in dist.shard(batches):
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    dist.log(loss=loss.item(), epoch=epoch)
"""


def make_runs(root: Path, count: int) -> list[RunMaker]:
    made = []
    now = time.time()
    for number in range(count):
        lr, batch = 10 ** -(1 + number % 7 / 2), 32 << number % 3
        model = ("resnet50", "vit-base")[number % 2]
        one = RunMaker(
            root,
            2,
            label=f"In[{number % 30 + 1}]",
            notebook=f"work/{'sweep' if number % 5 else 'baseline'}.ipynb",
            began=now - 600 * (count - number),
            parameters={
                "lr": round(lr, 5),
                "batch": batch,
                "model": model,
                "epochs": 10,
                "amp": number % 4 == 0,
            },
        )
        loss = 0.2 + abs(math.log10(lr) + 2.5) / 3 + number % 11 / 100
        for step in (0, 9) if count > 10 else range(10):
            for rank in range(2):
                value = loss + 2 / (1 + step) + rank / 50
                values = {"loss": value, "accuracy": 1 - value / 4, "epoch": step}
                when = one.job.created + 2 + step * (1 + number % 3)
                one.event(rank, "metric", when, step=step * 100, values=values)
        one.end(State.FAILED if number % 23 == 7 else State.SUCCEEDED, after_s=30 + 17 * (number % 13))
        made.append(one)
    run_labels.change(made[-1].folder, "the best so far", ["good", "paper"], "Warm-up helps.")
    return made


def test_500_runs_in_a_table(lab: Lab, own_folders: Path, picture: Picture, pictures: Pictures) -> None:
    made = make_runs(own_folders, 500)
    lab.command("jupyter-dist:show-runs")
    table = lab.page.locator(".jpd-runs")
    rows = table.locator("tbody tr[data-id]")
    expect(table).to_contain_text("500 runs")
    expect(rows.first).to_contain_text("the best so far")
    expect(table.get_by_role("columnheader", name=re.compile("^lr"))).to_be_visible()
    # The same in all runs.
    expect(table.get_by_role("columnheader", name="epochs")).to_have_count(0)
    well_laid_out(table.locator(".jpd-runs-bar"))
    # Only what is in sight is there, wherever that is.
    assert rows.count() < 80
    table.locator(".jpd-runs-scroll").evaluate("node => { node.scrollTop = 1e9 }")
    expect(rows.last).to_have_attribute("data-id", made[0].folder.id)
    table.locator(".jpd-runs-scroll").evaluate("node => { node.scrollTop = 0 }")

    table.get_by_role("button", name="loss", exact=True).click()
    expect(table.locator("th[data-id='metric:loss']")).to_have_attribute("aria-sort", "ascending")
    table.get_by_role("button", name="loss", exact=True).click()
    expect(table.locator("th[data-id='metric:loss']")).to_have_attribute("aria-sort", "descending")
    table.get_by_role("button", name="loss", exact=True).click()

    best = rows.first
    best.hover()
    best.get_by_role("button", name=re.compile("^Rename")).click()
    table.get_by_label("Name of the run").fill("lowest loss")
    lab.page.keyboard.press("Enter")
    expect(rows.first).to_contain_text("lowest loss")
    table.locator(".jpd-runs-scroll").evaluate("node => { node.scrollLeft = 0 }")
    pictures(lab, "runs-table")
    table.get_by_label("Group runs by").select_option("param:model")
    expect(table.locator(".jpd-runs-group")).to_contain_text("vit-base (250)")
    columns = table.get_by_role("button", name="Columns", exact=True)
    columns.click()
    item = lab.page.locator(".lm-Menu-item", has_text=re.compile("^epochs$"))
    item.click()
    # The menu stays open for another column.
    expect(item).to_contain_class("lm-mod-toggled")
    expect(table.get_by_role("columnheader", name="epochs")).to_be_visible()
    picture(lab.page, "runs-table-groups")
    lab.page.keyboard.press("Escape")
    expect(columns).to_be_focused()
    table.get_by_role("button", name="vit-base (250)").click()
    expect(table.locator(".jpd-runs-group")).to_have_count(2)
    table.get_by_label("Filter runs by text").fill("lowest")
    expect(rows.locator("td")).not_to_have_count(0)
    expect(table).to_contain_text("1 run")
    # The workspace remembers how the table was left.
    lab.wait_until_kept("jupyter-dist-table:state", "lowest")
    lab.reload()
    expect(table.get_by_label("Filter runs by text")).to_have_value("lowest")
    expect(table).to_contain_text("1 run")
    expect(table.get_by_label("Group runs by")).to_have_value("param:model")
    expect(table.get_by_role("columnheader", name="epochs")).to_be_visible()


def test_what_differs_and_a_run_in_its_tab(
    lab: Lab, own_folders: Path, picture: Picture, pictures: Pictures
) -> None:
    made = make_runs(own_folders, 3)
    for number, one in enumerate(made):
        code = CODE.format(dropout=number / 10, optimizer=("SGD", "AdamW", "AdamW")[number])
        one.folder.job.write_text(
            one.folder.job.read_text()
            .replace('"train()"', repr(code).replace("'", '"'))
            .replace('"line": null', '"line": "-np 2"')
        )
    lab.command("jupyter-dist:compare-runs", ids=[one.folder.id for one in made])
    view = lab.page.locator(".jpd-compare")
    differing = view.get_by_role("region", name="What differs")
    expect(differing.get_by_role("row", name=re.compile("^lr"))).to_contain_text("0.1")
    expect(differing.get_by_role("row", name=re.compile("^epochs"))).to_have_count(0)
    expect(differing.get_by_role("row", name=re.compile("^loss"))).to_be_visible()
    view.get_by_text(re.compile("^Code of .* against")).first.click()
    expect(view.locator("[data-change='+']").filter(has_text="AdamW").first).to_be_visible()
    expect(view.locator(".jpd-chart canvas").first).to_be_visible()
    for axis in ("time", "epoch"):
        view.get_by_label("Horizontal axis").select_option(axis)
        expect(view.locator(".jpd-chart-name", has_text="loss")).to_be_visible()
        # What the others are drawn over.
        expect(view.locator(".jpd-chart-name", has_text="epoch")).to_be_hidden()
    pictures(lab, "compare")

    lab.command("jupyter-dist:open-run", id=made[-1].folder.id)
    tab = lab.tab(made[-1].folder.id)
    section = tab.node.get_by_role("region", name="About this run")
    expect(section).to_contain_text("Warm-up helps.")
    tab.header.get_by_role("button", name="Rename").click()
    tab.header.get_by_label("Name of the run").fill("final")
    lab.page.keyboard.press("Enter")
    # It comes back from the server, to whoever shows the run.
    expect(tab.header.locator(".jpd-name")).to_have_text("final")
    expect(lab.page.get_by_role("tab", name="final", exact=True)).to_be_visible()
    section.get_by_text("Code", exact=True).click()
    expect(section).to_contain_text("%%distribute -np 2")
    section.get_by_text(re.compile(r"^Parameters \(")).click()
    expect(section).to_contain_text("vit-base" if len(made) % 2 == 0 else "resnet50")
    section.get_by_text("Environment", exact=True).click()
    expect(section).to_contain_text("Not recorded")
    picture(lab.page, "run-about")
    sidebar = lab.sidebar()
    expect(sidebar.rows.first).to_contain_text("final")
    expect(sidebar.rows.first).to_contain_text("lr=")
    sidebar.row("final").get_by_role("button", name=re.compile("^final,")).press("F2")
    sidebar.node.get_by_label("Name of the run").fill("again another")
    lab.page.keyboard.press("Enter")
    expect(sidebar.row("again another")).to_be_visible()
    picture(lab.page, "runs-sidebar")
    sort = sidebar.runs.get_by_label("Sort runs by")
    sort.select_option("metric:loss")
    sidebar.runs.get_by_role("button", name="Lowest first. Press for highest first").click()
    highest = sidebar.runs.get_by_role("list", name="Runs", exact=True).get_by_role("listitem").first
    expect(highest).to_contain_text("loss 0.91")
    sort.select_option("created")
    expect(sidebar.rows.first).to_contain_text("again another")


def test_a_cell_is_found_run_again_and_changed(lab: Lab, own_folders: Path) -> None:
    notebook = lab.notebook(LOAD, "lr = 0.25")
    view = notebook.distribute("%%distribute -np 1 --name first\nprint('rate', lr)\nlr").to_be("succeeded")
    first = view.run
    lab.command("jupyter-dist:open-run", id=first)
    section = lab.tab(first).node.get_by_role("region", name="About this run")
    section.get_by_text(re.compile(r"^Parameters \(1\)")).click()
    expect(section).to_contain_text("0.25")
    section.get_by_text("Environment", exact=True).click()
    expect(section).to_contain_text("Commit")
    section.get_by_role("button", name="Run again", exact=True).click()
    # The same cell, another run.
    expect(notebook.cell(2).locator(".jpd-run")).not_to_have_attribute("data-run", first)
    notebook.view(notebook.cell(2)).to_be("succeeded")
    cells: Any = lab.page.evaluate(
        "path => [...window.jupyterapp.shell.widgets('main')].find(w => w.context?.path === path)"
        ".content.widgets.length",
        notebook.path,
    )
    assert cells == 3  # no new one

    lab.command("jupyter-dist:open-run", id=first)
    section.get_by_role("button", name="Run again with changes").click()
    added = notebook.panel.locator(".jp-Cell.jp-mod-active")
    expect(added).to_contain_text("%%distribute -np 1 --name first")
    expect(added.locator(".cm-content")).to_be_focused()
    lab.page.keyboard.type("lr = 2 * lr\n")
    expect(added).to_contain_text("lr = 2 * lr")
    lab.command("jupyter-dist:open-run", id=first)
    section.get_by_role("button", name="Show the cell").click()
    expect(notebook.panel.locator(".jp-Cell.jp-mod-active")).to_contain_text("print('rate', lr)")

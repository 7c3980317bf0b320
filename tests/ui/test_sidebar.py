"""The sidebar: clusters to choose from, runs to watch, and both through forms, menus and dialogs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from jupyter_dist.job import State
from tests.rigs.run_maker import RunMaker
from tests.rigs.stopwatch import WaitFor

from .pages import LOAD, Lab, Notebook
from .server import JupyterServer

Picture = Callable[[Page, str], Path]


def test_a_first_run_starts_in_an_empty_panel(lab: Lab) -> None:
    lab.sidebar()
    runs = lab.page.locator("#jupyter-dist-sidebar")
    runs.get_by_role("button", name="Open an example").click()
    cells = lab.page.locator(".jp-Notebook .jp-Cell")
    expect(cells).to_have_count(2)
    expect(cells.first).to_contain_text("%load_ext jupyter_dist")
    expect(cells.last).to_contain_text("%%distribute -np 2")
    Notebook(lab, "Untitled.ipynb").ready()
    lab.command("notebook:run-all-cells")
    expect(lab.page.locator(".jp-Notebook .jpd-run")).to_have_attribute("data-state", "succeeded")


def test_a_cluster_is_added_used_inserted_and_run(lab: Lab, server: JupyterServer, picture: Picture) -> None:
    write_clusters(server, "# ours, by hand\n")
    notebook = lab.notebook(LOAD)
    sidebar = lab.sidebar()
    expect(sidebar.card("local")).to_contain_text("core")

    sidebar.clusters.get_by_role("button", name="New cluster").click()
    sidebar.form.get_by_label("Name").fill("three")
    # What is wrong is said by the same model as for the flag.
    sidebar.form.get_by_label("Workers", exact=True).fill("0")
    sidebar.form.get_by_role("button", name="Save", exact=True).click()
    expect(sidebar.form.get_by_role("alert")).to_contain_text("1")
    expect(sidebar.form.get_by_label("Workers", exact=True)).to_be_focused()
    picture(lab.page, "cluster-form")
    sidebar.form.get_by_label("Workers", exact=True).fill("3")
    # It is right again, and said so before it is saved; the line is what the form means.
    expect(sidebar.form.get_by_role("alert")).to_have_count(0)
    expect(sidebar.form.get_by_label("The form as a line")).to_have_text("%%distribute --backend local -np 3")
    sidebar.form.get_by_role("button", name="Copy the line").click()
    copied = lab.page.evaluate("() => navigator.clipboard.readText()")
    assert copied == "%%distribute --backend local -np 3"
    sidebar.form.get_by_label("Environment").fill("HF_TOKEN=hf_abcdefghijklmnop")
    lab.page.keyboard.press("Tab")
    expect(sidebar.form.get_by_role("alert")).to_contain_text("HF_TOKEN looks like a secret")
    sidebar.form.get_by_label("Environment").fill("")
    expect(sidebar.form.get_by_role("alert")).to_have_count(0)
    sidebar.form.get_by_role("button", name="Save", exact=True).click()
    expect(sidebar.card("three")).to_contain_text("local × 3")
    assert server.clusters.read_text().startswith("# ours, by hand\n")
    assert "[clusters.three]" in server.clusters.read_text()

    sidebar.card("three").get_by_role("button", name="three").first.click()
    expect(sidebar.card("three")).to_contain_text("in use")
    expect(notebook.panel.locator(".jpd-toolbar-item")).to_contain_text("three")

    sidebar.card("three").get_by_role("button", name="Insert").click()
    inserted = notebook.cell(1)
    expect(inserted).to_contain_text("%%distribute --cluster three")
    expect(inserted).to_contain_class("jp-mod-active")
    expect(inserted.locator(".cm-content")).to_be_focused()
    # What is typed takes the place of the example, below the magic's line.
    lab.page.keyboard.type("print('mine')")
    expect(inserted.locator(".cm-line")).to_have_text(["%%distribute --cluster three", "print('mine')"])
    lab.page.keyboard.press("Control+Enter")
    view = notebook.view(inserted).to_be("succeeded")
    expect(view.chips).to_have_count(3)
    expect(sidebar.rows).to_have_count(1)
    expect(sidebar.rows.get_by_role("button", name=re.compile("succeeded"))).to_contain_text("local × 3")
    # What a cell says of itself: the choice is the kernel's.
    said = notebook.run("%dist use")
    expect(said).to_contain_text("three")
    picture(lab.page, "cluster-in-use")

    # The notebook's shortcuts are for its cells: not for what has the focus in a view or in the sidebar.
    cells = notebook.panel.locator(".jp-Cell")
    count = cells.count()
    for place in (view.chips.first, sidebar.card("three").get_by_role("button").first):
        place.focus()
        for key in ("x", "b", "d", "d", "m"):
            lab.page.keyboard.press(key)
        expect(place).to_be_focused()
    said.locator(".jp-InputPrompt").first.click()
    lab.page.keyboard.press("b")
    expect(cells).to_have_count(count + 1)


def test_a_cluster_is_edited_duplicated_tested_and_deleted(lab: Lab, server: JupyterServer) -> None:
    far = '[clusters.far]\nbackend = "ssh"\nhosts = "localhost:1,nowhere.invalid:2"\n'
    write_clusters(server, f'# mine\n[clusters.small]\nbackend = "local"\nnp = 2 # two\n{far}')
    sidebar = lab.sidebar()
    sidebar.clusters.page.get_by_role("button", name="Refresh").first.click()
    expect(sidebar.card("small")).to_contain_text("local × 2")
    sidebar.choose("small", "Test")
    expect(sidebar.card("small").get_by_role("status")).to_contain_text(re.compile("works|answered|ok", re.I))
    sidebar.choose("far", "Test")
    expect(sidebar.card("far").get_by_role("status")).to_contain_text("cannot be resolved: check")
    # A line for each host: one that works does not make up for one that does not.
    lines = sidebar.card("far").get_by_role("status").get_by_role("listitem")
    expect(lines).to_have_text(["localhost: not asked", "✗ nowhere.invalid: does not work"])
    # Saved and tested at once.
    sidebar.choose("small", "Edit…")
    sidebar.form.get_by_role("button", name="Save & test").click()
    expect(sidebar.card("small").get_by_role("status")).to_contain_text(re.compile("works|answered|ok", re.I))
    sidebar.choose("small", "Duplicate")
    copy = sidebar.card("small-2")
    expect(copy).to_be_visible()
    sidebar.choose("small-2", "Edit…")
    expect(sidebar.form.get_by_label("Workers", exact=True)).to_have_value("2")
    sidebar.form.get_by_label("Name").fill("large")
    sidebar.form.get_by_label("Workers", exact=True).fill("8")
    sidebar.form.get_by_role("button", name="Save", exact=True).click()
    expect(sidebar.card("large")).to_contain_text("local × 8")
    sidebar.choose("small", "Delete…")
    with lab.dialog() as dialog:
        dialog.get_by_role("button", name="Delete").click()
    expect(sidebar.card("small")).to_have_count(0)
    left = server.clusters.read_text()
    assert left.startswith("# mine")
    assert "[clusters.large]" in left
    assert "[clusters.small" not in left

    # A launcher's word stays one, and what is wrong is in sight below its field.
    sidebar.choose("torchrun", "New Cluster…")
    sidebar.form.get_by_label("Name").fill("each")
    sidebar.form.get_by_label("Workers per node").fill("auto")
    sidebar.form.get_by_label("Search options").fill("ssh-port")
    port = sidebar.form.get_by_label("ssh port")
    port.fill("99999")
    sidebar.form.get_by_role("button", name="Save", exact=True).click()
    expect(port).to_be_focused()
    expect(sidebar.form.get_by_role("alert")).to_have_text("Can be at most 65535, got 99999")
    expect(sidebar.form.get_by_role("alert")).to_be_in_viewport(ratio=0.9)
    port.fill("")
    sidebar.form.get_by_role("button", name="Save", exact=True).click()
    expect(sidebar.card("each")).to_contain_text("nproc per node auto")


def test_runs_are_listed_filtered_opened_stopped_and_removed(
    lab: Lab, own_folders: Path, picture: Picture
) -> None:
    long_ago = RunMaker(own_folders, 4, label="an old one", began=time.time() - 86_400)
    long_ago.print(0, "hello from yesterday\n")
    long_ago.end(State.FAILED)
    made = RunMaker(own_folders, 2, label="the other", notebook="work/other.ipynb", began=time.time() - 60)
    made.end()
    sidebar = lab.sidebar()
    expect(sidebar.rows).to_have_count(2)
    # Newest first.
    expect(sidebar.rows.nth(0)).to_contain_text("the other")
    expect(sidebar.rows.nth(1)).to_contain_text("an old one")

    notebook = lab.notebook(LOAD)
    view = notebook.distribute("%%distribute -np 2\nimport time\nfor i in range(10_000): time.sleep(0.1)")
    running = sidebar.rows.filter(has_text=notebook.path)
    expect(running).to_be_visible()
    sidebar.runs.get_by_label("Filter runs by state").select_option("running")
    expect(sidebar.rows).to_have_count(1)
    # The panel of JupyterLab that lists what runs has it as well.
    lab.command("running:show-panel")
    expect(lab.page.locator("#jp-running-sessions").get_by_text("Distributed Runs")).to_be_visible()
    lab.sidebar()
    running.get_by_role("button", name=re.compile("^Stop")).click()
    view.to_be("stopped")
    expect(sidebar.runs.get_by_text("No run matches this filter")).to_be_visible()
    sidebar.runs.get_by_role("button", name="Show all runs").click()
    expect(sidebar.rows).to_have_count(3)
    sidebar.runs.get_by_label("Filter runs by text").fill("old")
    expect(sidebar.rows).to_have_count(1)
    sidebar.rows.get_by_role("button", name=re.compile("^an old one, failed")).click()
    lab.tab(long_ago.folder.id).to_be("failed").to_show("hello from yesterday")
    picture(lab.page, "runs")

    sidebar.rows.hover()
    sidebar.rows.get_by_role("button", name="Remove an old one").click()
    with lab.dialog() as dialog:
        expect(dialog).to_contain_text(re.compile(r"\d+(\.\d+)? [kMG]?B"))
        dialog.get_by_role("button", name="Remove").click()
    expect(sidebar.runs.get_by_text("No run matches this filter")).to_be_visible()
    assert not long_ago.folder.path.exists()
    expect(lab.tab(long_ago.folder.id).node).to_contain_text("This run was removed")
    sidebar.runs.get_by_role("button", name="Show all runs").click()
    expect(sidebar.rows).to_have_count(2)


def test_a_run_that_goes_on_after_a_stop_is_killed(lab: Lab, own_folders: Path, wait_for: WaitFor) -> None:
    made = RunMaker(own_folders, 2, label="stubborn", began=time.time())
    sidebar = lab.sidebar()
    row = sidebar.row("stubborn")
    row.get_by_role("button", name="Stop stubborn").click()
    kill = row.get_by_role("button", name="Kill stubborn")
    expect(row).to_contain_text("stopping…")
    kill.click()
    with lab.dialog() as dialog:
        expect(dialog).to_contain_text("The run was asked to stop and is still running")
        dialog.get_by_role("button", name="Wait").click()
    # The row says "stopping…" before the server has the request.
    wait_for(made.folder.requests.joinpath("stop").exists, "the request to stop it")
    assert [path.name for path in made.folder.requests.iterdir()] == ["stop"]
    kill.click()
    with lab.dialog() as dialog:
        dialog.get_by_role("button", name="Kill").click()
    wait_for(made.folder.requests.joinpath("kill").exists, "the request to kill it")
    made.end(State.STOPPED, reason="killed by the user")
    expect(row.get_by_role("button", name=re.compile("^stubborn, stopped"))).to_be_visible()


def test_runs_of_a_kernel_that_keeps_them_elsewhere(lab: Lab, own_folders: Path, tmp_path: Path) -> None:
    """The sidebar says so. The view is the page's own code with the kernel's data."""
    elsewhere = tmp_path / "elsewhere"
    notebook = lab.notebook(f"import os; os.environ['JUPYTER_DIST_RUNS'] = {str(elsewhere)!r}", LOAD)
    sidebar = lab.sidebar()
    view = notebook.distribute("%%distribute -np 1\nprint('hello')").to_be("succeeded")
    view.to_show("hello")
    expect(view.node).to_have_attribute("data-source", "kernel")
    asked = notebook.run("from jupyter_dist.showing import frontends\nfrontends.lacks_view()")
    expect(asked.locator(".jp-OutputArea-output")).to_have_text("False")
    expect(sidebar.runs).to_contain_text(str(elsewhere))
    RunMaker(own_folders, 1, label="another").end()
    expect(sidebar.row("another")).to_be_visible()
    expect(sidebar.runs).to_contain_text(str(elsewhere))


def test_what_a_cell_does_to_clusters_is_seen_at_once(lab: Lab) -> None:
    sidebar = lab.sidebar()
    expect(sidebar.card("local")).to_be_visible()
    notebook = lab.notebook(LOAD)
    notebook.run("%dist clusters add from-a-cell --backend local -np 3")
    expect(sidebar.card("from-a-cell")).to_contain_text("local × 3")
    # What another page of the same kernel does is seen when the user comes back to this one.
    notebook.run("import jupyter_dist.clusters; jupyter_dist.clusters.use('from-a-cell')")
    expect(sidebar.card("from-a-cell")).not_to_contain_text("in use")
    lab.page.evaluate("() => window.dispatchEvent(new Event('focus'))")
    expect(sidebar.card("from-a-cell")).to_contain_text("in use")


def test_curves_of_two_runs_are_compared(lab: Lab, own_folders: Path, picture: Picture) -> None:
    for number in (1, 2):
        made = RunMaker(own_folders, 2, label=f"run {number}", began=time.time() - 60 * number)
        for step in range(50):
            for rank in (0, 1):
                made.metric(rank, step, {"loss": number / (step + 1) + rank / 50})
        made.end()
    sidebar = lab.sidebar()
    expect(sidebar.rows).to_have_count(2)
    sidebar.node.get_by_role("button", name="Select runs to compare").click()
    for number in (1, 2):
        sidebar.runs.get_by_role("checkbox", name=f"Compare run {number}").check()
    sidebar.runs.get_by_role("button", name="Compare", exact=True).click()
    view = lab.page.get_by_role("region", name="Comparison of runs")
    expect(view.get_by_role("group", name="Runs")).to_contain_text("run 1")
    expect(view.get_by_role("group", name="Runs")).to_contain_text("run 2")
    expect(view.get_by_role("img", name=re.compile("^loss"))).to_be_visible()
    expect(view.locator("canvas")).to_be_visible()
    picture(lab.page, "compare")


def write_clusters(server: JupyterServer, text: str) -> None:
    server.clusters.parent.mkdir(parents=True, exist_ok=True)
    server.clusters.write_text(text)

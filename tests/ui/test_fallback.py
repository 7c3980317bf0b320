"""Without our labextension the kernel's widget shows the run: live, while its cell blocks, and saved."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from jupyter_dist.conformance.deadlines import Deadline
from tests.rigs.gates import Gates

from .pages import LOAD, Lab, Notebook
from .server import JupyterServer

OURS = "jupyter-dist"
TRAIN = """%%distribute -np 2
import time
import jupyter_dist as dist
for step in dist.progress(range({steps})):
    dist.log(loss=1 / (step + 1) + 0.1 * dist.rank(), step=step)
    print("step", step)
    time.sleep(0.05)
dist.rank() * 111
"""
SHOW = """
display({"text/html": f"<b>bold</b> of {dist.rank()}", "text/plain": "bold"}, raw=True)
picture = "<svg xmlns='http://www.w3.org/2000/svg' width='40' height='20'>" + "<g/>" * 900 + "</svg>"
display({"image/svg+xml": picture, "text/plain": "a picture"}, raw=True)
dist.log(text={"sample": "words to keep"}, step=7)
"""
ASK = "from jupyter_dist.showing import frontends\nfrontends.shows_widgets()"
KERNELS = "@jupyterlab/apputils-extension:kernels-settings"
WIDGETS = "@jupyter-widgets/jupyterlab-manager:plugin"


def held_at_30(gates: Gates) -> str:
    """TRAIN without an end. Its ranks wait at step 30, since the page has only the last rows of a log."""
    code = TRAIN.format(steps=100_000).replace("import time\n", f"import time\n{gates.source}", 1)
    return code.replace("time.sleep(0.05)\n", "time.sleep(0.05)\n    if step == 30: gate('step 30')\n", 1)


@pytest.fixture
def preferences() -> dict[str, dict[str, Any]]:
    """Settings of JupyterLab by plugin: a test that wants others parametrizes this."""
    return {}


@pytest.fixture
def bare(server: JupyterServer, browser: Browser, preferences: dict[str, dict[str, Any]]) -> Iterator[Lab]:
    """JupyterLab as it is where our labextension is not installed."""
    for plugin, values in preferences.items():
        server.set_preferences(plugin, values)
    with server.without(OURS):
        found = Lab(browser, server)
        found.open()
        yield found
        found.renew()
        found.close()
    for plugin in preferences:
        server.set_preferences(plugin, {})


def test_the_widget_is_live_while_its_cell_blocks(
    bare: Lab, picture: Callable[[Page, str], Path], tmp_path: Path
) -> None:
    notebook = bare.notebook(LOAD)
    gates = Gates(tmp_path)
    cell = notebook.start(held_at_30(gates))
    view = notebook.view(cell)
    expect(view.node).to_have_attribute("data-source", "kernel")
    view.to_be("running").to_show("step 20")
    expect(view.metrics.locator("canvas").first).to_be_visible()
    view.rank(1).to_show("step 30")
    picture(bare.page, "fallback-live")
    gates.open("step 30")
    view.stop.click()
    view.to_be("stopped")
    notebook.done(cell)
    expect(cell.locator(".jpd-run")).to_have_count(1)
    # The end redraws the output; the view goes on as it was.
    expect(view.logs.get_by_role("tab", name="Rank 1")).to_have_attribute("aria-selected", "true")
    expect(cell).to_contain_text("RunStopped")


@pytest.mark.parametrize("preferences", [{KERNELS: {"commsOverSubshells": "disabled"}}])
def test_where_the_kernel_cannot_be_heard_it_tells_and_stop_says_what_to_do(
    bare: Lab, picture: Callable[[Page, str], Path], tmp_path: Path
) -> None:
    notebook = bare.notebook(LOAD)
    gates = Gates(tmp_path)
    # A kernel that hears nothing while it is busy has to hear of widgets before the cell begins.
    _wait_for_hello(notebook)
    cell = notebook.start(held_at_30(gates))
    view = notebook.view(cell)
    view.to_be("running").to_show("step 20")
    expect(view.metrics.locator("canvas").first).to_be_visible()
    view.rank(0).to_show("step 30")
    gates.open("step 30")
    view.stop.click()
    expect(cell.get_by_role("alert")).to_contain_text("use Interrupt")
    view.to_be("running")
    picture(bare.page, "fallback-told")
    bare.command("notebook:interrupt-kernel")
    view.to_be("stopped")
    notebook.done(cell)
    # Now it hears again: all of the log is there to be searched.
    view.logs.get_by_role("searchbox").fill("step 1")
    expect(view.logs.locator(".jpd-hits")).to_contain_text(re.compile(r"\d"))


@pytest.mark.parametrize("preferences", [{WIDGETS: {"saveState": True}}])
def test_a_saved_notebook_shows_the_end_without_its_kernel(
    bare: Lab, picture: Callable[[Page, str], Path]
) -> None:
    notebook = bare.notebook(LOAD)
    cell = notebook.run(TRAIN.format(steps=300) + SHOW + "dist.rank() * 111")
    view = notebook.view(cell).to_be("succeeded")
    expect(cell.locator(".jp-OutputArea-output")).to_have_count(1)
    shown = view.node.get_by_role("region", name="Displays")
    for rank, frame in enumerate(shown.locator("iframe").all()):
        expect(frame.content_frame.locator("body")).to_have_text(f"bold of {rank}")
    expect(shown.locator("img")).to_have_js_property("naturalWidth", 40)
    notebook.save()
    saved = json.loads(notebook.file.read_text())
    assert len(json.dumps(saved["cells"])) < 100_000
    assert "<b>bold</b> of 0" in json.dumps(saved["cells"])
    assert "data:image/svg+xml;base64," in json.dumps(saved["cells"])
    notebook = _opened_again(bare, notebook)
    view = notebook.view(notebook.cell(1)).to_be("succeeded")
    view.to_show("step 299")
    expect(view.metrics.locator("canvas").first).to_be_visible()
    expect(view.node).to_contain_text("111")
    expect(notebook.cell(1).get_by_role("alert")).to_contain_text(re.compile(r"the last 200 of \d+ lines"))
    view.rank(1).to_show("step 299")
    # Of those that differ the first rank's is kept.
    shown = view.node.get_by_role("region", name="Displays")
    expect(shown.locator("iframe").content_frame.locator("body")).to_have_text("bold of 0")
    expect(shown.locator("img")).to_have_js_property("naturalWidth", 40)
    media = view.node.get_by_role("region", name="Media")
    expect(media).to_contain_text("words to keep")
    picture(bare.page, "fallback-saved")


def _wait_for_hello(notebook: Notebook) -> None:
    """Wait until the page has told the kernel that it shows widgets."""
    deadline = Deadline()
    while "True" not in notebook.run(ASK).locator(".jp-OutputArea-output").inner_text():
        assert not deadline.passed(), "the page does not say that it shows widgets"


def _opened_again(bare: Lab, notebook: Notebook) -> Notebook:
    """Opened anew, with a kernel that knows nothing, until ipywidgets has looked into the file.

    When the kernel connects before the notebook is ready, ipywidgets looks for its models before those of the
    file are loaded, and says for good that there is none (`restoreWidgets` in
    https://github.com/jupyter-widgets/ipywidgets/blob/main/python/jupyterlab_widgets/src/manager.ts).
    """
    for turn in range(4):
        if turn:
            print(f"ipywidgets has looked into the file too early: opened again, {turn}")
        bare.renew()
        bare.reload()
        found = bare.open_notebook(notebook.path)
        too_early = found.cell(1).get_by_text("model not found")
        expect(found.cell(1).locator(".jpd-run").or_(too_early).first).to_be_visible()
        if not too_early.count():
            break
    return found


def test_a_failure_is_told_once_and_in_full_in_the_view(bare: Lab) -> None:
    notebook = bare.notebook(LOAD)
    cell = notebook.run("%%distribute -np 2\nimport jupyter_dist as dist\n1 / dist.rank()")
    view = notebook.view(cell).to_be("failed")
    expect(view.failure).to_contain_text("1 / dist.rank()")
    error = cell.locator("[data-mime-type='application/vnd.jupyter.stderr']")
    expect(error).to_contain_text("rank 0 failed first")
    expect(error).to_contain_text("ZeroDivisionError")
    expect(error).not_to_contain_text("1 / dist.rank()")


def test_a_run_that_the_server_does_not_have_is_shown_by_its_kernel(lab: Lab, tmp_path: Path) -> None:
    """A kernel of another environment or host, which does not share the data directory."""
    elsewhere = f"import os\nos.environ['JUPYTER_DIST_RUNS'] = {str(tmp_path / 'elsewhere')!r}"
    notebook = lab.notebook(elsewhere, LOAD)
    seen = tmp_path / "seen"
    wait = f"    while step == 50 and not os.path.exists({str(seen)!r}): time.sleep(0.05)\n"
    code = TRAIN.format(steps=100).replace("import time\n", "import os, time\n")
    cell = notebook.start(code.replace("dist.rank() * 111", wait + "dist.rank() * 111"))
    view = notebook.view(cell)
    expect(view.node).to_have_attribute("data-source", "kernel")
    view.to_be("running").to_show("step 50")
    seen.touch()
    view.to_be("succeeded").to_show("step 99")
    expect(cell.locator(".jpd-run")).to_have_count(1)
    expect(cell).not_to_contain_text("was not found")

"""What a user has before the eyes: JupyterLab in a browser, a notebook, a run's view, the sidebar.

Every wait is for a condition with a deadline; locators are scoped to the part they belong to.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Error, Locator, Page, expect

from jupyter_dist.conformance.deadlines import PATIENCE_S, Deadline

from .server import TOKEN, JupyterServer

__all__ = ["ENDED", "LOAD", "WAIT_MS", "Lab", "Notebook", "RunView", "Sidebar"]

LOAD = "%load_ext jupyter_dist"
ENDED = re.compile("succeeded|failed|stopped|lost")
WAIT_MS = 1000 * PATIENCE_S
"""How long Playwright waits for one thing. Its clock is the wall's: it cannot leave out what others cost."""

_WITHIN_A_SECOND = """async argument => Promise.race([
  ({condition})(argument),
  new Promise(done => setTimeout(done, 1000, false))
])"""
_STARTED = "() => window.jupyterapp.restored.then(() => true)"
_PANEL = """path => [...window.jupyterapp.shell.widgets('main')].find(w => w.context?.path === path)"""
# Cells run before the session is ready are dropped silently. A kernel that is busy with a cell
# answers for its info when that cell is done.
_READY = f"""async ([path, free]) => {{
  const panel = ({_PANEL})(path);
  await panel.context.ready;
  await panel.sessionContext.ready;
  const kernel = panel.sessionContext.session?.kernel;
  return Boolean(kernel && (!free || (await kernel.info)));
}}"""
_HAS_KERNEL = f"""async path => {{
  const {{ sessionContext }} = ({_PANEL})(path);
  if (!sessionContext.session?.kernel) {{
    await sessionContext.changeKernel({{ name: 'python3' }});
  }}
  return Boolean(sessionContext.session?.kernel);
}}"""
_OPEN = """async path => {
  await window.jupyterapp.commands.execute('docmanager:open', { path, factory: 'Notebook' });
}"""
_APPEND = f"""async ([path, source, execute]) => {{
  const {{ commands, shell }} = window.jupyterapp;
  const panel = ({_PANEL})(path);
  shell.activateById(panel.id);
  const notebook = panel.content;
  const shared = notebook.model.sharedModel;
  const last = shared.cells.length - 1;
  // A new notebook has one empty cell, which is there to be filled.
  if (last >= 0 && shared.cells[last].cell_type === 'code' && !shared.cells[last].source) {{
    shared.cells[last].setSource(source);
    notebook.activeCellIndex = last;
  }} else {{
    shared.insertCell(last + 1, {{ cell_type: 'code', source, metadata: {{}} }});
    notebook.activeCellIndex = last + 1;
  }}
  if (execute) {{
    // Resolves when the cell is done, which may be what the test prevents.
    void commands.execute('notebook:run-cell');
  }}
  return notebook.activeCellIndex;
}}"""
_SOURCES = f"path => ({_PANEL})(path).content.model.sharedModel.cells.map(cell => cell.source)"
_SELECT = f"""async ([path, index, at]) => {{
  const notebook = ({_PANEL})(path).content;
  notebook.activeCellIndex = index < 0 ? notebook.widgets.length + index : index;
  await notebook.scrollToItem(notebook.activeCellIndex, at);
}}"""
_KEPT = """async ([url, texts]) => {
  const kept = JSON.stringify(await (await fetch(url)).json());
  return texts.every(text => kept.includes(text));
}"""
_CLOSE_ALL = """async () => {
  const { shell, serviceManager } = window.jupyterapp;
  for (const widget of [...shell.widgets('main')]) {
    widget.dispose(); // not `close`, which asks about what is not saved
  }
  await serviceManager.sessions.shutdownAll();
}"""
_COMMAND = "([id, args]) => window.jupyterapp.commands.execute(id, args ?? {}).then(() => null)"
_NOTEBOOK = {
    "cells": [],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}

_numbers = itertools.count(1)


class Lab:
    """One page of the browser. `open` it first; `renew` gives the next test a clean one quickly."""

    def __init__(self, browser: Browser, server: JupyterServer, *, scale: float = 1.0) -> None:
        self.server = server
        self._context = browser.new_context(
            viewport={"width": 1280, "height": 800},
            device_scale_factor=scale,
            reduced_motion="reduce",
            permissions=["clipboard-read", "clipboard-write"],
        )
        self._context.set_default_timeout(WAIT_MS)
        self.page = self._new_page()
        self.complaints: list[str] = []
        """Uncaught errors of this page that our code had a part in."""
        self.restores = False
        """Whether JupyterLab may be about to open what its workspace held, also after `renew`."""
        self.said: list[str] = []
        """Every error and warning of the pages so far, for whoever reads how a test failed."""

    def _new_page(self) -> Page:
        page = self._context.new_page()
        # JupyterLab's own words on a server that is gone, in front of everything.
        lost = page.locator(".jp-Dialog").filter(has_text=re.compile("Server Connection Error|Error", re.I))
        page.add_locator_handler(lost, lambda dialog: dialog.get_by_role("button").last.click())
        page.on("pageerror", self._on_error)
        page.on("console", self._on_console)
        return page

    def _on_error(self, error: Error) -> None:
        stack = error.stack or str(error)
        self.said.append(stack)
        if "jupyter-dist" in stack or "jpd" in stack:
            self.complaints.append(stack)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.said.append(message.text)
        # A server that is gone is no error of ours, and no code can keep the browser from saying so.
        network = message.text.startswith(("WebSocket connection", "Failed to load resource"))
        if message.type == "error" and "jupyter-dist" in message.text and not network:
            self.complaints.append(message.text)

    def open(self, workspace: str | None = None) -> None:
        """Load JupyterLab in a workspace of its own, which a `reload` finds again."""
        self._workspace = workspace or f"w{next(_numbers)}"
        self.page.goto(self.server.url(f"lab/workspaces/{self._workspace}?token={TOKEN}"))
        self._started()

    def reload(self) -> None:
        self.restores = True
        # Unsaved changes would make the browser ask.
        self.page.once("dialog", lambda dialog: dialog.accept())
        self.page.reload()
        self._started()

    def wait_until_kept(self, *texts: str) -> None:
        """Wait until the server has the workspace with these in it: JupyterLab saves it now and then."""
        url = self.server.url(f"lab/api/workspaces/{self._workspace}")
        self.until(_KEPT, [url, texts])

    def until(self, condition: str, argument: Any = None) -> None:
        """Wait until a function of the page, which may be async, gives something true.

        `Page.wait_for_function` takes the promise of an async function for its answer."""
        deadline = Deadline()
        while not self.page.evaluate(_WITHIN_A_SECOND.format(condition=condition), argument):
            assert not deadline.passed(), f"waited {deadline.patience_s:g} s for {condition} of {argument}"
            self.page.wait_for_timeout(50)

    def close_tab(self) -> None:
        """Close the browser's tab and open another one in its place, in which nothing is loaded yet."""
        self.restores = True
        self.page.close()
        self.page = self._new_page()

    def _started(self) -> None:
        self.page.wait_for_function("() => window.jupyterapp")
        self.until(_STARTED)
        self._no_splash()

    def _no_splash(self) -> None:
        # As long as it is there it takes the clicks.
        expect(self.page.locator("#jupyterlab-splash")).to_have_count(0)

    def renew(self) -> None:
        """Close every tab of the main area and end every kernel."""
        self.page.evaluate(_CLOSE_ALL)

    def close(self) -> None:
        self._context.close()

    def command(self, name: str, **args: Any) -> None:
        """Execute a command as a menu does, to its end."""
        self.page.evaluate(_COMMAND, [name, args])

    def notebook(self, *cells: str) -> Notebook:
        """A new notebook with a kernel that is ready; the given cells have been run, one by one."""
        found = self.open_notebook(self._new_notebook())
        for cell in cells:
            found.run(cell)
        return found

    def open_in_notebook7(self, *cells: str) -> Notebook:
        """A new notebook in a page of Notebook 7, which shows one document per page."""
        path = self._new_notebook()
        self.page.goto(self.server.url(f"notebooks/{path}?token={TOKEN}"))
        self._started()
        found = Notebook(self, path)
        found.ready()
        for cell in cells:
            found.run(cell)
        return found

    def _new_notebook(self) -> str:
        path = f"Untitled{next(_numbers)}.ipynb"
        (self.server.root / path).write_text(json.dumps(_NOTEBOOK))
        return path

    def open_notebook(self, path: str, *, free: bool = True) -> Notebook:
        """Open a notebook; with `free` its kernel is waited for."""
        self.page.evaluate(_OPEN, path)
        found = Notebook(self, path)
        found.ready(free=free)
        return found

    def sidebar(self) -> Sidebar:
        """The panel "Distributed", shown."""
        self.command("jupyter-dist:show")
        found = Sidebar(self.page.locator("#jupyter-dist-sidebar"))
        expect(found.node).to_be_visible()
        return found

    def tab(self, run: str) -> RunView:
        """The tab of the main area that shows a run."""
        return RunView(self.page.locator(f".jpd-tab .jpd-run[data-run='{run}']"))

    def set_theme(self, name: str) -> None:
        self.command("apputils:change-theme", theme=name)
        light = "true" if name.endswith("Light") else "false"
        expect(self.page.locator(f"body[data-jp-theme-light='{light}']")).to_be_attached()
        self._no_splash()

    def notification(self) -> Locator:
        return self.page.locator(".Toastify__toast")

    @contextmanager
    def dialog(self) -> Iterator[Locator]:
        """The dialog that is open; gone at the end."""
        found = self.page.locator(".jp-Dialog")
        expect(found).to_be_visible()
        yield found
        expect(found).to_have_count(0)


class Notebook:
    """A notebook of a `Lab`, by its path; it survives a reload of the page."""

    def __init__(self, lab: Lab, path: str) -> None:
        self.lab = lab
        self.path = path

    @property
    def file(self) -> Path:
        return self.lab.server.root / self.path

    @property
    def panel(self) -> Locator:
        return self.lab.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")

    def cell(self, index: int) -> Locator:
        return self.panel.locator(f".jp-Cell[data-windowed-list-index='{index}']")

    def ready(self, *, free: bool = True) -> None:
        """Wait for the panel and its kernel, which may be busy unless it is to be `free`."""
        self.lab.until(f"path => Boolean(({_PANEL})(path))", self.path)
        self.lab.until(_READY, [self.path, free])
        expect(self.panel).to_have_count(1)

    def find(self, text: str) -> int:
        """The index of the first cell that holds the text."""
        sources: list[str] = self.lab.page.evaluate(_SOURCES, self.path)
        return next(index for index, source in enumerate(sources) if text in source)

    def select(self, index: int, at: str = "auto") -> None:
        """Make a cell the active one (negative: from the end), in sight, or `at` the "start" of what is."""
        self.lab.page.evaluate(_SELECT, [self.path, index, at])

    def append(self, source: str) -> Locator:
        """Add a cell at the end without running it."""
        return self.cell(self.lab.page.evaluate(_APPEND, [self.path, source, False]))

    def start(self, source: str) -> Locator:
        """Add a cell at the end and start it."""
        return self.cell(self.lab.page.evaluate(_APPEND, [self.path, source, True]))

    def run(self, source: str) -> Locator:
        """Add a cell at the end and wait until it is done, well or not."""
        cell = self.start(source)
        self.done(cell)
        return cell

    def done(self, cell: Locator) -> None:
        expect(cell.locator(".jp-InputPrompt").first).to_have_text(re.compile(r"\[\d+\]"))

    def view(self, cell: Locator) -> RunView:
        """The run shown under a cell."""
        return RunView(cell.locator(".jpd-run"))

    def distribute(self, source: str) -> RunView:
        """Start a `%%distribute` cell; returns its view, which is there."""
        view = self.view(self.start(source))
        expect(view.node).to_be_visible()
        return view

    def save(self) -> None:
        self.lab.command("docmanager:save")

    def restart_kernel(self) -> None:
        """As a user does, who chooses a kernel where the one to restart has gone with its server."""
        self.lab.page.evaluate(
            f"path => ({_PANEL})(path).sessionContext.restartKernel().then(() => null)", self.path
        )
        self.lab.until(_HAS_KERNEL, self.path)
        self.ready(free=False)


class RunView:
    """The view of one run, wherever it is shown."""

    def __init__(self, node: Locator) -> None:
        self.node = node
        self.header = node.locator(".jpd-header")
        self.chips = node.get_by_role("group", name="Ranks").get_by_role("button")
        self.logs = node.get_by_role("region", name="Logs")
        self.log = self.logs.locator(".jpd-log-body")
        self.rows = self.log.locator(".jpd-row")
        self.failure = node.get_by_role("region", name="Why it failed")
        self.metrics = node.get_by_role("region", name="Metrics")
        self.stop = self.header.get_by_role("button", name="Stop")

    @property
    def run(self) -> str:
        """The run's id."""
        found = self.node.get_attribute("data-run")
        assert found
        return found

    def to_be(self, state: str | re.Pattern[str]) -> RunView:
        """Wait until the run has come to that state."""
        expect(self.node).to_have_attribute("data-state", state)
        return self

    def to_end(self) -> str:
        """Wait for the end; returns the state."""
        self.to_be(ENDED)
        return self.node.get_attribute("data-state") or ""

    def rank(self, rank: int | None) -> RunView:
        """Show the log of a rank, or of all."""
        name = "All" if rank is None else f"Rank {rank}"
        self.logs.get_by_role("tab", name=name, exact=True).click()
        return self

    def to_show(self, *texts: str | re.Pattern[str]) -> RunView:
        """Wait until the log shows these texts, each in a line."""
        for text in texts:
            expect(self.rows.filter(has_text=text).first).to_be_visible()
        return self


class Sidebar:
    """The panel "Distributed"."""

    def __init__(self, node: Locator) -> None:
        self.node = node
        self.clusters = node.get_by_role("region", name="Clusters")
        self.runs = node.get_by_role("region", name="Runs")
        self.rows = self.runs.get_by_role("list", name="Runs, newest first").get_by_role("listitem")
        self.form = self.clusters.get_by_role("form")

    def set_width(self, width: int) -> None:
        """Drag the border of the left area."""
        page = self.node.page
        left = self.node.bounding_box()
        assert left
        border = left["x"] + left["width"] + 2
        page.mouse.move(border, left["y"] + 300)
        page.mouse.down()
        page.mouse.move(left["x"] + width + 2, left["y"] + 300, steps=4)
        page.mouse.up()
        now = self.node.bounding_box()
        assert now
        assert abs(now["width"] - width) <= 3, now

    def row(self, name: str) -> Locator:
        """A run by its name, such as `In[2]`."""
        remove_or_stop = re.compile(f"(Remove|Stop|Kill) {re.escape(name)}$")
        return self.rows.filter(has=self.node.page.get_by_role("button", name=remove_or_stop))

    def card(self, name: str) -> Locator:
        menu = self.node.page.get_by_role("button", name=f"More actions for {name}", exact=True)
        return self.clusters.get_by_role("listitem").filter(has=menu)

    def choose(self, name: str, item: str) -> None:
        """Choose from the menu of a card, which may be that of a backend that is not set up."""
        more = self.clusters.get_by_role("button", name=re.compile("More backends"), expanded=False)
        expect(self.card(name).or_(more).first).to_be_visible()
        if not self.card(name).count():
            more.click()
        self.card(name).get_by_role("button", name=f"More actions for {name}", exact=True).click()
        self.node.page.get_by_role("menuitem", name=item).click()

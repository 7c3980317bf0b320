"""A run goes on while browser, kernel and server come and go, and its view comes back live and whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.rigs.stopwatch import WaitFor

from .pages import LOAD, Lab, RunView
from .server import JupyterServer

Picture = Callable[[Page, str], Path]

TICKS = """%%distribute -np 2 {flags}
import itertools, os, time
import jupyter_dist as dist
for tick in itertools.count():
    print(f"rank {{dist.rank()}} tick {{tick}}.")
    dist.log(ticks=tick, step=tick)
    is_told = os.path.exists({last!r})
    if is_told and tick >= int(open({last!r}).read()):
        break
    time.sleep(0 if is_told else 0.1)
tick
"""
"""As soon as the ranks are told the last tick, they count without pauses."""
# Every ordered pair of events, one right after the other: t closes the tab and opens another one,
# k restarts the kernel, s the server, r reloads the page.
ORDERS = ("tksrt", "tskrk", "ktrst")
SHORT = "ks"
"""What the core runs: its other tests close tabs and reload the page while a run prints."""


class Ticking:
    """A run that prints and logs a number ten times a second on two ranks until it is told to end."""

    def __init__(self, lab: Lab, last: Path, wait_for: WaitFor, flags: str = "") -> None:
        self.lab = lab
        self._last = last
        self._wait_for = wait_for
        self.notebook = lab.notebook(LOAD)
        self.cell = self.notebook.start(TICKS.format(flags=flags, last=str(last)))
        self.view = self.notebook.view(self.cell)
        self.live()

    def live(self) -> int:
        """Check that the view comes further than it is now; returns how far."""
        self.view.to_be("running")
        expect(self.view.stop).to_be_visible()
        before = self._seen()
        self._wait_for(lambda: self._seen() > before, f"a tick after {before} in the view")
        return self._seen()

    def _seen(self) -> int:
        texts = self.view.rows.all_inner_texts()
        return max((int(n) for text in texts for n in re.findall(r"rank 0 tick (\d+)\.", text)), default=-1)

    def end(self) -> int:
        """Let the run end and check that the view has every line, the curve to its end, and the results.

        Returns the last tick.
        """
        last = self.live() + 200  # the ranks may be ahead of the view
        partial = self._last.with_suffix(".new")
        partial.write_text(str(last))
        partial.rename(self._last)
        complete(self.view.to_be("succeeded"), last)
        return last


def complete(view: RunView, last: int) -> None:
    """Check that nothing is missing in the view of a run whose ranks counted to `last`."""
    expect(view.node.get_by_role("region", name="Results")).to_contain_text(f"[0-1]{last}")
    expect(
        view.metrics.get_by_role("img", name=f"ticks over steps; at step {last} it is {last}")
    ).to_be_visible()
    search = view.logs.get_by_role("searchbox")
    for rank in (0, 1):
        view.rank(rank).to_show(f"rank {rank} tick {last}.")
        search.fill(f"rank {rank} tick")
        expect(view.logs.locator("output")).to_have_text(f"{last + 1:,}")
        search.press("Enter")
        view.to_show(f"rank {rank} tick 0.")
        search.fill("")


@pytest.mark.parametrize("order", [SHORT, *ORDERS])
def test_close_restart_and_reload_in_every_order(
    lab: Lab, server: JupyterServer, tmp_path: Path, wait_for: WaitFor, order: str
) -> None:
    run = Ticking(lab, tmp_path / "last", wait_for)
    run.notebook.save()
    id_ = run.view.run
    for event in order:
        if event == "t":
            lab.close_tab()
            lab.open("another")
        elif event == "r":
            lab.reload()
        elif event == "s":
            server.stop()
            expect(run.view.node.get_by_text("No connection")).to_be_visible()
            server.start()
            expect(run.view.node.get_by_text("No connection")).to_be_hidden()
        else:
            run.notebook.restart_kernel()
        if event in "tr":
            lab.open_notebook(run.notebook.path, free=False)
            # The page may be another one.
            run.view = run.notebook.view(run.notebook.cell(1))
        run.live()
        assert run.view.run == id_
    last = run.end()
    # And what is saved shows it once more.
    run.notebook.save()
    lab.reload()
    lab.open_notebook(run.notebook.path)
    expect(run.view.to_be("succeeded").header).to_contain_text("2 ranks")
    run.view.rank(1).to_show(f"rank 1 tick {last}.")


def test_a_detached_run_outlives_its_kernel(lab: Lab, tmp_path: Path, wait_for: WaitFor) -> None:
    run = Ticking(lab, tmp_path / "last", wait_for, "--detach")
    run.notebook.done(run.cell)
    expect(run.notebook.run("6 * 7").locator(".jp-OutputArea")).to_contain_text("42")
    id_ = run.view.run
    lab.renew()
    sidebar = lab.sidebar()
    sidebar.rows.get_by_role("button", name=re.compile("running")).click()
    run.view = lab.tab(id_)
    run.live()
    # The tab is there again after a reload, and so is the panel.
    lab.wait_until_kept(
        *('"current":"jupyter-dist-sidebar"', f'"current":"jupyter-dist:{id_}"', f'"ids":["{id_}"]')
    )
    lab.reload()
    expect(lab.page.locator("#jupyter-dist-sidebar")).to_be_visible()
    run.live()
    run.end()


def test_behind_a_prefix_as_on_a_hub(
    browser: Browser, tmp_path: Path, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = JupyterServer(tmp_path / "hub", "/user/ann@lab/")
    monkeypatch.setenv("JUPYTER_DIST_RUNS", str(server.runs))
    try:
        server.start()
        lab = Lab(browser, server)
        lab.open()
        run = Ticking(lab, tmp_path / "last", wait_for)
        expect(lab.sidebar().card("local")).to_contain_text("core")
        server.restart()
        run.live()
        run.end()
        assert not lab.complaints
        lab.close()
    finally:
        server.stop()

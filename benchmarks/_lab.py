"""JupyterLab in headless Chromium, driven as the browser tests do, with a look at what it costs."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import CDPSession, Error, expect, sync_playwright

# The driver is that of the tests, which are no package.
from tests.rigs.run_maker import RunMaker
from tests.ui.pages import LOAD, Lab, Notebook, RunView
from tests.ui.server import JupyterServer

from ._processes import Failed

__all__ = ["LOAD", "Browser", "Lab", "Notebook", "RunMaker", "RunView", "in_browser"]

_LIMIT_MS = 120_000


@dataclass
class Browser:
    """A page with JupyterLab and a line to Chromium's own counters."""

    lab: Lab
    server: JupyterServer
    counters: CDPSession

    def heap_bytes(self) -> int:
        """What JavaScript keeps, with what nobody needs any more collected."""
        self.counters.send("HeapProfiler.collectGarbage")
        return int(self.counter("JSHeapUsedSize"))

    def counter(self, name: str) -> float:
        """One of `Performance.getMetrics`, such as TaskDuration: seconds that the page's thread worked."""
        metrics = self.counters.send("Performance.getMetrics")["metrics"]
        return float(next(metric["value"] for metric in metrics if metric["name"] == name))


@contextlib.contextmanager
def in_browser(folder: Path) -> Iterator[Browser]:
    """A server and a page with JupyterLab. Raises Failed, also for what the page does not do in time."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        raise Failed("Chromium is needed: apt-get install chromium, or set CHROMIUM to its path")
    server = JupyterServer(folder)
    # For what is written and read by this process.
    before = os.environ.get("JUPYTER_DIST_RUNS")
    os.environ["JUPYTER_DIST_RUNS"] = str(server.runs)
    try:
        server.start()
        expect.set_options(timeout=_LIMIT_MS)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"]
            )
            lab = Lab(browser, server)
            lab.open()
            counters = lab.page.context.new_cdp_session(lab.page)
            counters.send("Performance.enable")
            yield Browser(lab, server, counters)
            browser.close()
    except (Error, AssertionError, RuntimeError) as error:
        raise Failed(str(error).splitlines()[0]) from error
    finally:
        if before is None:
            del os.environ["JUPYTER_DIST_RUNS"]
        else:
            os.environ["JUPYTER_DIST_RUNS"] = before
        server.stop()

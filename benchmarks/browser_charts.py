"""How far live charts in the browser are behind the log, and what the page receives, beside a busy core."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ._lab import Browser, RunMaker, in_browser
from ._processes import Failed
from ._race import Benchmark, Column, Measure
from .browser import measuring, ours
from .live_curves import RANKS, STEPS_PER_S, log

__all__ = ["charts"]

_SETTLE_S = 2.0
"""Steps of the last seconds may not have been drawn yet."""

# After every frame: when it was on the screen, and the step that all charts in sight have reached.
_WATCH_STEPS = """() => {
  const boxes = [...document.querySelectorAll('.jpd-chart-box')].filter(box => {
    const { top, bottom } = box.getBoundingClientRect();
    return bottom > 0 && top < window.innerHeight;
  });
  const step = box => Number(/ at step (\\d+)/.exec(box.getAttribute('aria-label'))?.[1] ?? 0);
  const paints = [];
  const tick = () => {
    const painted = new MessageChannel();
    painted.port1.onmessage = () => {
      const least = Math.min(...boxes.map(step));
      if (least > (paints.at(-1)?.[1] ?? 0)) paints.push([Date.now() / 1000, least]);
    };
    painted.port2.postMessage(0);
    if (window.jpdPaints === paints) requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
  window.jpdPaints = paints;
  return boxes.length;
}"""


def charts(quick: bool = False) -> Benchmark:
    """24 live charts of 16 ranks that log ten times a second, while another process uses one core."""
    return ours(
        "browser-charts",
        "24 live charts of 16 ranks, beside a busy core",
        lambda folder: _charts(folder, 100 if quick else 3_000, 3.0 if quick else 20.0),
        [
            Column("behind", "behind the log", "{:.0f} ms".format),
            Column("most", "longest", "{:.0f} ms".format),
            Column("bytes", "received, kB/s", "{:.0f}".format),
            Column("shown", "charts in sight", "{:.0f}".format),
        ],
        headline="behind",
        rounds=1 if quick else 3,
    )


@contextlib.contextmanager
def _charts(folder: Path, steps: int, seconds: float) -> Iterator[Measure]:
    with in_browser(folder) as browser, _busy_core():
        page = browser.lab.page
        made = RunMaker(browser.server.runs, RANKS, label="charts", began=time.time())
        for rank in range(RANKS):
            log(made, rank, range(steps))
        browser.lab.command("jupyter-dist:open-run", id=made.folder.id)
        view = browser.lab.tab(made.folder.id)
        view.metrics.locator(f"[aria-label*='at step {steps - 1} ']").first.wait_for()
        received = _received(browser)
        done = steps

        def measure() -> dict[str, float]:
            nonlocal done
            shown = page.evaluate(_WATCH_STEPS)
            logged: dict[int, float] = {}
            first, before, began = done, sum(received), time.perf_counter()
            while (passed := time.perf_counter() - began) < seconds + _SETTLE_S:
                due = range(done, first + int(passed * STEPS_PER_S))
                if due:
                    for rank in range(RANKS):
                        log(made, rank, due)
                    logged |= dict.fromkeys(due, time.time())
                    done = due.stop
                page.wait_for_timeout(20)
            took = time.perf_counter() - began
            paints: list[tuple[float, int]] = page.evaluate("() => jpdPaints")
            last = max(logged.values()) - _SETTLE_S
            behind = [_painted(paints, step) - when for step, when in logged.items() if when < last]
            return {
                "behind": 1000 * statistics.median(behind),
                "most": 1000 * max(behind),
                "bytes": (sum(received) - before) / took / 1e3,
                "shown": shown,
            }

        with measuring(measure) as measured:
            yield measured


def _painted(paints: list[tuple[float, int]], step: int) -> float:
    """When the charts had reached a step."""
    for when, reached in paints:
        if reached >= step:
            return when
    raise Failed(f"step {step} was never drawn")


def _received(browser: Browser) -> list[int]:
    """Bytes that the page receives from now on, as they come over the connection."""
    found: list[int] = []

    def message(event: dict[str, Any]) -> None:
        found.append(len(event["response"]["payloadData"]))

    browser.counters.on("Network.dataReceived", lambda event: found.append(event["encodedDataLength"]))
    browser.counters.on("Network.webSocketFrameReceived", message)
    browser.counters.send("Network.enable")
    return found


@contextlib.contextmanager
def _busy_core() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            yield
        finally:
            busy.kill()

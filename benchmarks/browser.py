"""What the view and the sidebar cost in the browser: a flood of lines, live curves, latency, many runs."""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Error

from jupyter_dist import folder as folders
from jupyter_dist.record import reader

from ._lab import LOAD, Browser, RunMaker, in_browser
from ._processes import Failed
from ._race import Benchmark, Column, Contender, Measure

__all__ = ["curves", "flood", "latency", "measuring", "ours", "runs"]

_PACKAGES = ["jupyterlab"]
_MB = 1e6

# Times of frames, as the page sees them, and of tasks longer than 50 ms.
_WATCH_FRAMES = """() => {
  const seen = { frame: 0, task: 0, stop: false };
  let last = performance.now();
  const tick = now => {
    seen.frame = Math.max(seen.frame, now - last);
    last = now;
    if (!seen.stop) requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
  new PerformanceObserver(list => list.getEntries().forEach(entry => {
    seen.task = Math.max(seen.task, entry.duration);
  })).observe({ type: 'longtask' });
  window.jpdFrames = seen;
}"""
_FRAMES = "() => { jpdFrames.stop = true; return [jpdFrames.frame, jpdFrames.task]; }"

# After every frame: when it was on the screen, and the number of the last line in it.
_WATCH_LINES = """() => {
  const paints = [];
  const tick = () => {
    const painted = new MessageChannel();
    // After the frame: before it, what is drawn in this frame is not there yet.
    painted.port1.onmessage = () => {
      const numbers = [...document.querySelectorAll('.jpd-run')].at(-1).querySelectorAll('.jpd-number');
      const last = numbers.length ? Number(numbers[numbers.length - 1].textContent) : 0;
      if (last > (paints.at(-1)?.[1] ?? 0)) paints.push([Date.now() / 1000, last]);
    };
    painted.port2.postMessage(0);
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
  window.jpdPaints = paints;
}"""

# Playwright's own waiting looks at the page again and again, and would be measured with it.
_ENDED = """total => new Promise(done => {
  const view = [...document.querySelectorAll('.jpd-run')].at(-1);
  const check = () => {
    if (jpdPaints.at(-1)?.[1] >= total && view.dataset.state === 'succeeded') done();
    else setTimeout(check, 200);
  };
  check();
})"""

# uPlot draws a whole chart in one go that begins with clearing it.
_WATCH_REDRAWS = """() => {
  const took = [];
  let open = false;
  const { clearRect } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.clearRect = function (...args) {
    if (!open) {
      open = true;
      const began = performance.now();
      queueMicrotask(() => { open = false; took.push(performance.now() - began); });
    }
    return clearRect.apply(this, args);
  };
  window.jpdRedraws = took;
}"""

_SHOW_RUNS = """async () => {
  const began = performance.now();
  await window.jupyterapp.commands.execute('jupyter-dist:show');
  const rows = () => document.querySelectorAll('#jupyter-dist-sidebar [role=listitem][aria-setsize]');
  while (!rows().length) await new Promise(requestAnimationFrame);
  const painted = new MessageChannel();
  await new Promise(done => { painted.port1.onmessage = done; painted.port2.postMessage(0); });
  return [performance.now() - began, Number(rows()[0].getAttribute('aria-setsize'))];
}"""


def flood(quick: bool = False) -> Benchmark:
    """A million lines from 8 ranks into an open view."""
    return ours(
        "browser-flood",
        "A million lines in an open view",
        lambda folder: _flood(folder, 1_000 if quick else 125_000),
        [
            Column("printed", "printed in", "{:.1f} s".format),
            Column("behind", "shown after the last", "{:.2f} s".format),
            Column("heap", "heap on top", "{:.1f} MB".format),
            Column("task", "longest task", "{:.0f} ms".format),
            Column("frame", "longest frame", "{:.0f} ms".format),
        ],
        headline="behind",
        rounds=1 if quick else 3,
    )


def curves(quick: bool = False) -> Benchmark:
    """64 ranks with 10,000 points each, to which five times a second new ones come."""
    return ours(
        "browser-curves",
        "64 live curves of 10,000 points",
        lambda folder: _curves(folder, 200 if quick else 10_000, 2.0 if quick else 10.0),
        [
            Column("redraw", "a redraw", "{:.1f} ms".format),
            Column("slowest", "slowest", "{:.0f} ms".format),
            Column("work", "all work for one", "{:.0f} ms".format),
            Column("rate", "redraws/s", "{:.1f}".format),
            Column("share", "page's thread busy", "{:.0%}".format),
        ],
        headline="redraw",
        rounds=1 if quick else 3,
    )


def latency(quick: bool = False) -> Benchmark:
    """From `print` in a rank to the pixels of the line, at 1,000 lines a second from 4 ranks."""
    return ours(
        "browser-latency",
        "From print to pixels",
        lambda folder: _latency(folder, 500 if quick else 4_000),
        [
            Column("median", "median", "{:.0f} ms".format),
            Column("p99", "99 of 100", "{:.0f} ms".format),
            Column("worst", "worst", "{:.0f} ms".format),
            Column("first", "a run's first line", "{:.0f} ms".format),
        ],
        headline="median",
        rounds=1 if quick else 3,
    )


def runs(quick: bool = False) -> Benchmark:
    """500 runs in the list of the sidebar."""
    return ours(
        "browser-runs",
        "500 runs in the sidebar",
        lambda folder: _runs(folder, 50 if quick else 500),
        [Column("first", "to the first paint", "{:.0f} ms".format)],
        headline="first",
        rounds=1 if quick else 5,
        warm_up=0 if quick else 1,
    )


def ours(
    name: str,
    title: str,
    opened: Callable[[Path], contextlib.AbstractContextManager[Measure]],
    columns: list[Column],
    *,
    headline: str,
    rounds: int,
    warm_up: int = 0,
) -> Benchmark:
    """A benchmark that has no peers."""
    contender = Contender("jupyter-dist", opened, ours=True)
    return Benchmark(name, title, [contender], columns, headline, rounds, _PACKAGES, warm_up=warm_up)


@contextlib.contextmanager
def measuring(measure: Callable[[], dict[str, float]]) -> Iterator[Measure]:
    """A measurement in which what the browser says is a failure."""

    def checked() -> dict[str, float]:
        try:
            return measure()
        except (Error, AssertionError) as error:
            raise Failed(str(error).splitlines()[0]) from error

    yield checked


# Equal lines of several ranks would be shown as one. The browser is elsewhere as a rule: here the ranks
# leave a core to it, to the server and to the kernel.
_FLOOD = """%%distribute -np 8
import os, time
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[1:] or [0])
rank = os.environ["RANK"]
for i in range({lines}):
    print("rank", rank, "line", i, "the quick brown fox jumps over the lazy dog")
print("@@", time.time())
"""


@contextlib.contextmanager
def _flood(folder: Path, lines: int) -> Iterator[Measure]:
    with in_browser(folder) as browser:
        notebook = browser.lab.notebook(LOAD)
        # So that what belongs to any view has been loaded.
        notebook.distribute(_FLOOD.format(lines=10)).to_be("succeeded")

        def measure() -> dict[str, float]:
            before = browser.heap_bytes()
            view = notebook.distribute(_FLOOD.format(lines=lines))
            notebook.select(-1, "start")
            browser.lab.page.evaluate(_WATCH_LINES)
            browser.lab.page.evaluate(_WATCH_FRAMES)
            total = 8 * (lines + 1)
            browser.lab.page.evaluate(_ENDED, total)
            shown = browser.lab.page.evaluate("total => jpdPaints.find(p => p[1] >= total)[0]", total)
            frame, task = browser.lab.page.evaluate(_FRAMES)
            heap = browser.heap_bytes() - before
            run = folders.find(view.run)
            ends = [
                float(reader.output(run, rank).rpartition(b"@@")[2].decode().strip()) for rank in range(8)
            ]
            began = reader.status(run).started or 0.0
            return {
                "printed": max(ends) - began,
                "behind": shown - max(ends),
                "heap": heap / _MB,
                "task": task,
                "frame": frame,
            }

        with measuring(measure) as measured:
            yield measured


@contextlib.contextmanager
def _curves(folder: Path, points: int, seconds: float) -> Iterator[Measure]:
    with in_browser(folder) as browser:
        made = RunMaker(browser.server.runs, 64, label="curves", began=time.time())
        for rank in range(64):
            _append(made, rank, range(points))
        browser.lab.page.evaluate(_WATCH_REDRAWS)
        browser.lab.command("jupyter-dist:open-run", id=made.folder.id)
        view = browser.lab.tab(made.folder.id)
        # The curves of all ranks, and not their mean alone.
        view.metrics.get_by_role("textbox").fill("0-63")
        step = points

        def measure() -> dict[str, float]:
            nonlocal step
            page = browser.lab.page
            page.evaluate("() => { jpdRedraws.length = 0; }")
            busy, began = browser.counter("TaskDuration"), time.perf_counter()
            while time.perf_counter() - began < seconds:
                for rank in range(64):
                    _append(made, rank, range(step, step + 1))
                step += 1
                page.wait_for_timeout(200)
            took = time.perf_counter() - began
            busy = browser.counter("TaskDuration") - busy
            redraws: list[float] = page.evaluate("() => jpdRedraws")
            if not redraws:
                raise Failed("no chart was redrawn")
            return {
                "redraw": statistics.median(redraws),
                "slowest": max(redraws),
                "work": 1000 * busy / len(redraws),
                "rate": len(redraws) / took,
                "share": busy / took,
            }

        with measuring(measure) as measured:
            yield measured


def _append(made: RunMaker, rank: int, steps: range) -> None:
    now = time.time()
    lines = [
        {"seq": step, "time": now, "kind": "metric", "step": step, "values": {"loss": _loss(rank, step)}}
        for step in steps
    ]
    with made.rank(rank).events.open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))


def _loss(rank: int, step: int) -> float:
    return 1 / (1 + step / 500) + rank / 100 + (step * 7919 % 101) / 2000


_STEADY = """%%distribute -np 4
import os, time
rank = os.environ["RANK"]
print("@@", time.time(), rank, "begins")
begin = time.time() + 1.5
for i in range({lines}):
    time.sleep(max(0, begin + i / 250 - time.time()))
    print("@@", time.time(), rank, i, "the quick brown fox jumps over the lazy dog")
time.sleep(0.5)
"""


@contextlib.contextmanager
def _latency(folder: Path, lines: int) -> Iterator[Measure]:
    with in_browser(folder) as browser:
        notebook = browser.lab.notebook(LOAD)
        notebook.distribute(_STEADY.format(lines=10)).to_be("succeeded")

        def measure() -> dict[str, float]:
            view = notebook.distribute(_STEADY.format(lines=lines // 4))
            # What nobody sees is not drawn.
            notebook.select(-1, "start")
            browser.lab.page.evaluate(_WATCH_LINES)
            browser.lab.page.evaluate(_ENDED, lines // 4 * 4 + 4)
            paints: list[tuple[float, int]] = browser.lab.page.evaluate("() => jpdPaints")
            first, *shown = _shown_after(_printed(browser, view.run), paints)
            del shown[:3]
            return {
                "first": 1000 * first,
                "median": 1000 * statistics.median(shown),
                "p99": 1000 * statistics.quantiles(shown, n=100)[98],
                "worst": 1000 * max(shown),
            }

        with measuring(measure) as measured:
            yield measured


def _printed(browser: Browser, run: str) -> list[float]:
    """When each line of the view of all ranks was printed, in the order of that view."""
    found: list[float] = []
    while True:
        url = browser.server.url(f"jupyter-dist/api/runs/{run}/log?start={len(found)}&count=1000")
        page: dict[str, Any] = browser.lab.page.evaluate("url => fetch(url).then(r => r.json())", url)
        if not page["lines"]:
            return found
        found += [float(line["text"].split()[1]) for line in page["lines"]]


def _shown_after(printed: list[float], paints: list[tuple[float, int]]) -> list[float]:
    """For each line the time from its print to the first frame that showed it or a later one."""
    shown: list[float] = []
    for when, last in paints:
        shown += [when - printed[n] for n in range(len(shown), min(last, len(printed)))]
    if len(shown) < len(printed):
        raise Failed(f"{len(printed) - len(shown)} of {len(printed)} lines were never shown")
    return shown


@contextlib.contextmanager
def _runs(folder: Path, count: int) -> Iterator[Measure]:
    with in_browser(folder) as browser:
        for number in range(count):
            made = RunMaker(browser.server.runs, 4, label=f"run {number}", began=time.time() - 86_400)
            made.print(0, "done\n")
            made.end()

        def measure() -> dict[str, float]:
            # A page of its own, in which nothing of the sidebar has been shown.
            browser.lab.open()
            took, listed = browser.lab.page.evaluate(_SHOW_RUNS)
            if listed != count:
                raise Failed(f"{listed} of {count} runs are listed")
            return {"first": took}

        with measuring(measure) as measured:
            yield measured

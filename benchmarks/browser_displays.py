"""From `display` on ranks to the pixels of what they show, and what many pictures cost a page."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator
from pathlib import Path

import psutil

from ._lab import LOAD, in_browser
from ._processes import Failed
from ._race import Benchmark, Column, Measure
from .browser import measuring, ours

__all__ = ["displays", "media"]

_MB = 1e6

# A picture of noise cannot be compressed: 600 x 582 pixels of three bytes are a megabyte. All ranks show
# theirs at the same moment, which they agree upon by the clock: so much the same that two of them may read
# the same time, and equal lines are one row of the log.
_PICTURES = """%%distribute -np 8
import io, os, time
import numpy as np
from PIL import Image
rank, file = int(os.environ["RANK"]), io.BytesIO()
noise = np.random.default_rng(rank).integers(0, 256, (600, {width}, 3), dtype="uint8")
Image.fromarray(noise).save(file, "png", compress_level=0)
class Picture:
    def _repr_png_(self): return file.getvalue()
    def __repr__(self): return f"@@ {{began}} of rank {{rank}}"
at = (time.time() + 2) // 2 * 2 + 2
time.sleep(at - time.time())
began = time.time()
display(Picture())
time.sleep(3)
"""

# When the frame was done that had all pictures; the last run of the page.
_SEEN = """count => new Promise(done => {
  const tick = () => {
    const view = [...document.querySelectorAll('.jpd-run')].at(-1);
    const all = view ? [...view.querySelectorAll('.jpd-exhibit > img')] : [];
    if (all.filter(one => one.complete && one.naturalWidth).length < count) {
      requestAnimationFrame(tick);
      return;
    }
    const painted = new MessageChannel();
    painted.port1.onmessage = () => done(Date.now() / 1000);
    painted.port2.postMessage(0);
  };
  requestAnimationFrame(tick);
})"""


def displays(quick: bool = False) -> Benchmark:
    """A picture of a megabyte from each of 8 ranks."""
    return ours(
        "browser-displays",
        "A megabyte from each of 8 ranks",
        lambda folder: _displays(folder, 60 if quick else 582),
        [
            Column("last", "from the last display", "{:.0f} ms".format),
            Column("first", "from the first display", "{:.0f} ms".format),
        ],
        headline="last",
        rounds=1 if quick else 5,
        warm_up=0 if quick else 1,
    )


@contextlib.contextmanager
def _displays(folder: Path, width: int) -> Iterator[Measure]:
    with in_browser(folder) as browser:
        notebook = browser.lab.notebook(LOAD)
        page = browser.lab.page

        def measure() -> dict[str, float]:
            view = notebook.distribute(_PICTURES.format(width=width))
            notebook.select(-1, "start")
            seen: float = page.evaluate(_SEEN, 8)
            view.to_be("succeeded")
            url = browser.server.url(f"jupyter-dist/api/runs/{view.run}/log?count=100")
            log = page.evaluate("url => fetch(url).then(r => r.json())", url)
            began = [float(line["text"].split()[1]) for line in log["lines"]]
            assert len(began) == 8, "not all ranks have shown a picture"
            return {"last": 1000 * (seen - max(began)), "first": 1000 * (seen - min(began))}

        with measuring(measure) as measured:
            yield measured


# Pictures of noise, which are all different: 4 times 64 x 64 pixels a step.
_LOGGED = """%%distribute -np 4
import numpy as np
import jupyter_dist as dist
noise = np.random.default_rng(dist.rank())
for step in range({steps}):
    dist.log(sample=noise.integers(0, 256, (64, 64, 3), dtype="uint8"), step=step)
"""

# Pictures of a series are painted onto the same canvases, step after step.
_WATCH_PAINTED = """() => {
  window.jpdPainted = 0;
  const { drawImage } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.drawImage = function (...args) {
    jpdPainted += this.canvas.closest('.jpd-media-one') ? 1 : 0;
    return drawImage.apply(this, args);
  };
}"""

# Moves the slider there, and says after how many milliseconds all ranks' pictures of that step are seen.
_GO_TO = """([index, ranks]) => new Promise(done => {
  const one = [...document.querySelectorAll('.jpd-run')].at(-1).querySelector('.jpd-media-one');
  const slider = one.querySelector('input[type=range]');
  const began = performance.now();
  jpdPainted = 0;
  slider.value = index;
  slider.dispatchEvent(new Event('input'));
  const tick = () => {
    if (jpdPainted < ranks) {
      requestAnimationFrame(tick);
      return;
    }
    const painted = new MessageChannel();
    painted.port1.onmessage = () => done(performance.now() - began);
    painted.port2.postMessage(0);
  };
  requestAnimationFrame(tick);
})"""


def media(quick: bool = False) -> Benchmark:
    """10,000 pictures that ranks have logged, looked at one step after the other."""
    return ours(
        "browser-media",
        "Through 10,000 logged pictures",
        lambda folder: _media(folder, 50 if quick else 2_500, 10 if quick else 400),
        [
            Column("step", "a step's four pictures", "{:.0f} ms".format),
            Column("slowest", "slowest", "{:.0f} ms".format),
            Column("heap", "heap on top", "{:.1f} MB".format),
            Column("nodes", "nodes on top", "{:.0f}".format),
            Column("process", "the page's process on top", "{:.0f} MB".format),
        ],
        headline="step",
        rounds=1 if quick else 3,
        warm_up=0 if quick else 1,
    )


@contextlib.contextmanager
def _media(folder: Path, steps: int, looks: int) -> Iterator[Measure]:
    with in_browser(folder) as browser:
        notebook = browser.lab.notebook(LOAD)
        notebook.distribute(_LOGGED.format(steps=steps)).to_be("succeeded")
        notebook.select(-1, "start")
        page = browser.lab.page
        page.locator(".jpd-media-one canvas").nth(3).wait_for()
        page.evaluate(_WATCH_PAINTED)
        places = [look * (steps - 1) // looks for look in range(looks)]

        def measure() -> dict[str, float]:
            page.evaluate(_GO_TO, [steps // 2, 4])
            heap, nodes, process = browser.heap_bytes(), browser.counter("Nodes"), _page_bytes()
            took = [page.evaluate(_GO_TO, [place, 4]) for place in places]
            return {
                "step": statistics.median(took),
                "slowest": max(took),
                "heap": (browser.heap_bytes() - heap) / _MB,
                "nodes": browser.counter("Nodes") - nodes,
                "process": (_page_bytes() - process) / _MB,
            }

        with measuring(measure) as measured:
            yield measured


def _page_bytes() -> int:
    """What the page's process has for itself in memory: the largest one of Chromium's that draw pages."""
    drawing = [
        process
        for process in psutil.Process().children(recursive=True)
        if "--type=renderer" in process.cmdline()
    ]
    if not drawing:
        raise Failed("no process of Chromium draws a page")
    return max(int(process.memory_full_info().uss) for process in drawing)

"""How long it takes from `display` on ranks to the pixels of what they show."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ._lab import LOAD, in_browser
from ._race import Benchmark, Column, Measure
from .browser import measuring, ours

__all__ = ["displays"]

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

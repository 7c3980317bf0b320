"""A cell with 50 names: how long until all it uses is captured and written down?"""

from __future__ import annotations

import contextlib
import io
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

from ._contenders import answer, ours, plain
from ._processes import Failed
from ._race import Benchmark, Column, Contender, Measure

__all__ = ["benchmark"]

_BEFORE = "60036b24"
"""The last commit before functions travelled between versions of Python."""
_LIMIT_S = 120.0


def benchmark(quick: bool = False) -> Benchmark:
    times = 3 if quick else 40
    return Benchmark(
        name="capture",
        title="A cell with 50 names",
        contenders=[
            Contender("jupyter-dist", lambda place: _ours(place, times), ours=True),
            Contender(
                "jupyter-dist, `--other-python`",
                lambda place: _ours(place, times, other_python=True),
                ours=True,
            ),
            Contender(f"jupyter-dist at {_BEFORE}", lambda place: _before(place, times)),
            Contender("`cloudpickle.dumps` of a dict", lambda place: _cloudpickle(place, times)),
        ],
        columns=[
            Column("total", "captured and written, ms", lambda s: f"{1e3 * s:.2f}"),
            Column("slowest", "slowest of a round, ms", lambda s: f"{1e3 * s:.2f}"),
            Column("write", "of that writing, ms", lambda s: f"{1e3 * s:.2f}"),
            Column("size", "written, kB", lambda size: f"{size / 1e3:,.0f}"),
        ],
        headline="total",
        rounds=1 if quick else 7,
        warm_up=0 if quick else 1,
        packages=["numpy", "torch", "cloudpickle"],
    )


# Fifty names as a notebook has them: 8 modules, 22 functions, 8 classes, 8 arrays, a model with its optimizer
# and two tables. What the cell below uses is all of them.
_SETUP = """
import collections, dataclasses, functools, json, math, os, pathlib
import numpy as np, torch
from torch import nn

paths = {"data": pathlib.Path("data"), "out": pathlib.Path("out")}
options = {"lr": 0.1, "layers": [64, 64], "names": ["a", "b"]}
""" + "".join(f"array_{i} = np.random.rand(100, 100)\n" for i in range(8))
_SETUP += "".join(
    f"""
def plain_{i}(x):
    return math.sqrt(abs(x)) + options["lr"] * {i}

def chained_{i}(x, scale=array_{i}):
    return plain_{i}(x) * float(scale.sum()) + len(json.dumps(options))

def make_{i}(k):
    def closed(x):
        return chained_{i}(x) + k
    return closed

closed_{i} = make_{i}({i})

@functools.lru_cache(maxsize=None)
def cached_{i}(x):
    return closed_{i}(x) + collections.Counter("abc")["a"]
"""
    for i in range(4)
)
_SETUP += "".join(
    f"""
@dataclasses.dataclass
class Row_{i}:
    x: int = {i}
    more: list = dataclasses.field(default_factory=list)
    def get(self):
        return plain_{i}(self.x)

class Child_{i}(Row_{i}):
    def get(self):
        return super().get() + os.getpid()
"""
    for i in range(4)
)
_SETUP += """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6)))
    def forward(self, x):
        return self.layers(x).tanh()

def loss_of(model, x):
    return model(x).pow(2).mean()

def train():
    optimizer.zero_grad()
    loss_of(model, torch.ones(1, 64)).backward()
    optimizer.step()

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
_NAMES = "collections dataclasses functools json math np os torch".split()
_NAMES += "paths options model optimizer train loss_of".split()
_NAMES += [f"array_{i}" for i in range(8)]
_NAMES += [f"{kind}_{i}" for i in range(4) for kind in "plain chained make closed cached Row Child".split()]
assert len(_NAMES) == 50
_CELL = f"train()\nused = [{', '.join(_NAMES)}]\nlen(used)\n"

_MEASURE = """
import gc as _gc, pathlib as _pathlib, shutil as _shutil, tempfile as _tempfile, time as _time
def _measure(capture, times):
    totals, writes = [], []
    _gc.collect()
    for _ in range(times):
        # As in a run's folder: nothing is there that would be replaced.
        place = _pathlib.Path(_tempfile.mkdtemp(dir="."))
        begin = _time.perf_counter()
        write = capture()
        middle = _time.perf_counter()
        write(place / "payload.pkl")
        end = _time.perf_counter()
        totals.append(end - begin)
        writes.append(end - middle)
        size = sum(path.stat().st_size for path in place.iterdir())
        _shutil.rmtree(place)
    order = sorted(totals)
    return {
        "total": order[len(order) // 2], "slowest": order[-1],
        "write": sorted(writes)[len(writes) // 2], "size": size,
    }
"""
_OURS = """
from jupyter_dist.capture.payload_builder import capture_cell as _capture_cell
from jupyter_dist.start.origin import origin_in as _origin_in
def _capture():
    origin = _origin_in(get_ipython())
    payload = _capture_cell(
        _CELL, get_ipython().user_ns, flags=origin.flags, argv=origin.argv, **origin.for_capture(), **_MORE
    )
    assert len(payload.header["names"]) == 50, payload.header["names"]
    return payload.write
"""
_CLOUDPICKLE = """
import cloudpickle as _cloudpickle
def _capture():
    space = get_ipython().user_ns
    data = _cloudpickle.dumps({name: space[name] for name in _NAMES}, protocol=5)
    return lambda path: path.write_bytes(data)
"""


@contextlib.contextmanager
def _ours(
    folder: Path, times: int, package: Path | None = None, *, other_python: bool = False
) -> Iterator[Measure]:
    more = {"other_python": True, "here": False} if other_python else {}
    with ours(folder, _SETUP, package=package) as found:
        found.run(f"{_MEASURE}{_OURS}_CELL = {_CELL!r}\n_MORE = {more!r}", timeout_s=_LIMIT_S)
        yield lambda: answer(found, f"_measure(_capture, {times})", timeout_s=_LIMIT_S)


@contextlib.contextmanager
def _before(folder: Path, times: int) -> Iterator[Measure]:
    """Ours as it was, from the repository's history, in a kernel of its own."""
    package = folder / "before"
    root = Path(__file__).parents[1]
    archive = ["git", "-C", str(root), "archive", "--format=tar", _BEFORE, "jupyter_dist"]
    done = subprocess.run(archive, capture_output=True, check=False)
    if done.returncode:
        raise Failed(f"git has no {_BEFORE}: {done.stderr.decode(errors='replace').strip()[:200]}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as files:
        files.extractall(package, filter="data")
    with _ours(folder, times, package) as measure:
        yield measure


@contextlib.contextmanager
def _cloudpickle(folder: Path, times: int) -> Iterator[Measure]:
    with plain(folder, _SETUP) as found:
        found.run(f"{_MEASURE}{_CLOUDPICKLE}_NAMES = {_NAMES!r}", timeout_s=_LIMIT_S)
        yield lambda: answer(found, f"_measure(_capture, {times})", timeout_s=_LIMIT_S)

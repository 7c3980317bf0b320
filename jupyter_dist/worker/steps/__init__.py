"""Where the time of this rank's training steps goes, without a line of user code.

The modules beside this one time the data loaders and the collectives. The rank adds these times up. It writes
one event of the kind `steps` about each second, never one per step. The fields are those of one window:

    by          what ended a step: see `Source`
    steps       the number of steps
    wall_s      the seconds from the end of the step before the window to the end of its last step
    data_s      the seconds of `wall_s` in which the rank waited for data, or null if no loader was seen
    wait_s      the seconds in which the rank waited in collectives, or null if none was seen
    samples     the number of samples, or null if it is unknown
    fast_s, slow_s  the seconds of a fast and of a slow step: nine of ten steps are slower, or faster
    gc, gc_s    the number of garbage collections, and their seconds
    gpus        whether the rank has GPUs, so that its Python code runs ahead of its computation

The interval before the first step is left out, because it contains imports and compilation.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import gc
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..output import events
from .trace import Tracer

__all__ = [
    "Enough",
    "Part",
    "Source",
    "add_meter",
    "begin",
    "end_trace",
    "load",
    "mark",
    "marks",
    "renew",
    "timed",
    "trains_here",
    "write",
]

_now = time.perf_counter
_SHORTEST_S = 1.0
_MOST_TIMES = 1000
"""The steps of a window whose times are kept. A thousand say how much they vary."""
_WINDOWS_OF_AGE = 60
"""A window is at least this fraction of the time since the first step, so a long run does not write more."""


class Enough(SystemExit):
    """The rank has recorded as many steps as the user wants: see `begin`.

    `finally` blocks run. Code that handles errors does not see it, and a thread ends without a traceback.
    """


class Source(enum.IntEnum):
    """What ends a step. The rank counts the steps of the greatest source that it has seen."""

    LOG = 1
    """A call of `dist.log`."""
    PROGRESS = 2
    """An item of `dist.progress`."""
    BATCH = 3
    """A training batch of Keras."""
    OPTIMIZER = 4
    """A step of a torch optimizer."""


class Part(enum.Enum):
    """What a step can wait for."""

    DATA = "data"
    COLLECTIVES = "wait"


class _Sums:
    """Sums since the last event."""

    __slots__ = ("data_s", "gc", "gc_s", "loads", "samples", "wait_s", "waits")

    def __init__(self) -> None:
        self.data_s = self.wait_s = self.gc_s = 0.0
        self.loads = self.waits = self.gc = 0
        self.samples: int | None = 0

    def copy(self) -> tuple[float, float, float, int, int, int, int | None]:
        return self.data_s, self.wait_s, self.gc_s, self.loads, self.waits, self.gc, self.samples


class _Rank:
    """State of the recording. The training thread and the garbage collector change it."""

    def __init__(self) -> None:
        self.on = False
        self.thread = 0
        """The thread that trains. Waits of other threads do not delay a step."""
        self.inside = False
        """Whether a part is being timed. A part within a part is not counted twice."""
        self.source = 0
        self.first = self.since = self.last = self.due = 0.0
        """Times: of the first step, of the window's begin, of the last step, of the next event."""
        self.steps = self.marks = 0
        self.most = self.all = 0
        """The steps after which the cell ends, or 0; and the steps of all windows."""
        self.times: list[float] = []
        """The seconds of each step in the window."""
        self.sums = _Sums()
        self.counted = self.sums.copy()
        """The sums at the last step. What follows belongs to no step until the next one ends."""
        self.gc_began = 0.0
        self.loader = 0
        """The loader of the last batch, and the samples that it has loaded since the last step."""
        self.pending: int | None = 0
        self.meters: list[Callable[[], float | None]] = []
        self.tracer: Tracer | None = None
        self.look = math.inf
        """The time from which on the tracer is called at the end of a step."""


_rank = _Rank()
_lock = threading.Lock()


def begin(most: int | None = None) -> None:
    """Begin to record in this rank. Call it in the thread that runs the cell. Repeatable.

    `most`: the number of recorded steps after which `mark` raises Enough.
    """
    writer = events.writer()
    if writer is None or _rank.on:
        return
    _rank.on, _rank.thread, _rank.most = True, threading.get_ident(), most or 0
    run = os.environ.get("JUPYTER_DIST_RUN")
    if run is not None:
        _rank.tracer, _rank.look = Tracer(run, os.path.dirname(writer.path)), 0.0
    gc.callbacks.append(_on_garbage)
    _end_in_forks()


@functools.cache
def _end_in_forks() -> None:
    os.register_at_fork(after_in_child=_end)


def renew() -> None:
    """Forget the steps of a session's last cell. `begin` then begins anew."""
    meters = _rank.meters
    _end()
    _rank.__init__()  # type: ignore[misc]  # other code has references to the object
    _rank.meters = meters


def _end() -> None:
    """Stop recording: a process that the rank has forked does not write."""
    _rank.on = False
    if _on_garbage in gc.callbacks:
        gc.callbacks.remove(_on_garbage)


def mark(source: Source, steps: int = 1, samples: int | None = None) -> None:
    """Report the end of a step, or of several. Raises Enough if it is the last one.

    `samples`: the number of samples in them. By default those that `load` has reported.
    """
    rank = _rank
    if source >= Source.PROGRESS:
        rank.marks += 1
    if not rank.on or source < rank.source:
        return
    now = _now()
    if source != rank.source:
        rank.source = source
        rank.first, rank.pending, rank.all = now, 0, 0
        _open(now)
        return
    if len(rank.times) < _MOST_TIMES:
        rank.times.append((now - rank.last) / steps)
    rank.last = now
    rank.steps += steps
    rank.all += steps
    if samples is None:
        samples, rank.pending = rank.pending, 0
    sums = rank.sums
    sums.samples = None if samples is None or sums.samples is None else sums.samples + samples
    rank.counted = sums.copy()
    if now >= rank.due:
        write()
    if now >= rank.look:
        _trace(now)
    if rank.most and rank.all >= rank.most:
        write()
        raise Enough


def _trace(now: float) -> None:
    """Call the tracer. Its time belongs to no step."""
    rank = _rank
    assert rank.tracer is not None
    pause_s = rank.tracer.at_step_end()
    took = _now() - now
    rank.look = now + took + pause_s
    rank.since += took
    rank.last += took


def end_trace() -> None:
    """Save what a trace has until now. Call it at the end of the cell."""
    if _rank.on and _rank.tracer is not None:
        _rank.tracer.end()


def marks() -> int:
    """Return how often `mark` was called for more than a line of the log."""
    return _rank.marks


def trains_here() -> None:
    """Report that the calling thread trains. By default it is the thread that runs the cell."""
    _rank.thread = threading.get_ident()


def load(loader: int, batch: Any) -> None:
    """Report a training batch. `loader`: the id of its loader. The batch may have any form.

    The batches of a step are those of the last loader before its end. Another one was used for an evaluation.
    """
    rank = _rank
    if threading.get_ident() != rank.thread:
        return
    if loader != rank.loader:
        rank.loader, rank.pending = loader, 0
    if rank.pending is None:
        return
    try:
        for _ in range(2):
            if isinstance(batch, (tuple, list)) and batch:
                batch = batch[0]
            elif isinstance(batch, Mapping) and batch:
                batch = next(iter(batch.values()))
            else:
                break
        rank.pending += int(batch.shape[0])
    except Exception:  # such as a nested tensor, whose shape raises
        rank.pending = None


def add_meter(read: Callable[[], float | None]) -> None:
    """Add a function that returns the seconds in collectives since its last call, or None if there were none.

    It is called once per event. Repeatable.
    """
    if read not in _rank.meters:
        _rank.meters.append(read)


def timed(
    original: Callable[..., Any], part: Part, compiling: Callable[[], bool] | None = None
) -> Callable[..., Any]:
    """Return the same function, whose time counts as `part`.

    `compiling`: whether a compiler reads the code. It then sees only the original function.
    """
    rank = _rank
    data = part is Part.DATA

    def call(*args: Any, **kwargs: Any) -> Any:
        if compiling is not None and compiling():
            return original(*args, **kwargs)
        if not rank.on or rank.inside or threading.get_ident() != rank.thread:
            return original(*args, **kwargs)
        rank.inside = True
        began = _now()
        try:
            return original(*args, **kwargs)
        finally:
            took = _now() - began
            rank.inside = False
            sums = rank.sums
            if data:
                sums.data_s += took
                sums.loads += 1
            else:
                sums.wait_s += took
                sums.waits += 1

    return call


def write() -> None:
    """Write the steps since the last event. Does nothing if there are none."""
    rank = _rank
    writer = events.writer()
    if not rank.on or writer is None:  # in a fork, a thread that is gone may hold the lock
        return
    with _lock:
        if not rank.steps:
            return
        data_s, wait_s, gc_s, loads, waits, collections, samples = rank.counted
        more_s = _read_meters()
        if more_s is not None:
            wait_s, waits = wait_s + more_s, waits + 1
        wall_s, steps, times = rank.last - rank.since, rank.steps, sorted(rank.times)
        source = Source(rank.source)
        _open(rank.last)
    writer.event(
        events.STEPS,
        {
            "by": source.name.lower(),
            "steps": steps,
            "wall_s": round(wall_s, 6),
            "data_s": round(data_s, 6) if loads else None,
            "wait_s": round(wait_s, 6) if waits else None,
            "samples": samples or None,
            "fast_s": round(times[len(times) // 10], 6),
            "slow_s": round(times[-1 - len(times) // 10], 6),
            "gc": collections,
            "gc_s": round(gc_s, 6),
            "gpus": _uses_gpus(),
        },
    )


def _uses_gpus() -> bool:
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        return True
    return os.environ.get("JUPYTER_DIST_GPUS", "0") not in ("", "0")


def _open(now: float) -> None:
    """Open the next window."""
    rank = _rank
    rank.since = rank.last = now
    rank.due = now + max(_SHORTEST_S, (now - rank.first) / _WINDOWS_OF_AGE)
    rank.steps = 0
    rank.times.clear()
    rank.sums = _Sums()
    rank.counted = rank.sums.copy()
    if now == rank.first:
        _read_meters()  # what they have counted belongs to no step


def _read_meters() -> float | None:
    """Return the seconds that the meters have counted since the last call; None if there are none."""
    found = []
    for read in _rank.meters:
        with contextlib.suppress(Exception):  # training continues without these times
            found.append(read())
    known = [seconds for seconds in found if seconds is not None]
    return sum(known) if known else None


def _on_garbage(phase: str, _: dict[str, int]) -> None:
    rank = _rank
    if phase == "start":
        rank.gc_began = _now()
    else:
        rank.sums.gc += 1
        rank.sums.gc_s += _now() - rank.gc_began

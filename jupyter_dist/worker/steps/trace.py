"""A trace of some training steps by torch's profiler, if somebody asks for it.

The request is a file in the run's folder (layout.TRACE_REQUEST). The training thread looks for the file at
the end of a step, twice a second. Nothing else happens in a rank that nobody asks. The request is JSON:

    id          a text that the answers repeat
    at, until   times by the clock of the driver. All ranks begin at the first end of a step after `at`, so
                that they trace the same steps. After `until`, nobody waits for an answer.
    steps       the number of steps, or null
    seconds     the length of the trace if `steps` is null

The answers are events of the kind `trace`:

    id, state   begun, done, or failed
    why         why it has failed
    ends        ends of the steps in nanoseconds by the clock of this host. The first is the trace's begin
    offset_s    what to add to get the driver's clock
    bytes       the size of the file (layout.TRACE), which is complete when it has this size
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import sys
import threading
import time
from typing import Any

from .. import foreign_names, layout
from ..output import events

__all__ = ["Tracer"]

_LOOK_S = 0.5
_SAVING_TAKES_S = 60.0
_QUIET = "KINETO_LOG_LEVEL"
"""The variable without which torch's profiler prints two lines for each trace."""
_MOST_ENDS = 10_000


class Tracer:
    """Traces of one rank. The training thread calls it, and nothing here raises."""

    def __init__(self, run: str, rank_folder: str) -> None:
        self._request = os.path.join(run, layout.REQUESTS, layout.TRACE_REQUEST)
        self._folder = rank_folder
        self._seen = 0
        """The modification time of the last request."""
        self._wanted: dict[str, Any] | None = None
        self._profile: Any = None
        self._thread = 0
        """The thread that began the trace, which alone can end it."""
        self._ends: list[int] = []
        self._saving: threading.Thread | None = None

    def at_step_end(self) -> float:
        """Look for a request, or continue a trace. Returns the seconds in which no further call is needed."""
        try:
            if self._profile is not None:
                self._continue()
            else:
                self._look()
                if self._wanted is None:
                    return _LOOK_S
                now = events.now()
                if now > float(self._wanted["until"]):  # this step was long
                    self._wanted = None
                    return _LOOK_S
                left_s = float(self._wanted["at"]) - now
                if left_s > 0:
                    return min(_LOOK_S, left_s)
                self._begin(self._wanted)
            return 0.0
        except Exception as error:  # the training continues without a trace
            self._fail(f"{type(error).__name__}: {error}")
            return _LOOK_S

    def end(self) -> None:
        """End a trace at the end of the cell, and wait until it is saved."""
        try:
            if self._profile is not None:
                self._finish()
        except Exception as error:
            self._fail(f"{type(error).__name__}: {error}")
        self._fail("its cell has ended")
        if self._saving is not None:
            self._saving.join(_SAVING_TAKES_S)

    def _look(self) -> None:
        try:
            written = os.stat(self._request).st_mtime_ns
        except OSError:
            return
        if written == self._seen or (self._saving is not None and self._saving.is_alive()):
            return
        self._seen = written
        with open(self._request, "rb") as file:
            self._wanted = json.loads(file.read())

    def _begin(self, wanted: dict[str, Any]) -> None:
        torch = sys.modules.get("torch")
        if torch is None:
            self._fail("it has not imported torch")
            return
        if not foreign_names.lost("worker/steps/trace") and torch.autograd._profiler_enabled():
            self._fail("its code runs a profiler of its own")
            return
        quiet = _QUIET not in os.environ
        if quiet:
            os.environ[_QUIET] = "99"
        try:
            from torch.autograd import profiler

            device = {"use_device": "cuda"} if torch.cuda.is_initialized() else {}
            profile = profiler.profile(use_kineto=True, record_shapes=True, **device)
            profile.__enter__()
        finally:
            if quiet:
                os.environ.pop(_QUIET, None)
        self._profile, self._thread, self._ends = profile, threading.get_ident(), [time.time_ns()]
        _tell(wanted["id"], "begun")

    def _continue(self) -> None:
        if threading.get_ident() != self._thread:
            return
        self._ends.append(time.time_ns())
        assert self._wanted is not None
        steps, taken = self._wanted["steps"], len(self._ends) - 1
        if steps is None:
            done = self._ends[-1] - self._ends[0] >= 1e9 * float(self._wanted["seconds"])
        else:
            done = taken >= int(steps)
        if done or taken >= _MOST_ENDS:
            self._finish()

    def _finish(self) -> None:
        profile, self._profile = self._profile, None
        profile.__exit__(None, None, None)
        wanted, self._wanted = self._wanted, None
        assert wanted is not None
        ends = list(self._ends)
        # The training continues meanwhile.
        self._saving = threading.Thread(
            target=self._save, args=(profile, str(wanted["id"]), ends), name="jupyter-dist-trace", daemon=True
        )
        self._saving.start()

    def _save(self, profile: Any, id: str, ends: list[int]) -> None:
        whole = os.path.join(self._folder, layout.TRACE)
        packed = os.path.join(self._folder, layout.hidden(layout.TRACE))
        raw = packed.removesuffix(".gz")
        try:
            profile.export_chrome_trace(raw)
            with open(raw, "rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
                shutil.copyfileobj(source, target)
            os.chmod(packed, 0o600)
            os.replace(packed, whole)
        except Exception as error:
            _tell(id, "failed", why=f"{type(error).__name__}: {error}")
        else:
            offset_s = round(events.now() - time.time(), 6)
            _tell(id, "done", ends=ends, offset_s=offset_s, bytes=os.path.getsize(whole))
        finally:
            for path in (raw, packed):
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def _fail(self, why: str) -> None:
        wanted, self._wanted, self._profile = self._wanted, None, None
        if isinstance(wanted, dict):  # otherwise somebody else has written the request
            _tell(wanted.get("id"), "failed", why=why)


def _tell(id: object, state: str, **more: Any) -> None:
    writer = events.writer()
    if writer is not None:
        writer.event(events.TRACE, {"id": str(id), "state": state, **more})

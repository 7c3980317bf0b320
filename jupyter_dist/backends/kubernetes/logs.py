"""The log of one rank, read from its pods by way of the API server: of one pod, or of several in turn.

A pod's container may be started again in its place, and a pod replaced by another one: what they print is one
log, in the order in which they came. A reading that is cut off goes on at its place (log_position.py).
"""

from __future__ import annotations

import dataclasses
import enum
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import DistError
from ..attached_job import AttachedLog
from .api_server import Cluster, Refusal
from .log_position import LogPlace, LogReading

__all__ = ["RankLog", "Rest", "told_of"]

_QUIET_S = 20.0
"""A connection may be dead without a word, or the API server hang: after such a silence it is made anew."""
_AGAIN_S, _NOTHING_S = 0.3, 0.6
_REFUSED_AGAIN_S, _REFUSED_S = 1.0, 6.0
"""An API server that has just started refuses what it will allow: one that means it says so for so long."""
_SHOWN_S = 2.0
"""A shorter trouble is not worth a word."""


class Rest(enum.Enum):
    """What of a log is not here yet."""

    NONE = "none: all is here that its pods have printed, and none of them goes on"
    COMES = "it is being read"
    GOES_ON = "its pod goes on"
    REFUSED = "we may not read it"
    HINDERED = "it cannot be read at the moment"


@dataclass(frozen=True)
class _Source:
    """What one start of a container prints."""

    pod: str
    uid: str
    container: str
    restarts: int
    before: bool
    """Whether the container has been started again since."""
    ended: bool


def _sources(pods: Iterable[Mapping[str, Any]], container: str | None) -> list[_Source]:
    """In the order in which they came, as far as the nodes still have them."""
    found = []
    for pod in pods:
        told = told_of(pod, container)
        state = (told or {}).get("state") or {}
        if told is None or not ("running" in state or "terminated" in state or told.get("lastState")):
            continue
        of = (pod["metadata"]["name"], pod["metadata"]["uid"], str(told["name"]))
        restarts = int(told["restartCount"])
        if restarts:
            found.append(_Source(*of, restarts - 1, before=True, ended=True))
        found.append(_Source(*of, restarts, before=False, ended="running" not in state))
    return found


def told_of(pod: Mapping[str, Any], container: str | None) -> Mapping[str, Any] | None:
    """The status of the container whose log is the rank's: the one that the kind's operator asks for, the one
    that kubectl would take, or the first one. None before there is any."""
    names = [str(one["name"]) for one in pod["spec"]["containers"]]
    default = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    name = next((one for one in (container, default) if one in names), names[0])
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return next((one for one in statuses if one["name"] == name), None)


class RankLog:
    """A thread that nobody waits for. `pods`: those of the rank, in the order in which they came; `known`:
    what `position` was, where another process has read a part."""

    def __init__(
        self,
        cluster: Cluster,
        path: Path,
        pods: Callable[[], Sequence[Mapping[str, Any]]],
        container: str | None,
        known: Mapping[str, Any] | None,
    ) -> None:
        known = known or {}
        self._cluster, self._pods, self._container = cluster, pods, container
        self._file = AttachedLog(path, int(known.get("size", 0)))
        self._place = LogPlace(*known.get("place", ()))
        self._of: tuple[str, int] | None = tuple(known["of"]) if known.get("of") else None
        self._over: dict[str, int] = dict(known.get("over", {}))
        """The newest start of each pod's container of which all was read."""
        self._lock = threading.Lock()
        self._why: str | None = None
        self._since = 0.0
        self._closed = threading.Event()
        self._refused = False
        """Whether the last answer was that we may not read it."""
        threading.Thread(target=self._run, name="read a pod's log", daemon=True).start()

    @property
    def position(self) -> dict[str, Any]:
        """Up to where it was read, as JSON."""
        with self._lock:
            place = dataclasses.astuple(self._place)
            return {"size": self._file.size, "place": place, "of": self._of, "over": dict(self._over)}

    @property
    def why(self) -> str | None:
        """Why it could not be read at last, where not all of it was."""
        return None if self.rest is Rest.NONE else self._why

    @property
    def trouble(self) -> str | None:
        """Why nothing is read at the moment."""
        why = self._why
        return why if why is not None and time.monotonic() - self._since > _SHOWN_S else None

    @property
    def rest(self) -> Rest:
        """What there is to be read yet."""
        source = self._next()
        if source is None:
            return Rest.NONE
        if self._why is not None:
            refused = self._refused and time.monotonic() - self._since > _REFUSED_S
            return Rest.REFUSED if refused else Rest.HINDERED
        return Rest.COMES if source.ended else Rest.GOES_ON

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            source = self._next()
            self._closed.wait(_NOTHING_S if source is None else self._turn(source))

    def _turn(self, source: _Source) -> float:
        """Read on; returns after which time to try again."""
        try:
            self._read(source)
            self._why, self._refused = None, False
        except Refusal as refusal:
            if refusal.status == 404 or (refusal.status == 400 and source.ended):
                self._finish(source)  # the node has it no more
            elif refusal.status == 401:
                self._cluster.renew()
                self._hindered(f"the API server does not know us any more ({refusal.message}): log in again")
            elif refusal.status != 400:  # 400: it is not there yet
                why = f"we may not read its log ({refusal.message}): that needs get on pods/log"
                self._hindered(why, refused=True)
                return _REFUSED_AGAIN_S
        except DistError as error:
            self._hindered(str(error))
        except Exception as error:
            self._hindered(f"its log cannot be read: {type(error).__name__}: {error}")
        return _AGAIN_S

    def _hindered(self, why: str, *, refused: bool = False) -> None:
        if self._why is None or refused != self._refused:
            self._since = time.monotonic()
        self._why, self._refused = why, refused

    def _next(self) -> _Source | None:
        """What is to be read now: the first of which not all was read."""
        for source in _sources(self._pods(), self._container):
            if source.restarts > self._over.get(source.uid, -1):
                return source
        return None

    def _read(self, source: _Source) -> None:
        """Follow it until it is cut off; or read what there is, of one that has ended: that is all."""
        if self._of != (source.uid, source.restarts):
            with self._lock:
                self._of, self._place = (source.uid, source.restarts), LogPlace()
        reading = LogReading(self._place)
        path = f"/api/v1/namespaces/{self._cluster.namespace}/pods/{source.pod}/log"
        query = {
            "container": source.container,
            "timestamps": "true",
            **({"previous": "true"} if source.before else {}),
            **({} if source.ended else {"follow": "true"}),
            **self._place.since_time,
        }
        for data in self._cluster.follow(path, _QUIET_S, **query):
            self._keep(reading, reading.take(data))
            self._why = None
            if self._closed.is_set():
                return
        if source.ended:
            self._keep(reading, reading.end())
            self._finish(source)

    def _keep(self, reading: LogReading, lines: Sequence[tuple[float, bytes]]) -> None:
        if lines:
            with self._lock:
                self._file.append(lines)
                self._place = reading.place

    def _finish(self, source: _Source) -> None:
        with self._lock:
            self._over[source.uid] = source.restarts

"""The log of one rank, read through the API server from one pod, or from several successive pods.

A pod's container may restart, and another pod may replace a pod. Their outputs form one log, in the order of
their starts. An interrupted reading resumes at its position (log_position.py).
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
"""Seconds of silence after which the connection is made anew: it may be dead, or the API server may hang."""
_AGAIN_S, _NOTHING_S = 0.3, 0.6
_REFUSED_AGAIN_S, _REFUSED_S = 1.0, 6.0
"""Seconds between retries after a refusal, and until a refusal counts. A new API server refuses at first."""
_SHOWN_S = 2.0
"""Seconds after which a problem is shown to the user."""


class Rest(enum.Enum):
    """What of a log was not read yet."""

    NONE = "none: all is here that its pods have printed, and none of them goes on"
    COMES = "it is being read"
    GOES_ON = "its pod goes on"
    REFUSED = "we may not read it"
    HINDERED = "it cannot be read at the moment"


@dataclass(frozen=True)
class _Source:
    """The output of one start of a container."""

    pod: str
    uid: str
    container: str
    restarts: int
    before: bool
    """Whether the container has restarted since."""
    ended: bool


def _sources(pods: Iterable[Mapping[str, Any]], container: str | None) -> list[_Source]:
    """Return the sources that the nodes still have, in the order of their starts."""
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
    """Return the status of the container whose log is the rank's. None if there is no status yet.

    It is the container that the kind's operator requires, or kubectl's default container, or the first one.
    """
    names = [str(one["name"]) for one in pod["spec"]["containers"]]
    default = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    name = next((one for one in (container, default) if one in names), names[0])
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return next((one for one in statuses if one["name"] == name), None)


class RankLog:
    """A thread that reads one rank's log and that nobody joins.

    `pods`: the rank's pods, in the order of their creation. `known`: the `position` of another process that
    has read a part.
    """

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
        """For each pod's container, the newest start whose output was read completely."""
        self._lock = threading.Lock()
        self._why: str | None = None
        self._since = 0.0
        self._closed = threading.Event()
        self._refused = False
        """Whether the last answer refused the permission to read."""
        threading.Thread(target=self._run, name="read a pod's log", daemon=True).start()

    @property
    def position(self) -> dict[str, Any]:
        """The position up to which the log was read, as JSON."""
        with self._lock:
            place = dataclasses.astuple(self._place)
            return {"size": self._file.size, "place": place, "of": self._of, "over": dict(self._over)}

    @property
    def why(self) -> str | None:
        """Why the log could not be read completely."""
        return None if self.rest is Rest.NONE else self._why

    @property
    def trouble(self) -> str | None:
        """Why nothing is being read at the moment."""
        why = self._why
        return why if why is not None and time.monotonic() - self._since > _SHOWN_S else None

    @property
    def rest(self) -> Rest:
        """What was not read yet."""
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
        """Read on. Returns the time until the next try."""
        try:
            self._read(source)
            self._why, self._refused = None, False
        except Refusal as refusal:
            if refusal.status == 404 or (refusal.status == 400 and source.ended):
                self._finish(source)  # the node has deleted the log
            elif refusal.status == 401:
                self._cluster.renew()
                self._hindered(f"the API server does not know us any more ({refusal.message}): log in again")
            elif refusal.status != 400:  # 400: the log does not exist yet
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
        """Return the source to read now: the first one that was not read completely."""
        for source in _sources(self._pods(), self._container):
            if source.restarts > self._over.get(source.uid, -1):
                return source
        return None

    def _read(self, source: _Source) -> None:
        """Follow a running source until the connection is lost, or read an ended source to its end."""
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

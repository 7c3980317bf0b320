"""The watch over a run's Ray nodes: which of them have ended, and why."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import DistError
from .actor_transport import ending_of
from .connection import check_listening, head_of
from .placement_group import PlacementGroup, Site

__all__ = ["NodeWatch"]

_LOOK_EVERY_S = 2.0
_LOOK_AT_HEAD_EVERY_S = 1.0
_PATIENCE = "RAY_gcs_rpc_server_reconnect_timeout_s"
_HEADLESS_S = float(os.environ.get(_PATIENCE) or 60)
"""Seconds after their head's end when nodes end themselves, with our node actors and agents:
https://docs.ray.io/en/latest/ray-core/fault_tolerance/gcs.html
"""
_END_S = 30.0
"""Further seconds for the ends of raylets, actors, agents and ranks."""


class NodeWatch:
    """Two threads that nobody joins. One waits for the ends of node actors.

    While the head is down, every call of Ray blocks that thread. The other thread therefore checks the head.
    """

    def __init__(self, address: str, group: Callable[[], PlacementGroup], sites: Sequence[Site]) -> None:
        """`group`: connects to Ray if needed. May block, and raise a DistError."""
        self._address, self._group, self._sites = address, group, {site.name: site for site in sites}
        self.gone: dict[str, str] = {}
        """The hosts that have ended, each with the reason."""
        self._closed = threading.Event()
        self._headless: str | None = None
        """The text for the user while the head does not answer."""
        self._hindered: str | None = None
        """Ray's error in place of an answer."""
        for look in (self._run, self._look_at_head):
            threading.Thread(target=look, name="watch Ray", daemon=True).start()

    @property
    def trouble(self) -> str | None:
        """Return what currently hinders the run, for the user."""
        return self._headless or self._hindered

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        watched: dict[Any, str] = {}
        while not self._closed.is_set() and len(self.gone) < len(self._sites):
            if self._headless:
                self._closed.wait(_LOOK_AT_HEAD_EVERY_S)
                continue
            try:
                group = self._group()
                for name in self._sites.keys() - self.gone.keys() - set(watched.values()):
                    watched[self._begin(group, name)] = name
                self._wait(watched)
                self._look_at_nodes()
            except Exception as error:
                watched = {}
                self._hindered = str(error) if isinstance(error, DistError) else f"Ray: {ending_of(error)}"
                self._closed.wait(_LOOK_EVERY_S)
            else:
                self._hindered = None

    def _begin(self, group: PlacementGroup, name: str) -> Any:
        """Wait for the end of a host's node actor. The returned object is then complete."""
        try:
            return group.actor(self._sites[name]).watch.remote()
        except ValueError:
            # Ray no longer has an actor of that name, and no longer reports why.
            self._end(name, "Ray has ended what held our place on it")
            return name

    def _wait(self, watched: dict[Any, str]) -> None:
        import ray

        waiting = [each for each in watched if not isinstance(each, str)]
        if not waiting:
            return
        done, _ = ray.wait(waiting, num_returns=1, timeout=_LOOK_EVERY_S)
        for each in done:
            name = watched.pop(each)
            try:
                ray.get(each)
            except ray.exceptions.ActorDiedError as error:
                self._end(name, ending_of(error))
            except ray.exceptions.ActorUnavailableError:
                self._closed.wait(0.5)  # not an end: the node itself will report it

    def _end(self, name: str, why: str) -> None:
        told = self._death_of(self._sites[name].node)
        self.gone[name] = f"Ray lost its node: {told}" if told else f"Ray ended our place on it: {why}"

    def _look_at_nodes(self) -> None:
        for name, site in self._sites.items():
            if name not in self.gone:
                told = self._death_of(site.node)
                if told:
                    self.gone[name] = f"Ray lost its node: {told}"

    def _death_of(self, node: str) -> str | None:
        """Return Ray's reason for a node's death, or None if the node is alive."""
        import ray

        nodes: Sequence[Mapping[str, Any]] = ray.nodes()
        found = next((each for each in nodes if each["NodeID"] == node), None)
        if found is None or found["Alive"]:
            return None
        return " ".join(str(found.get("DeathReasonMessage") or "").split())[:300] or "it is dead"

    def _look_at_head(self) -> None:
        since: float | None = None
        host, port = head_of(self._address)
        while not self._closed.is_set() and len(self.gone) < len(self._sites):
            try:
                check_listening(self._address)
            except DistError:
                now = time.monotonic()
                since = since or now
                self._headless = (
                    f"the head of Ray has not answered at {host}:{port} for {now - since:.0f} s: "
                    f"without it, Ray ends its nodes after {_HEADLESS_S:.0f} s, and all that runs there"
                )
                if now - since > _HEADLESS_S + _END_S:
                    self.gone |= dict.fromkeys(self._sites.keys() - self.gone.keys(), self._headless)
            else:
                since = self._headless = None
            self._closed.wait(_LOOK_AT_HEAD_EVERY_S)

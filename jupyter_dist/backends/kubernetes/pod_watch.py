"""The watch over a run's pods: a list, and its changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from ...errors import DistError
from .api_server import Cluster, Refusal

__all__ = ["PodWatch"]

_WATCH_S = 30.0
"""Seconds of one watch.

They are few, because a connection may die silently: the pods are then listed again.
"""
_AGAIN_S = 1.0
_SHOWN_S = 2.0
"""Seconds of silence after which a problem is shown to the user."""


class PodWatch:
    """A thread that watches the pods and that nobody joins.

    It lists the pods again whenever a watch ends: the server has ended it, has dropped so old a version
    (410), or does not answer.
    """

    def __init__(self, cluster: Cluster, selector: str) -> None:
        """`selector`: the labels of the pods."""
        self._cluster, self._selector = cluster, selector
        self._pods: dict[str, dict[str, Any]] = {}
        self._known = False
        self._why: str | None = None
        self._since = 0.0
        self._closed = threading.Event()
        self._changed = threading.Event()
        threading.Thread(target=self._run, name="watch pods", daemon=True).start()

    @property
    def pods(self) -> Mapping[str, dict[str, Any]] | None:
        """The latest state of the pods by UID, or None before the first list."""
        return dict(self._pods) if self._known else None

    @property
    def trouble(self) -> str | None:
        """Why the state of the pods is not up to date at the moment."""
        why = self._why
        return why if why is not None and time.monotonic() - self._since > _SHOWN_S else None

    def close(self) -> None:
        self._closed.set()

    def wait(self, seconds: float) -> None:
        """Wait for a change, for at most `seconds`."""
        self._changed.wait(seconds)
        self._changed.clear()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._follow(self._list())
            except Refusal as refusal:
                self._hindered(self._of(refusal))
            except DistError as error:
                self._hindered(str(error))
            except Exception as error:  # a truncated answer, or one that is not JSON
                self._hindered(f"the API server gives no proper answer: {type(error).__name__}: {error}")
            else:
                continue
            self._closed.wait(_AGAIN_S)

    def _list(self) -> str:
        """List the pods. Returns the version of the list."""
        path = f"/api/v1/namespaces/{self._cluster.namespace}/pods"
        listed = self._cluster.ask("GET", path, labelSelector=self._selector)
        self._pods = {pod["metadata"]["uid"]: pod for pod in listed["items"]}
        self._known, self._why = True, None
        self._changed.set()
        return str(listed["metadata"]["resourceVersion"])

    def _follow(self, version: str) -> None:
        path = f"/api/v1/namespaces/{self._cluster.namespace}/pods"
        for event in self._cluster.watch(path, version, _WATCH_S, labelSelector=self._selector):
            if self._closed.is_set() or event["type"] == "ERROR":
                return
            uid = event["object"]["metadata"].get("uid")
            if event["type"] == "DELETED":
                self._pods.pop(uid, None)
            elif uid:
                self._pods[uid] = event["object"]
            self._changed.set()

    def _hindered(self, why: str) -> None:
        if self._why is None:
            self._since = time.monotonic()
        self._why = why

    def _of(self, refusal: Refusal) -> str:
        if refusal.status == 401:
            return f"the API server does not know us any more ({refusal.message}): log in again"
        if refusal.status == 403:
            return f"we may not see the pods ({refusal.message}): that needs the verbs list and watch on pods"
        return f"the API server refuses to tell of the pods: {refusal.message}"

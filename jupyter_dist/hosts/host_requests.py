"""Requests of the driver to one host that the agent answers: free ports, GPUs, ways to others, a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .links.link import Link

__all__ = ["HostRequests"]

_ANSWERS = {"ports": "ports", "leased": "lease", "reached": "reach", "prepared": "prepare"}
"""The kinds of frames that answer requests, and the kinds of these requests."""


class HostRequests:
    """The newest request of each kind. A host that is set up again gets them again."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._asked: dict[str, Mapping[str, Any]] = {}
        self._open: set[str] = set()
        """The kinds of the requests that the agent has not answered."""

    @property
    def open(self) -> bool:
        """Return whether the agent has not answered all requests."""
        return bool(self._open)

    def ask(self, python: str | None, request: Mapping[str, Any]) -> None:
        """Send a request now, or when the host is ready. `python`: see `repeat`; None: it is not ready."""
        self._asked[request["do"]] = request
        self._open.add(request["do"])
        if python is not None:
            self._send(request, python)

    def answered(self, frame: str) -> None:
        """Note that a frame of this kind has arrived, which may answer a request."""
        self._open.discard(_ANSWERS.get(frame, ""))

    def reopen(self) -> None:
        """Count all requests as unanswered, because another agent will serve the host."""
        self._open = set(self._asked)

    def repeat(self, python: str) -> None:
        """Send the unanswered requests again. `python`: the host's Python, which starts ranks there."""
        for kind in self._open:
            self._send(self._asked[kind], python)

    def _send(self, request: Mapping[str, Any], python: str) -> None:
        more = {"python": python} if request["do"] == "prepare" else {}
        self._link.send({**request, **more})

"""What a link to one host's agent is: a stream (`stream.py`) or a mailbox (`mailbox.py`), and no third kind.

Both carry the same frames (agent/frames.py): requests to the agent, and what it tells of its host, its
processes and their files.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ...agent.frames import Frame
from ..staged_files import Shipped

__all__ = ["Link", "LinkError", "Reach"]


class LinkError(Exception):
    """Why there is no connection. `final`: trying again makes no sense. `busy`: it well may, at once."""

    def __init__(self, why: str, *, final: bool = False, busy: bool = False) -> None:
        super().__init__(why)
        self.final, self.busy = final, busy


class Link(Protocol):
    """One connection at a time to one host; after it is lost, `open` makes another one. Nothing blocks."""

    host: str
    ping_every_s: float
    """How often a ping is worth its price; an agent that hears nothing takes its driver for gone."""
    exact_clock: bool
    """Whether an answer comes so fast that the other clock can be read off it."""
    stage: str | None
    """The stage folder on the host, known from the first connection on."""
    up: bool
    """Whether the agent is at the other end."""
    sent: int
    to_send: int
    """Bytes of files: on their way, and in all."""

    @property
    def opened(self) -> bool:
        """Whether there is a connection, or one is being made."""
        ...

    @property
    def pid(self) -> int | None:
        """The local process that is the connection, a group of its own; None where there is none."""
        ...

    @property
    def silent_s(self) -> float:
        """For how long there was no sign from the other side."""
        ...

    def open(self, mode: str) -> None:
        """Begin to connect. `mode`: stage (set up what is not there), or resume. Raises LinkError."""
        ...

    def send(self, header: Mapping[str, Any]) -> None:
        """Put a message to the agent on its way; without one at the other end it is dropped."""
        ...

    def pump(self) -> list[Frame]:
        """Write and read what is possible now; returns the agent's messages.

        Raises LinkError when the connection is lost; it is closed then.
        """
        ...

    def rest(self) -> list[Frame]:
        """When the host is given up: what it has told and nobody could take, as a part before it is missing.

        May block for some seconds. Never raises.
        """
        ...

    def register(self, poll: select.poll) -> None:
        """Have `poll` wake when this connection can go on."""
        ...

    def close(self) -> None:
        """End the connection; the agent goes on. Repeatable."""
        ...


Reach = Callable[[str, Mapping[str, Any], Sequence[Shipped]], Link]
"""Makes the link to a host, by the host's name, what its stage program is told first, and the files."""

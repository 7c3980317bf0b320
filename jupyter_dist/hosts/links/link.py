"""Interface of a link to one host's agent: a stream (`stream.py`) or a mailbox (`mailbox.py`).

Both links transfer the same frames (agent/frames.py): requests to the agent, and the agent's reports about
its host, its processes and their files.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ...agent.frames import Frame
from ..staged_files import Shipped

__all__ = ["Diagnosis", "Link", "LinkError", "Reach"]


class Diagnosis(Protocol):
    """A search for the cause of a failure, which runs meanwhile."""

    text: str
    """The cause and its cure, as far as they are known."""

    def look(self) -> bool:
        """Advance the search. Returns whether `text` is final. Does not block."""
        ...

    def close(self) -> None:
        """End the search. Repeatable."""
        ...


class LinkError(Exception):
    """A missing connection, with its reason. `final`: a retry would fail too. `busy`: a retry may succeed.

    `diagnosis`: finds a more exact reason, if there is one. It starts nothing before its first `look`.
    """

    def __init__(
        self, why: str, *, final: bool = False, busy: bool = False, diagnosis: Diagnosis | None = None
    ) -> None:
        super().__init__(why)
        self.final, self.busy, self.diagnosis = final, busy, diagnosis


class Link(Protocol):
    """At most one connection to one host. After a loss, `open` creates another one. Only `rest` may block."""

    host: str
    ping_every_s: float
    """Seconds between two pings. Without pings, the agent assumes that its driver is gone."""
    answers_within_s: float
    """Longest time until an answer of the agent arrives, if nothing is wrong."""
    exact_clock: bool
    """Whether answers are fast enough to measure the host's clock."""
    stage: str | None
    """The stage folder on the host; None before the first connection."""
    up: bool
    """Whether the link is connected to the agent."""
    sent: int
    to_send: int
    """`sent` and `to_send`: bytes of files that the link has sent, and all bytes of files to send."""

    @property
    def opened(self) -> bool:
        """Return whether a connection exists or is being opened."""
        ...

    @property
    def pid(self) -> int | None:
        """Return the local process of the connection, which leads a process group; None if there is none."""
        ...

    @property
    def silent_s(self) -> float:
        """Return the seconds since the last sign of the other side."""
        ...

    def open(self, mode: str) -> None:
        """Begin to connect. `mode`: stage (set up what is missing), or resume. Raises LinkError."""
        ...

    @property
    def waiting(self) -> int:
        """Return the bytes of messages that wait to be sent."""
        ...

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Send a message to the agent. The link drops the message if it is not `up`."""
        ...

    def pump(self) -> list[Frame]:
        """Send and receive as much as possible now. Returns the agent's messages.

        Raises LinkError if the connection is lost. The link is closed then.
        """
        ...

    def rest(self) -> list[Frame]:
        """Return the frames of a lost host that follow a missing frame, so that `pump` could not return them.

        May block for some seconds. Never raises.
        """
        ...

    def register(self, poll: select.poll) -> None:
        """Register this connection's descriptors, so that `poll` wakes when `pump` can proceed."""
        ...

    def close(self) -> None:
        """Close the connection. The agent continues. Repeatable."""
        ...


Reach = Callable[[str, Mapping[str, Any], Sequence[Shipped]], Link]
"""Creates the link to a host. Args: the host's name, the first message to its stage program, the files."""

"""The release of one host: its agent ends the processes, sends the checkpoints and removes its files."""

from __future__ import annotations

import os
import time

from .host import Host

__all__ = ["advance"]


def advance(host: Host) -> str | None:
    """Advance the release, until `Host.released` is true. Does not block.

    The driver leaves a host that is silent for longer than its link needs for an answer.

    Returns a text for the user if the driver leaves the host before all checkpoints are here.
    """
    host.advance()
    told = None
    # If the link is down but the host is not `away`, the host was never set up.
    away_s = 0.0 if host.away is None else time.time() - host.away
    silent_s = max(time.monotonic() - host.heard, away_s)
    if not host.released and (silent_s > host.link.answers_within_s or not (host.link.up or host.away)):
        host.released, told = True, _left_there(host)
    if host.released:
        host.close()
    return told


def _left_there(host: Host) -> str | None:
    """Return what may be on a host that does not answer; None if nothing is missing, or the host is gone."""
    stage = host.link.stage
    if stage is None or host.has_sent or host.lost or host.is_gone or not host.processes:
        return None
    return (
        f"host {host.name} did not answer at the end of the run. Files that are missing here, such as "
        f"checkpoints, may still be there in {os.path.join(stage, 'run')!r}"
    )

"""Messages to users about a run's hosts: failures, missing hosts and pending set-up."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from .facts import HostProcess
from .host import Host

__all__ = ["missing", "out_of_space", "progress", "story", "unreachable_pairs"]

_FULL_BYTES = 64 << 10


def story(failures: Sequence[tuple[str, str]], total: int) -> str:
    """Describe why hosts cannot be used, all of them by name."""
    if len(failures) == 1:
        (name, why), end = failures[0], "" if failures[0][1].endswith(("?", ".")) else "."
        return f"host {name}: {why}{end} Nothing was started."
    lines = [f"  {name}: {why}" for name, why in failures]
    return "\n".join([f"{len(failures)} of {total} hosts cannot be used. Nothing was started.", *lines])


def out_of_space(process: HostProcess) -> bool:
    """Return whether a process has failed and its disk had no free space."""
    failed = process.exit_code or process.signal or process.error
    return bool(failed) and process.free_disk is not None and 0 <= process.free_disk < _FULL_BYTES


def missing(host: Host, attempt: int, grace_s: float, *, killed: bool) -> str:
    """Describe a host without a connection: since when, and what will follow."""
    assert host.away is not None
    since = time.strftime("%H:%M:%S", time.localtime(host.away))
    mine = [p.rank for p in host.processes.values() if p.attempt == attempt and p.rank is not None]
    with_ranks = f" ({_ranks(mine)})" if mine else ""
    told = f"host {host.name}{with_ranks} has not answered since {since}: {host.why_away}; "
    if killed:
        return told + f"what runs there ends by itself within {grace_s:g} s"
    return told + f"trying again for {grace_s:g} s"


def unreachable_pairs(hosts: Sequence[Host], meeting: str, where: str) -> Iterator[str]:
    """Describe which hosts cannot connect to which. `meeting`: the host of rank 0, `where`: its address."""
    cure = "open the TCP ports between the hosts, or name another network with --interface"
    to_meeting = [host for host in hosts if meeting in host.no_way]
    if to_meeting:
        yield (
            f"{_names(to_meeting)} cannot connect to {where} ({to_meeting[0].no_way[meeting]}), "
            f"where the ranks meet: {cure}"
        )
    pairs = [
        (host.name, other, why) for host in hosts for other, why in host.no_way.items() if other != meeting
    ]
    if pairs:
        shown = ", ".join(f"{name} to {other} ({why})" for name, other, why in pairs[:4])
        more = f" and {len(pairs) - 4} more" if len(pairs) > 4 else ""
        yield f"no connection from {shown}{more}, which ranks that exchange data need: {cure}"


def progress(hosts: Sequence[Host], rsync: Sequence[str]) -> str | None:
    """Describe what the run waits for before its start."""
    if any(host.processes for host in hosts):
        return None
    waiting = [host for host in hosts if not host.settled and not host.failed]
    sending = [host for host in waiting if host.link.to_send > 1 << 20 and not host.link.up]
    if sending:
        total = sum(host.link.to_send for host in sending)
        done = min(90, 10 * (10 * sum(host.link.sent for host in sending) // total))
        return f"sending {total / 1e6:,.0f} MB to {_names(sending)} ({done} %)"
    syncing = [host for host in waiting if host.sync.under_way]
    if syncing:
        return f"copying {', '.join(rsync)} to {_names(syncing)} with rsync"
    return f"connecting to {_names(waiting)}" if waiting else None


def _ranks(ranks: Sequence[int]) -> str:
    """Return text such as `rank 3` or `ranks 0-3, 7`."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    listed = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"


def _names(hosts: Sequence[Host]) -> str:
    return ", ".join(host.name for host in hosts[:8]) + (" and others" if len(hosts) > 8 else "")

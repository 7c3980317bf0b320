"""Free TCP ports for the ranks' rendezvous."""

from __future__ import annotations

import random
import socket

__all__ = ["available_ports", "bounds", "free_ports"]


_RANDOM = random.SystemRandom()  # a forked supervisor must not draw the same ports as its sibling


def bounds() -> tuple[int, int]:
    """Return the range of ports to choose from, without its end.

    The range is below the ports that the kernel assigns itself. So no outgoing connection uses one before a
    rank binds it.
    """
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            first = int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        first = 32_768
    return 15_000, first if first > 20_000 else 32_768


def available_ports(count: int) -> list[int]:
    """Return distinct ports that are unbound at this moment; fewer if there are not enough."""
    low, high = bounds()
    found: list[int] = []
    for port in _RANDOM.sample(range(low, high), min(high - low, 200 + 20 * count)):
        if len(found) == count:
            break
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        found.append(port)
    return found


def free_ports(count: int) -> list[int]:
    """Return distinct ports that are unbound at this moment.

    Raises OSError when there are not enough.
    """
    found = available_ports(count)
    if len(found) < count:
        low, high = bounds()
        raise OSError(f"only {len(found)} of {count} TCP ports are free between {low} and {high}")
    return found

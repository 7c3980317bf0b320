"""Find TCP ports for the ranks to meet at."""

from __future__ import annotations

import random
import socket

__all__ = ["available_ports", "bounds", "free_ports"]


_RANDOM = random.SystemRandom()  # a forked supervisor must not draw its sibling's ports


def bounds() -> tuple[int, int]:
    """The ports to choose from, the second one not among them: below those that the kernel hands out by
    itself, so that no outgoing connection takes one before a rank binds it."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            first = int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        first = 32_768
    return 15_000, first if first > 20_000 else 32_768


def available_ports(count: int) -> list[int]:
    """Distinct ports that nothing is bound to at this moment; fewer where there are not enough."""
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
    """Distinct ports that nothing is bound to at this moment. Raises OSError when there are not enough."""
    found = available_ports(count)
    if len(found) < count:
        low, high = bounds()
        raise OSError(f"only {len(found)} of {count} TCP ports are free between {low} and {high}")
    return found

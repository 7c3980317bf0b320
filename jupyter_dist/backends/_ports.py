"""Find TCP ports for the ranks to meet at."""

from __future__ import annotations

import random
import socket

__all__ = ["free_ports"]

_RANDOM = random.SystemRandom()  # a forked supervisor must not draw its sibling's ports


def free_ports(count: int) -> list[int]:
    """Distinct ports that nothing is bound to at this moment.

    Below the range from which the kernel hands out ports by itself, so that no outgoing
    connection takes one before a rank binds it. Raises OSError when there are not enough.
    """
    low, high = 15_000, _first_ephemeral()
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
    if len(found) < count:
        raise OSError(f"only {len(found)} of {count} TCP ports are free between {low} and {high}")
    return found


def _first_ephemeral() -> int:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            first = int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
    return first if first > 20_000 else 32_768

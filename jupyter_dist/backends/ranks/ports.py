"""TCP ports of this machine for the ranks to meet at, all of them or none."""

from __future__ import annotations

from ...worker import free_ports as _ports

__all__ = ["free_ports"]


def free_ports(count: int) -> list[int]:
    """Distinct ports that nothing is bound to at this moment. Raises OSError when there are not enough."""
    found = _ports.free_ports(count)
    if len(found) < count:
        low, high = _ports.bounds()
        raise OSError(f"only {len(found)} of {count} TCP ports are free between {low} and {high}")
    return found

"""Where the ranks of a run have parted: the first collective that they did not call alike. Pure.

Each rank has written its last collectives (worker/rank/collectives.py). They are numbered per process group,
so those with equal numbers belong together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Call", "Parting", "Record", "first_parting", "parse"]

_UNEVEN = ("gather", "scatter", "alltoall", "all_to_all", "send", "recv", "coalesced")
"""Parts of the names of operations whose ranks may have inputs of different sizes."""
_LONG_S = 3.0
_TYPES = {
    **{"Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Bool": "bool"},
    **{"Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64"},
}


@dataclass(frozen=True)
class Call:
    """One collective that a rank has called."""

    number: int
    operation: str
    sizes: tuple[tuple[int, ...], ...]
    types: tuple[str, ...]
    waits_s: float | None
    """How long the rank had waited in it when it wrote its record, in seconds. None: it was done."""

    @property
    def inputs(self) -> str:
        """The inputs, such as `float32[64, 10]`."""
        named = [_TYPES.get(kind, kind.lower()) for kind in self.types] or [""] * len(self.sizes)
        return ", ".join(f"{kind}{list(size)}" for kind, size in zip(named, self.sizes, strict=False))

    def __str__(self) -> str:
        inputs = self.inputs
        return f"{self.operation} #{self.number}{f' of {inputs}' if inputs else ''}"

    def matches(self, other: Call) -> bool:
        """Return whether both are the same operation, on inputs that fit together."""
        if self.operation != other.operation:
            return False
        if any(part in self.operation for part in _UNEVEN):
            return True
        return (self.sizes, self.types) == (other.sizes, other.types)


@dataclass(frozen=True)
class Record:
    """The last collectives of one rank: per group the calls in the order of their numbers."""

    groups: Mapping[str, tuple[int, ...]]
    calls: Mapping[str, Mapping[int, Call]]

    @property
    def waits_in(self) -> list[str]:
        """The groups in which the rank has called a collective that is not done."""
        return [
            group for group, calls in self.calls.items() if any(c.waits_s is not None for c in calls.values())
        ]


@dataclass(frozen=True)
class Parting:
    """The first collective of a group that the ranks did not call alike.

    - `differ`: they called different operations, or with different inputs. `calls` has them by rank.
    - `missing`: the ranks in `calls` wait, and `missing` did not call it.
    - `circle`: each group waits for a rank that waits in another group. `calls` has one call of each.
    """

    kind: Literal["differ", "missing", "circle"]
    group: str
    calls: Mapping[int, Call]
    missing: tuple[int, ...] = ()
    finished: int | None = None
    """The last collective that all missing ranks have called; 0: they have called none. None: unknown."""

    @property
    def call(self) -> Call:
        return next(iter(self.calls.values()))


def parse(data: Mapping[str, Any]) -> Record | None:
    """Return the record in an event. None if the event has another form: a rank may write anything."""
    try:
        groups = {str(name): tuple(map(int, ranks)) for name, ranks in data["groups"].items()}
        calls: dict[str, dict[int, Call]] = {}
        for group, number, operation, sizes, types, waits_s in data["calls"]:
            shapes = tuple(tuple(map(int, size)) for size in sizes)
            waits = None if waits_s is None else float(waits_s)
            call = Call(int(number), str(operation), shapes, tuple(map(str, types)), waits)
            calls.setdefault(str(group), {})[call.number] = call
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return Record(groups, calls)


def first_parting(records: Mapping[int, Record], ended: Iterable[int], world_size: int) -> Parting | None:
    """Return where the ranks have parted. None if they called the same, or if nothing tells.

    Args:
        records: those of all ranks that have written one.
        ended: the ranks that had ended by themselves. No other call of theirs will come.
    """
    gone = frozenset(ended)
    partings = []
    for group in sorted({name for record in records.values() for name in record.calls}):
        members = _members(group, records, world_size)
        found = _in_group(group, members, records, gone)
        if found is not None and found.kind == "differ":
            return found
        if found is not None:
            partings.append(found)
    for parting in partings:
        # A rank that waits in another group is itself waiting for somebody.
        if any(rank not in records or not records[rank].waits_in for rank in parting.missing):
            return parting
    if len(partings) > 1:
        calls = {next(iter(parting.calls)): parting.call for parting in partings}
        return Parting("circle", partings[0].group, calls, partings[0].missing)
    return partings[0] if partings else None


def _members(group: str, records: Mapping[int, Record], world_size: int) -> Sequence[int]:
    if group == "0":
        return range(world_size)
    listed = {rank for record in records.values() for rank in record.groups.get(group, ())}
    return sorted(listed | {rank for rank, record in records.items() if group in record.calls})


def _in_group(
    group: str, members: Sequence[int], records: Mapping[int, Record], gone: frozenset[int]
) -> Parting | None:
    known = {rank: records[rank].calls.get(group, {}) for rank in members if rank in records}
    # A rank has forgotten its oldest calls. Its last call says whether it has called an earlier one.
    # Nobody knows what a rank had called that ended without a record.
    called = {
        rank: max(known.get(rank, {}), default=0) for rank in members if rank in known or rank not in gone
    }
    for number in sorted({number for calls in known.values() for number in calls}):
        at = {rank: calls[number] for rank, calls in known.items() if number in calls}
        first = next(iter(at.values()))
        if not all(first.matches(call) for call in at.values()):
            return Parting("differ", group, at)
        missing = [rank for rank, last in called.items() if last < number]
        if missing and any(_waits_long(call, rank in gone) for rank, call in at.items()):
            finished = min(called[rank] for rank in missing) if known.keys() >= set(missing) else None
            return Parting("missing", group, at, tuple(missing), finished)
    return None


def _waits_long(call: Call, is_gone: bool) -> bool:
    """Return whether a rank waits longer than ranks do that are only not equally fast."""
    return is_gone or (call.waits_s is not None and call.waits_s >= _LONG_S)

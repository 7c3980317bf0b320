"""The first collective at which the ranks of a run differ. Pure.

Each rank records its latest collectives (worker/rank/collectives.py). The numbers count per process group.
Calls of one group with the same number belong together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...worker.rank.calls import CHANNEL, HOROVOD, NCCL, WORLD

__all__ = ["LONG_S", "Call", "Parting", "Record", "first_parting", "parse"]

_UNEVEN = ("gather", "scatter", "alltoall", "all_to_all", "send", "recv", "coalesced")
"""Parts of the names of operations whose ranks may have inputs of different sizes."""
LONG_S = 3.0
"""A rank that waits for less may only be faster than the others."""
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
    """Seconds that the rank had waited in the call when it wrote its record. None: the call had ended."""
    root: int | None = None
    """The rank that a broadcast comes from or that a reduction goes to, if the record has it."""
    numbered: bool = True
    """Whether messages show the number. A tensor of Horovod has a name instead."""

    @property
    def inputs(self) -> str:
        """The inputs, such as `float32[64, 10]`."""
        named = [_TYPES.get(kind, kind.lower()) for kind in self.types] or [""] * len(self.sizes)
        return ", ".join(f"{kind}{list(size)}" for kind, size in zip(named, self.sizes, strict=False))

    @property
    def name(self) -> str:
        """The operation with its number, such as `all_reduce #4`."""
        return f"{self.operation} #{self.number}" if self.numbered else self.operation

    @property
    def kind(self) -> str:
        """What differs between ranks, such as `called broadcast with root 1 of float32[3]`."""
        root = "" if self.root is None else f" with root {self.root}"
        if not self.numbered:
            return f"passed {self.inputs or 'nothing'}{root}"
        return f"called {self.operation}{root}{f' of {self.inputs}' if self.inputs else ''}"

    @property
    def is_message(self) -> bool:
        """Whether it goes from one rank to another."""
        return self.operation.startswith(("send to", "recv from"))

    @property
    def needs_all(self) -> bool:
        """Whether it has no input, so that no rank can have less of it."""
        return self.operation.startswith(("init_process_group", "barrier", "hvd.barrier"))

    def __str__(self) -> str:
        inputs = self.inputs
        return f"{self.name}{f' of {inputs}' if inputs else ''}"

    def matches(self, other: Call) -> bool:
        """Return whether both are the same operation, on inputs that fit together."""
        if self.operation != other.operation or not self.same_root(other):
            return False
        if any(part in self.operation.partition(" ")[0] for part in _UNEVEN):
            return True
        return (self.sizes, self.types) == (other.sizes, other.types)

    def same_root(self, other: Call) -> bool:
        return None in (self.root, other.root) or self.root == other.root


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

    @property
    def last(self) -> Call | None:
        """The last numbered collective, if all of them are of one group."""
        found = [calls for group, calls in self.calls.items() if not group.startswith(WORLD)]
        return found[0][max(found[0])] if len(found) == 1 else None


@dataclass(frozen=True)
class Parting:
    """The first collective of a group that the ranks did not call alike.

    - `differ`: they called different operations, or with different inputs. `calls` has them by rank.
    - `extra`: `missing` called an operation that the others did not call. `calls` is that of `missing`.
    - `skipped`: `missing` left out an operation that the others called. `calls` is that of the others.
    - `missing`: the ranks in `calls` wait, and `missing` did not call it.
    - `circle`: each group waits for a rank that waits in another group. `calls` has one call of each.
    - `together`: all ranks wait in the same operation.
    """

    kind: Literal["differ", "extra", "skipped", "missing", "circle", "together"]
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
        for group, number, operation, sizes, types, waits_s, *root in data["calls"]:
            shapes = tuple(tuple(map(int, size)) for size in sizes)
            waits = None if waits_s is None else float(waits_s)
            of_root = None if not root or root[0] is None else int(root[0])
            numbered = not str(group).startswith(WORLD)
            named = tuple(map(str, types))
            call = Call(int(number), str(operation), shapes, named, waits, of_root, numbered)
            calls.setdefault(str(group), {})[call.number] = call
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return Record(groups, calls)


def first_parting(
    records: Mapping[int, Record], ended: Iterable[int], world_size: int, killed: Iterable[int] = ()
) -> Parting | None:
    """Return where the ranks have parted. None if they called the same, or if nothing tells.

    Args:
        records: those of all ranks that have written one.
        ended: the ranks that had ended by themselves. No other call of theirs will come.
        killed: the ranks among them that could not write a record. Nobody knows what they had called.
    """
    gone, unknown = frozenset(ended), frozenset(killed) - records.keys()
    joined = {rank for rank, record in records.items() if _has_joined(record)}
    partings = []
    for group in sorted({name for record in records.values() for name in record.calls}):
        members = _members(group, records, world_size)
        excused = unknown | (joined if group.startswith(HOROVOD) else frozenset())
        found = _in_group(group, members, records, gone, excused)
        if found is not None and found.kind in ("differ", "extra", "skipped"):
            return found
        if found is not None:
            partings.append(found)
    missing = [parting for parting in partings if parting.kind == "missing"]
    for parting in missing:
        # A rank that waits in another group is itself waiting for somebody.
        if any(rank not in records or not records[rank].waits_in for rank in parting.missing):
            return parting
    if len(missing) > 1:
        calls = {next(iter(parting.calls)): parting.call for parting in missing}
        return Parting("circle", missing[0].group, calls, missing[0].missing)
    return next(iter([*missing, *partings]), None)


def _has_joined(record: Record) -> bool:
    """Return whether the rank waits in `hvd.join()`, and so takes part in all that others submit."""
    call = record.calls.get(f"{HOROVOD}join", {})
    return any(one.waits_s is not None for one in call.values())


def _members(group: str, records: Mapping[int, Record], world_size: int) -> Sequence[int]:
    if group.startswith(CHANNEL):
        return [int(rank) for rank in group.removeprefix(CHANNEL).split(">")]
    name = group.removesuffix(NCCL)
    if name == "0" or group.startswith(WORLD):
        return range(world_size)
    listed = {rank for record in records.values() for rank in record.groups.get(name, ())}
    return sorted(listed | {rank for rank, record in records.items() if group in record.calls})


def _in_group(
    group: str,
    members: Sequence[int],
    records: Mapping[int, Record],
    gone: frozenset[int],
    excused: frozenset[int] | set[int],
) -> Parting | None:
    known = {rank: records[rank].calls.get(group, {}) for rank in members if rank in records}
    # A rank has forgotten its oldest calls. Its last call says whether it has called an earlier one.
    called = {rank: max(known.get(rank, {}), default=0) for rank in members if rank not in excused}
    for rank in gone.intersection(called) - records.keys():  # it took part in all that is done
        called[rank] = max(0, min((last for other, last in called.items() if other in known), default=0) - 1)
    for number in sorted({number for calls in known.values() for number in calls}):
        at = {rank: calls[number] for rank, calls in known.items() if number in calls}
        first = next(iter(at.values()))
        if not group.startswith(CHANNEL) and not all(first.matches(call) for call in at.values()):
            return _shifted(group, number, at, known) or Parting("differ", group, at)
        late = {rank for rank, call in at.items() if _waits_long(call, rank in gone)}
        missing = [rank for rank, last in called.items() if last < number]
        if missing and late:
            finished = min(called[rank] for rank in missing) if known.keys() >= set(missing) else None
            return Parting("missing", group, at, tuple(missing), finished)
        if late == set(members) and not late & gone and len(late) > 1:
            return Parting("together", group, at)
    return None


def _shifted(
    group: str, number: int, at: Mapping[int, Call], known: Mapping[int, Mapping[int, Call]]
) -> Parting | None:
    """Return that some ranks have called one operation more, or less, than most others. None if unclear."""
    kinds: list[list[int]] = []
    for rank, call in at.items():
        alike = next((ranks for ranks in kinds if at[ranks[0]].matches(call)), None)
        kinds.append([rank]) if alike is None else alike.append(rank)
    if len(kinds) != 2 or len(kinds[0]) == len(kinds[1]):
        return None
    few, most = sorted(kinds, key=len)
    usual = at[most[0]]
    after_few = [known[rank].get(number + 1) for rank in few]
    after_most = [known[rank].get(number + 1) for rank in most]
    more = all(call is not None and call.matches(usual) for call in after_few)
    less = all(call is not None and call.matches(at[few[0]]) for call in after_most)
    if more == less:
        return None
    kind: Literal["extra", "skipped"] = "extra" if more else "skipped"
    return Parting(kind, group, {rank: at[rank] for rank in (few if more else most)}, tuple(few))


def _waits_long(call: Call, is_gone: bool) -> bool:
    """Return whether a rank waits longer than ranks do that are only not equally fast."""
    if call.waits_s is None:
        return is_gone and call.numbered  # torch's recorder counts an operation that has failed as done
    return is_gone or call.waits_s >= LONG_S

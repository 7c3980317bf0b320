"""Hints on mistakes that raise no error, from the events of all ranks of an attempt.

Some ranks have seen the mistake themselves. For other hints this module compares what the ranks have seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..text.fold import named
from ..text.format import count
from ..text.safe import one_line
from ..worker.hints import BATCHES, EVENT

__all__ = ["EVENT", "MARK", "Hint", "Hints"]

MARK = f'"kind": "{EVENT}"'.encode()
"""A part of each line with such an event."""

Facts = Mapping[int, Sequence[Mapping[str, Any]]]
"""By rank: what it has reported for one hint, in order."""


@dataclass(frozen=True)
class Hint:
    """One hint for the user. `text` is the same for all its ranks, and safe to print.

    `str` also says how to hide the hint.
    """

    name: str
    ranks: tuple[int, ...]
    text: str

    def __str__(self) -> str:
        return f"{named(self.ranks)}: {self.text} To hide this note: --no-hint {self.name}"


class Hints:
    """The hints of one attempt."""

    def __init__(self) -> None:
        self._facts: dict[str, dict[int, list[Mapping[str, Any]]]] = {}

    def take(self, rank: int, event: Mapping[str, Any]) -> None:
        """Add an event of the kind `EVENT`."""
        name = event.get("hint")
        if isinstance(name, str) and name in _FINDERS:
            self._facts.setdefault(name, {}).setdefault(rank, []).append(event)

    def found(self) -> list[Hint]:
        """Return the hints so far, each once for all its ranks."""
        hints = []
        for name, facts in self._facts.items():
            try:
                found = _FINDERS[name](facts)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError):
                continue  # a rank may write anything
            if found is not None:
                ranks, text = found
                hints.append(Hint(name, tuple(sorted(ranks)), one_line(text, 450)))
        return hints


Found = tuple[Iterable[int], str]


def _nan(facts: Facts) -> Found:
    first = _first(facts)
    event = min(first.values(), key=lambda event: int(event["number"]))
    ranks = [rank for rank, other in first.items() if other["number"] == event["number"]]
    later = sorted(facts.keys() - {*ranks})
    then = f" The loss of {named(later)} followed." if later else ""
    what, at = one_line(str(event["what"]), 80), one_line(str(event["at"]), 80)
    return ranks, (
        f"{what} is {one_line(str(event['value']), 20)} from {at} on.{then} The learning rate may be too "
        "high, or the data may contain nan. Lower the rate, clip the gradients, or check the data."
    )


def _same_data(facts: Facts) -> Found | None:
    equal: dict[tuple[str, ...], list[int]] = {}
    for rank, event in _first(facts).items():
        equal.setdefault(tuple(map(str, event["batches"])), []).append(rank)
    ranks = max(equal.values(), key=len)
    return (
        None
        if len(ranks) < 2
        else (
            ranks,
            f"these ranks train on the same data: their first {BATCHES} batches are equal. More ranks then "
            "bring nothing. Give a DataLoader a DistributedSampler(dataset), or use dist.shard(data).",
        )
    )


def _set_epoch(facts: Facts) -> Found:
    return facts, (
        "every epoch has the same order of samples, because nothing calls set_epoch of the "
        "DistributedSampler. Call sampler.set_epoch(epoch) at the start of each epoch."
    )


def _own_model(facts: Facts) -> Found | None:
    first = _first(facts)
    if not _alike(first) or not all(event["meant"] for event in first.values()):
        return None
    event = next(iter(first.values()))
    cure = "Call dist.init() and wrap the model in torch.nn.parallel.DistributedDataParallel."
    if event.get("wrapped"):
        cure = (
            "DistributedDataParallel averages gradients only if you call the wrapped model, not "
            "model.module, and if the last backward before optimizer.step() is outside of no_sync()."
        )
    steps = int(event["step"])
    seen = f"{steps} steps without any exchange between ranks"
    if not steps:
        seen = "its Keras model has no strategy that spans the ranks"
        cure = "Make the model within `with dist.strategy().scope():`, or use Horovod."
        if event.get("keras") == "torch":
            seen = "fit of Keras with torch exchanges nothing between ranks"
            cure = (
                "Call dist.init(), wrap the model in torch.nn.parallel.DistributedDataParallel, and train it "
                "in a loop of your own."
            )
    return first, f"each rank trains a model of its own: {seen}. {cure}"


def _weights(facts: Facts) -> Found | None:
    last = {rank: events[-1] for rank, events in facts.items() if len(events) == 2}
    if not _alike(last):
        return None
    for index in range(2):
        events = [events[index] for events in facts.values()]
        gradients, weights = ({event[key] for event in events} for key in ("gradients", "weights"))
        if len(gradients) != 1 or "" in gradients or len(weights) == 1:
            return None  # gradients that differ are averaged in another way, such as local SGD
    return last, (
        "the weights of the ranks differ after several steps, although their gradients are equal: the "
        "ranks began with other weights. Broadcast them first: DistributedDataParallel does so, or "
        "torch.distributed.broadcast for each parameter, or hvd.broadcast_parameters."
    )


def _world_size(facts: Facts) -> Found | None:
    first = _first(facts)
    of = one_line(str(next(iter(first.values()))["of"]), 40)
    return (
        None
        if not _all_ranks(first)
        else (
            facts,
            f"{of} has one rank here, and the run has {len(facts)}: each rank trains alone. Open the group "
            "with dist.init(), without numbers of your own. For Horovod use --backend horovod.",
        )
    )


def _batch_norm(facts: Facts) -> Found:
    event = next(iter(_first(facts).values()))
    layer, others = one_line(str(event["layer"]), 60), int(event["layers"]) - 1
    more = f" and {others} more" if others else ""
    return facts, (
        f"BatchNorm ({layer!r}{more}) normalizes over {int(event['batch'])} samples of each rank alone. "
        "Use larger batches per rank, GroupNorm, or on GPUs "
        "torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) before DistributedDataParallel."
    )


def _one_file(facts: Facts) -> Found | None:
    savers: dict[tuple[str, str], list[int]] = {}
    for rank, events in facts.items():
        for event in events:
            savers.setdefault((str(event["host"]), str(event["path"])), []).append(rank)
    several = {place: ranks for place, ranks in savers.items() if len(ranks) > 1}
    if not several:
        return None
    (_, path), ranks = next(iter(several.items()))
    what = one_line(str(facts[ranks[0]][0]["what"]), 40)
    return ranks, (
        f"these ranks save the same file with {what}, and one may destroy the file of another: "
        f"{one_line(path, 120)!r}. Save on one rank only: if dist.rank() == 0."
    )


def _thread_error(facts: Facts) -> Found:
    first = _first(facts)
    event = next(iter(first.values()))
    same = [other for other, its in first.items() if its["error"] == event["error"]]
    line = f", line {int(event['line'])}" if event["line"] is not None else ""
    at = f" at {one_line(str(event['file']), 80)}{line}" if event["file"] else ""
    return same, (
        f"the thread {one_line(str(event['name']), 60)!r} ended with {one_line(str(event['error']), 160)}"
        f"{at}. The rank continues without it. To let the rank fail, use concurrent.futures and its result()."
    )


def _cpu_threads(facts: Facts) -> Found | None:
    first = _first(facts)
    crowds = [ranks for ranks in _sharing(first) if _threads(first, ranks) > int(first[ranks[0]]["cores"])]
    if not crowds:
        return None
    event, ranks = first[crowds[0][0]], len(crowds[0])
    threads, cores = int(event["threads"]), int(event["cores"])
    return [rank for crowd in crowds for rank in crowd], (
        f"{count(ranks, 'rank')} with {threads} CPU threads each share {count(cores, 'core')}, which is "
        f"slow. Remove OMP_NUM_THREADS and torch.set_num_threads, or set them to {max(1, cores // ranks)}."
    )


def _sharing(first: Mapping[int, Mapping[str, Any]]) -> list[list[int]]:
    """Return the groups of ranks that share cores, of the hosts whose ranks have all reported.

    A launcher can bind each rank of a host to other cores.
    """
    hosts: dict[Any, dict[Any, list[int]]] = {}
    for rank, event in sorted(first.items()):
        groups = hosts.setdefault(event.get("host"), {})
        groups.setdefault(event.get("mask"), []).append(rank)
    found: list[list[int]] = []
    for groups in hosts.values():
        ranks = [rank for group in groups.values() for rank in group]
        if len(ranks) >= int(first[ranks[0]]["ranks"]):
            found += groups.values()
    return found


def _threads(first: Mapping[int, Mapping[str, Any]], ranks: Iterable[int]) -> int:
    return sum(int(first[rank]["threads"]) for rank in ranks)


def _first(facts: Facts) -> dict[int, Mapping[str, Any]]:
    return {rank: events[0] for rank, events in facts.items()}


def _alike(events: Mapping[int, Mapping[str, Any]]) -> bool:
    """Return whether all ranks have taken as many steps, with equal models and optimizers."""
    return _all_ranks(events) and len({(event["step"], event["same"]) for event in events.values()}) == 1


def _all_ranks(events: Mapping[int, Mapping[str, Any]]) -> bool:
    return len(events) > 1 and all(event["world"] == len(events) for event in events.values())


_FINDERS: dict[str, Callable[[Facts], Found | None]] = {
    "nan": _nan,
    "same-data": _same_data,
    "set-epoch": _set_epoch,
    "own-model": _own_model,
    "weights": _weights,
    "world-size": _world_size,
    "batch-norm": _batch_norm,
    "one-file": _one_file,
    "thread-error": _thread_error,
    "cpu-threads": _cpu_threads,
}

"""The names that a session's cell sends: those of the notebook that have changed there.

A name that a cell of the session has assigned belongs to the ranks, and is not sent. The notebook's value of
any other name is sent if its content differs from what the ranks have.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ...worker.pickling import Trace
from ...worker.session import content
from .. import source as _source
from ..notebook_history import hidden_names
from ..payload_size import LARGE
from .choice import Choice

__all__ = ["Where", "choose", "choose_for_call", "seen_value"]


@dataclass(frozen=True)
class Where:
    """The session that a cell is for. `about`: what its supervisor says of itself."""

    session: str
    about: Mapping[str, Any]
    here: bool = True
    """Whether the ranks surely run on this machine, where they see the files that the notebook has mapped."""
    notebook: str | None = None
    """The path of the cell's notebook. Other notebooks may use the session, too."""


def choose(text: str, label: str, flags: int, namespace: dict[str, Any], where: Where) -> Choice:
    """Choose the names for a cell. Raises CaptureError for a cell that cannot run."""
    cell = _source.parse(text, label, flags)
    return _choose(set(cell.reads), set(cell.writes), namespace, where)


def choose_for_call(values: Collection[Any], namespace: dict[str, Any], where: Where) -> Choice:
    """Choose the names for a call. `values`: the function and its arguments."""
    trace = Trace()
    for value in values:
        content.digest(value, namespace, trace)
    return _choose(set(trace.reads), set(), namespace, where)


def seen_value(name: str, namespace: dict[str, Any], where: Where) -> dict[str, str]:
    """Return the digest of the notebook's value of a name, as `Choice.seen` has it."""
    found = _digest(where)(namespace[name], namespace) if name in namespace else None
    return {} if found is None else {name: found}


def _digest(where: Where) -> Callable[..., str | None]:
    return functools.partial(content.digest, copies_below=0 if where.here else LARGE)


def _choose(reads: set[str], writes: set[str], namespace: dict[str, Any], where: Where) -> Choice:
    choice, about = Choice(), where.about
    digest = _digest(where)
    owned, sent, uses = set(about["owned"]), about["sent"], about["uses"]
    seen = about["seen"].get(where.notebook or "", {})
    hidden = hidden_names(namespace)
    choice.without |= owned
    wanted, done = reads - hidden, set()
    digests: dict[str, str | None] = {}
    parts: dict[str, dict[int, Any]] = {}
    while wanted:
        each = wanted.pop()
        done.add(each)
        if each in owned or each not in namespace:
            wanted |= _used_on_ranks(each, uses) - hidden - done
        if each not in namespace:
            continue
        trace = Trace()
        parts[each] = {}
        found = digests[each] = digest(namespace[each], namespace, trace, shared=parts[each])
        if each in owned:
            if found is not None:
                choice.seen[each] = found
                # A module's digest is also its entry in the list of names: the ranks have the same one.
                if seen.get(each) != found and about["names"].get(each) not in (None, found):
                    choice.notes.append(
                        f"{each}: both the notebook and the session {where.session} have assigned it. "
                        "The cell uses the ranks' value. To send the notebook's: "
                        f'jupyter_dist.session("{where.session}")["{each}"] = {each}'
                    )
            continue
        choice.modules |= trace.modules | trace.imports
        if found is None:
            pass  # the capture reports a value that cannot be pickled
        elif sent.get(each) == found:
            choice.without.add(each)
        else:
            choice.sent[each] = choice.seen[each] = found
        wanted |= trace.reads - hidden - done
    if choice.sent:
        for each in (sent.keys() & namespace.keys()) - hidden - owned - digests.keys():
            parts[each] = {}
            digests[each] = digest(namespace[each], namespace, shared=parts[each])
        _send_what_is_shared(choice, digests, parts, owned)
    choice.needs = sorted(choice.without - owned)
    for each in writes & namespace.keys() - hidden - choice.seen.keys():
        found = digest(namespace[each], namespace)
        if found is not None:
            choice.seen[each] = found
    return choice


def _used_on_ranks(name: str, uses: Mapping[str, Collection[str] | None]) -> set[str]:
    """Return the global names that the ranks' value of a name may read."""
    found = uses.get(name, ())
    if found is not None:
        return set(found)
    return {each for reads in uses.values() for each in reads or ()}


def _send_what_is_shared(
    choice: Choice,
    digests: Mapping[str, str | None],
    parts: Mapping[str, Mapping[int, Any]],
    owned: Collection[str],
) -> None:
    """Also send names that share an object with a name that is sent, such as a model and its optimizer.

    Otherwise the ranks would have two copies of the object.
    """
    left = {name for name, found in digests.items() if found is not None} - choice.sent.keys() - set(owned)
    reached = {ident for name in choice.sent for ident in parts[name]}
    while more := {name for name in left if parts[name].keys() & reached}:
        left -= more
        choice.without -= more
        for name in more:
            choice.sent[name] = digests[name] or ""
            reached |= parts[name].keys()
    choice.together = _groups({name: set(parts[name]) for name in choice.sent})


def _groups(parts: Mapping[str, set[int]]) -> list[list[str]]:
    """Return the groups of names that share objects. `parts`: the ids of the objects of each name."""
    found: list[tuple[set[str], set[int]]] = []
    for name in sorted(parts):
        names, ids = {name}, set(parts[name])
        for group in [group for group in found if group[1] & ids]:
            found.remove(group)
            names |= group[0]
            ids |= group[1]
        found.append((names, ids))
    return [sorted(names) for names, _ in found if len(names) > 1]

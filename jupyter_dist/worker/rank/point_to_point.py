"""Record of torch's point-to-point operations and of the roots of collectives.

torch's flight recorder lacks both on gloo.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..patching import wrap_copies
from ..steps.torch import bind_torch, is_compiling
from . import calls

__all__ = ["patch", "root_of"]

_PEERS = {"isend": ("dst", "group_dst"), "irecv": ("src", "group_src")}
_ROOTS = {
    "broadcast": ("src", "group_src"),
    "scatter": ("src", "group_src"),
    "reduce": ("dst", "group_dst"),
    "gather": ("dst", "group_dst"),
}
_in_send = threading.local()
_rooted: list[tuple[str, int]] = []
"""Operation and root of the calls in which this rank is, the innermost last."""


def patch(module: ModuleType) -> None:
    """Record the calls. `module`: torch.distributed.distributed_c10d."""
    bind_torch()
    for name in _PEERS:
        wrap_copies(module, name, lambda original: _peered(module, original))
    wrap_copies(module, "send", _sending)
    for name in _ROOTS:
        wrap_copies(module, name, lambda original: _with_root(module, original))


def root_of(operation: str) -> int | None:
    """Return the root of the collective in which this rank is, if it is such an operation."""
    return next((root for name, root in reversed(_rooted) if name == operation), None)


def _peered(module: ModuleType, original: Callable[..., Any]) -> Callable[..., Any]:
    sends = original.__name__ == "isend"
    rank_of = _global_rank(module, original, *_PEERS[original.__name__])

    def call(*args: Any, **options: Any) -> Any:
        if is_compiling():
            return original(*args, **options)
        noted = None
        with contextlib.suppress(Exception):  # torch says what is wrong with the arguments
            peer, own = rank_of(args, options), module.get_rank()
            if peer is not None:
                group = calls.channel(own, peer) if sends else calls.channel(peer, own)
                tensor = args[0] if args else options["tensor"]
                noted = calls.begin(group, f"{'send to' if sends else 'recv from'} rank {peer}", (tensor,))
        work = original(*args, **options)
        if noted is None:
            return work
        if sends and getattr(_in_send, "on", False):
            _in_send.call = noted
        elif sends or work is None:  # nobody has to wait until a message is taken
            noted.done = True
        else:
            noted.work = weakref.ref(work)
        return work

    return call


def _sending(original: Callable[..., Any]) -> Callable[..., Any]:
    def send(*args: Any, **options: Any) -> Any:
        _in_send.on, _in_send.call = True, None
        try:
            sent = original(*args, **options)
        finally:
            _in_send.on = False
        if _in_send.call is not None:
            _in_send.call.done = True
        return sent

    return send


def _with_root(module: ModuleType, original: Callable[..., Any]) -> Callable[..., Any]:
    name = original.__name__
    rank_of = _global_rank(module, original, *_ROOTS[name])

    def call(*args: Any, **options: Any) -> Any:
        if is_compiling():
            return original(*args, **options)
        root = None
        with contextlib.suppress(Exception):  # torch says what is wrong with the arguments
            root = rank_of(args, options)
        entry = (name, 0 if root is None else root)
        _rooted.append(entry)
        try:
            return original(*args, **options)
        finally:
            _rooted.remove(entry)

    return call


def _global_rank(
    module: ModuleType, function: Callable[..., Any], name: str, group_name: str
) -> Callable[[tuple[Any, ...], dict[str, Any]], int | None]:
    """Return a function that finds the rank in the arguments of a call, as a rank of the run."""
    places = list(inspect.signature(function).parameters)

    def value(args: tuple[Any, ...], options: dict[str, Any], wanted: str) -> Any:
        place = places.index(wanted)
        return args[place] if place < len(args) else options.get(wanted)

    def find(args: tuple[Any, ...], options: dict[str, Any]) -> int | None:
        rank = value(args, options, name)
        if rank is not None:
            return int(rank)
        in_group, group = value(args, options, group_name), value(args, options, "group")
        if in_group is None or group is None:
            return None if in_group is None else int(in_group)
        return int(module.get_global_rank(group, in_group))

    return find

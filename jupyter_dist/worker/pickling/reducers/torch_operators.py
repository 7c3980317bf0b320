"""Operators of torch that a notebook has stored from `torch.ops`. They are pickled by name."""

from __future__ import annotations

from typing import Any

from . import Note

__all__ = ["reduce"]


def reduce(obj: Any, note: Note) -> Any:
    import torch

    overload = [obj._overloadname] if hasattr(obj, "_overloadname") else []
    packet = obj.overloadpacket if overload else obj
    space, _, name = packet._qualified_op_name.partition("::")
    path = [space, name, *overload]
    found: Any = torch.ops
    for part in path:
        found = getattr(found, part, None)
    return (_operator, (path,)) if found is obj else NotImplemented


# A pickle calls this function when it is loaded. Its name is part of the format.


def _operator(path: list[str]) -> Any:
    import torch

    found: Any = torch.ops
    for part in path:
        found = getattr(found, part)
    return found

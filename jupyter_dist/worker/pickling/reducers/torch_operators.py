"""Operators of torch that a notebook has stored from `torch.ops` or defined. They are pickled by name.

A rank runs the definition of an operator after it has loaded the names of a cell. So a definition is loaded
as an object that looks for the operator when it is called.
"""

from __future__ import annotations

from typing import Any

from . import Note

__all__ = ["Defined", "reduce"]


def reduce(obj: Any, note: Note) -> Any:
    import torch

    if hasattr(obj, "_qualname"):
        return Defined, tuple(obj._qualname.split("::"))
    overload = [obj._overloadname] if hasattr(obj, "_overloadname") else []
    packet = obj.overloadpacket if overload else obj
    space, _, name = packet._qualified_op_name.partition("::")
    path = [space, name, *overload]
    found: Any = torch.ops
    for part in path:
        found = getattr(found, part, None)
    return (_operator, (path,)) if found is obj else NotImplemented


# A pickle calls these when it is loaded. Their names are part of the format.


class Defined:
    """An operator that `torch.library.custom_op` has defined, or defines before the cell runs."""

    def __init__(self, space: str, name: str) -> None:
        self._place = space, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch

        space, name = self._place
        return getattr(getattr(torch.ops, space), name)(*args, **kwargs)


def _operator(path: list[str]) -> Any:
    import torch

    found: Any = torch.ops
    for part in path:
        found = getattr(found, part)
    return found

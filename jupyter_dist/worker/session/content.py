"""A digest of a value's content, with which the notebook and the ranks see whether it has changed."""

from __future__ import annotations

import enum
import hashlib
import io
import pickle
import types
import warnings
from collections.abc import Collection
from typing import Any

from ..pickling import Pickler, Trace
from ..pickling.file_maps import FileMap, FileMaps

__all__ = ["digest"]

_CONTAINERS = (list, dict, set, bytearray)


def digest(
    value: Any,
    main: dict[str, Any],
    trace: Trace | None = None,
    hidden: Collection[str] = (),
    shared: dict[int, Any] | None = None,
    copies_below: int = 0,
) -> str | None:
    """Return a digest of the value's pickle; None if the value cannot be pickled.

    The digest of an array in a mapped file is that of the file's place and identity, if the notebook and the
    ranks see the same content there.

    Args:
        main: the namespace of the notebook or of the rank. A function's pickle contains none of its names.
        trace: gets the names that the value's code uses.
        hidden: further names that the value's code does not take along.
        shared: gets the objects in the value that another value may share with it, by their ids.
        copies_below: the size in bytes up to which a mapped file is copied to the ranks, with its content.
    """
    if isinstance(value, types.ModuleType):
        if trace is not None:
            trace.modules.add(value.__name__)
        return f"module {value.__name__}"
    found = hashlib.sha256()
    buffers: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        buffers.append(buffer.raw())
        return False

    file = io.BytesIO()
    names, maps = {*main, *hidden}, _FilesUsed(copies_below)
    pickler = Pickler(file, buffer_callback=keep, mains=[main], hidden=names, trace=trace, maps=maps)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pickler.dump(value)
        for part in (file.getbuffer(), *buffers):
            found.update(part)
        for inode in sorted(maps.inodes):
            found.update(inode.encode())
    except Exception:  # pickling runs the value's own code
        return None
    if shared is not None:
        found_here = pickler.memo.copy().items()
        shared.update({ident: obj for ident, (_, obj) in found_here if _may_be_shared(obj)})
    return found.hexdigest()[:32]


class _FilesUsed(FileMaps):
    """The mapped files of this process. `inodes`: those of the files that a pickle refers to."""

    def __init__(self, copies_below: int) -> None:
        super().__init__(copies_below)
        self.inodes: set[str] = set()

    def find(self, address: int, size: int) -> tuple[FileMap, int] | None:
        found = super().find(address, size)
        if found is not None:
            self.inodes.add(found[0].inode)
        return found


def _may_be_shared(obj: Any) -> bool:
    """Return whether it makes a difference if two names refer to this object or to equal ones."""
    if isinstance(obj, _CONTAINERS):
        return True
    if isinstance(obj, (type, types.ModuleType, types.FunctionType, enum.Enum)):
        return False
    return hasattr(obj, "__dict__") or hasattr(obj, "__array_interface__")

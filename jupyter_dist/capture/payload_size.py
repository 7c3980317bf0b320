"""The note on a large payload: its size, and its largest values."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..worker.pickling import Pickler

__all__ = ["LARGE", "SENDS", "note"]

LARGE = 100_000_000
"""The size in bytes from which a payload gets a note."""
SENDS = "jupyter-dist sends"
"""How each note on a payload's size begins."""


def note(
    size: int, values: Mapping[str, Any], mains: Sequence[dict[str, Any]], hidden: Collection[str]
) -> str:
    """Return the note on a payload of `size` bytes. `mains` and `hidden` are as for pickling."""
    counter = _Counter()
    pickler = Pickler(counter, buffer_callback=counter.aside, mains=mains, hidden=hidden)
    sizes = {}
    # Data first, and in one pickler: a function that uses X then does not count X again.
    for name in sorted(values, key=lambda name: callable(values[name])):
        before = counter.size
        pickler.dump(values[name])
        sizes[name] = counter.size - before
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:3]
    shown = ", ".join(f"{name} {_bytes(size)}" for name, size in largest if size > LARGE / 100)
    return f"{SENDS} {_bytes(size)} with the cell: {shown}"


class _Counter:
    """A file that stores only its size."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: Any) -> int:
        self.size += len(data)
        return len(data)

    def aside(self, buffer: pickle.PickleBuffer) -> bool:
        self.size += buffer.raw().nbytes
        return False


def _bytes(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"

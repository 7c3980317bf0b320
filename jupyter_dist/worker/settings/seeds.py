"""Random numbers of a rank, derived from the notebook's.

The notebook sends a digest of each generator's state. A rank's numbers follow from the digest and the rank's
number. So the same state produces the same run, and no two ranks draw the same numbers. If the notebook was
seeded, a restarted rank draws the same numbers as at first. Otherwise it draws different ones.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .. import import_hooks

__all__ = ["Seed", "apply", "sow"]

Seed = tuple[str, bool]
"""A digest of a generator's state, and whether the user has seeded that generator."""


def apply(seeds: Mapping[str, Seed], rank: int, attempt: int) -> None:
    """Seed the imported generators now, and the others right after their import.

    Call this when the cell's names are loaded: a module of theirs may have set one seed at its import, the
    same on all ranks.
    """
    for name, (digest, seeded) in seeds.items():
        if name in _GENERATORS:
            place = f"{name} {digest} {rank}" if seeded else f"{name} {digest} {rank} {attempt}"
            number = int.from_bytes(hashlib.sha256(place.encode()).digest(), "big")
            import_hooks.call(_GENERATORS[name][0], partial(sow, name, number))


def sow(name: str, number: int) -> None:
    """Seed a generator with 256 bits. Does nothing if it is not imported."""
    module, seed = _GENERATORS[name]
    if module in sys.modules:
        seed(sys.modules[module], number)


_GENERATORS: dict[str, tuple[str, Callable[[Any, int], object]]] = {
    "random": ("random", lambda random, number: random.seed(number)),
    # Numbers of 32 bits: https://numpy.org/doc/stable/reference/random/generated/numpy.random.seed.html
    "numpy": (
        "numpy.random",
        lambda numpys, number: numpys.seed([number >> 32 * word & 0xFFFFFFFF for word in range(8)]),
    ),
    "torch": ("torch", lambda torch, number: torch.manual_seed(number >> 193)),
    "tensorflow": ("tensorflow", lambda tensorflow, number: tensorflow.random.set_seed(number >> 225)),
}
"""A generator's name → the module that provides it, and the function that seeds it with 256 bits."""

"""Give a rank random numbers of its own that follow from the notebook's.

The notebook sends a digest of each generator's state. A rank's numbers follow from the digest and the rank's
number: the same state gives the same run, and no two ranks draw alike. A rank that is started again draws
what it drew at first where the notebook was seeded, and something else where nobody has seeded anything.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from .. import import_hooks

__all__ = ["Seed", "apply"]

Seed = tuple[str, bool]
"""A digest of a generator's state, and whether somebody has seeded that generator."""


def apply(seeds: Mapping[str, Seed], rank: int, attempt: int) -> None:
    """Seed what is imported now, and the rest right after its import.

    Called when the cell's names are there: a module that came with them may have seeded at its import, on
    all ranks alike.
    """
    for name, (digest, seeded) in seeds.items():
        if name in _GENERATORS:
            place = f"{name} {digest} {rank}" if seeded else f"{name} {digest} {rank} {attempt}"
            number = int.from_bytes(hashlib.sha256(place.encode()).digest(), "big")
            module, sow = _GENERATORS[name]
            import_hooks.call(module, _sower(module, sow, number))


def _sower(module: str, sow: Callable[[Any, int], object], number: int) -> Callable[[], None]:
    def act() -> None:
        sow(sys.modules[module], number)

    return act


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
"""A generator's name → the module after whose import it is there, and how a number of 256 bits seeds it."""

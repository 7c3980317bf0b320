"""Seeds of a run's random numbers, from the state of the notebook's generators. Draws no number.

The state alone does not show whether a generator was seeded, and the difference matters. Two runs from one
state draw the same numbers if the user seeded it. Without a seed the second run must draw other numbers. A
wrong guess costs little. In a notebook that seeds, "Restart and Run All" draws the same numbers in either
case: a run's numbers follow from the state, and from how many runs had that state before.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import pickle
import re
import sys
from collections.abc import Collection
from typing import Any

from ..worker.settings.seeds import Seed
from .notebook_history import CELLS

__all__ = ["read"]

_SMALL = 1 << 48
"""torch seeds itself with 64 random bits. People use small numbers."""
_CALLS = re.compile(r"\b([\w.]*(?:seed|set_?(?:rng_)?state)\w*)\s*\((?!\s*\))", re.IGNORECASE)
"""Calls that seed. A call without an argument does not count: `random.seed()` makes numbers random again."""
_NO_SEEDING = ("SeedSequence", "SeedGenerator")
_OF_ONE = {
    "torch": ("torch.", "manual_seed", "manual_seed_all", "set_rng_state"),
    "numpy": ("np.random.", "numpy.random."),
    "tensorflow": ("tf.random.", "tensorflow.random."),
    "random": ("random.seed", "random.setstate"),
}

_last: dict[str, tuple[bytes, int]] = {}
"""By generator: the state that the last run had, and how many runs before it had the same state."""


def read(texts: Collection[str]) -> dict[str, Seed]:
    """Return the seeds for the ranks of one run, by generator. Libraries that are not imported are left out.

    `texts` are the cells that have run. They show which generators were seeded.
    """
    told = _told(texts)
    seeds: dict[str, Seed] = {}
    for name, look in (
        ("random", _random),
        ("numpy", _numpy),
        ("torch", _torch),
        ("tensorflow", _tensorflow),
    ):
        try:
            state, seeded = look()
        except (AttributeError, KeyError, TypeError):
            continue  # the library is not imported, or other code has replaced its generator
        seeded = seeded or name in told
        digest = hashlib.sha256(name.encode() + state).digest()
        count = 0
        if not seeded:
            last, count = _last.get(name, (b"", -1))
            count = count + 1 if last == digest else 0
            _last[name] = digest, count
        seeds[name] = hashlib.sha256(digest + str(count).encode()).hexdigest(), seeded
    return seeds


def _told(texts: Collection[str]) -> set[str]:
    """Return the generators that cells have seeded, judged by their calls. `seed_everything(0)` seeds all."""
    told: set[str] = set()
    for name in frozenset().union(*map(_calls, texts)):
        of_one = {
            library
            for library, calls in _OF_ONE.items()
            if any(name.startswith(call) if call.endswith(".") else name == call for call in calls)
            or (library == "torch" and name.endswith(("manual_seed", "manual_seed_all")))
        }
        told |= of_one or set(_OF_ONE)
    return told


@functools.lru_cache(CELLS)
def _calls(text: str) -> frozenset[str]:
    return frozenset(match[1] for match in _CALLS.finditer(text) if not match[1].endswith(_NO_SEEDING))


def _random() -> tuple[bytes, bool]:
    keras = sys.modules.get("keras.src.backend.common.global_state")
    # Keras's set_random_seed seeds all generators. It is the only such function that stores its seed.
    by_keras = keras is not None and keras.get_global_attribute("global_random_seed") is not None
    return pickle.dumps(sys.modules["random"].getstate()), by_keras


def _numpy() -> tuple[bytes, bool]:
    numpys: Any = sys.modules["numpy.random"]
    generator = numpys.get_bit_generator()
    # numpy stores the source of a generator's first state until the generator is seeded. numpy 1.24 does not.
    seeded = getattr(generator, "seed_seq", generator) is None
    return pickle.dumps(numpys.get_state(legacy=False)), seeded


def _torch() -> tuple[bytes, bool]:
    torch: Any = sys.modules["torch"]
    first = torch.initial_seed()
    state = torch.get_rng_state()
    return ctypes.string_at(state.data_ptr(), state.nbytes), first < _SMALL or first > 2**64 - _SMALL


def _tensorflow() -> tuple[bytes, bool]:
    context: Any = sys.modules["tensorflow.python.eager.context"]._context
    return pickle.dumps((context._seed, context._rng.getstate())), True

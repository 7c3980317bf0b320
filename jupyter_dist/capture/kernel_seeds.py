"""What a run's random numbers follow from: the state of the notebook's generators. Draws none.

Whether a generator was seeded cannot be told from its state alone, and matters twice. Two runs of one state
draw the same where it was seeded; where nobody has, the second differs, as random numbers should. A guess
that is wrong costs no more than that: in a notebook that seeds, "Restart and Run All" gives the same numbers
in either case, as whatever a run draws follows from a state and from the number of runs that had it before.
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

__all__ = ["read"]

_SMALL = 1 << 48
"""torch seeds itself with 64 random bits, people with small numbers."""
_CALLS = re.compile(r"\b([\w.]*(?:seed|set_?(?:rng_)?state)\w*)\s*\((?!\s*\))", re.IGNORECASE)
"""Not without an argument: `random.seed()` makes random what was not."""
_NO_SEEDING = ("SeedSequence", "SeedGenerator")
_OF_ONE = {
    "torch": ("torch.", "manual_seed", "manual_seed_all", "set_rng_state"),
    "numpy": ("np.random.", "numpy.random."),
    "tensorflow": ("tf.random.", "tensorflow.random."),
    "random": ("random.seed", "random.setstate"),
}

_last: dict[str, tuple[bytes, int]] = {}
"""Of each generator, the state that the last run had, and how many runs before it had that one."""


def read(texts: Collection[str]) -> dict[str, Seed]:
    """The seeds for the ranks of one run, by the generators' names; those of libraries that are not imported
    are left out. `texts` are the cells that have run, which tell what was seeded."""
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
            continue  # not imported, or somebody has put another generator in its place
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
    """The generators that cells have seeded, by the calls in them; `seed_everything(0)` seeds all."""
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


@functools.lru_cache(1000)
def _calls(text: str) -> frozenset[str]:
    return frozenset(match[1] for match in _CALLS.finditer(text) if not match[1].endswith(_NO_SEEDING))


def _random() -> tuple[bytes, bool]:
    keras = sys.modules.get("keras.src.backend.common.global_state")
    # Its set_random_seed seeds all, and is the only one that can be asked afterwards.
    by_keras = keras is not None and keras.get_global_attribute("global_random_seed") is not None
    return pickle.dumps(sys.modules["random"].getstate()), by_keras


def _numpy() -> tuple[bytes, bool]:
    numpys: Any = sys.modules["numpy.random"]
    generator = numpys.get_bit_generator()
    # numpy keeps where a generator's first state came from until somebody seeds it; 1.24 does not tell.
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

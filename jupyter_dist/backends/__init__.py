"""Which backends there are. Importing this imports none of them; `load` imports one.

A third-party backend is an entry point in the group `jupyter_dist.backends` whose value is
a class with the members of `Backend`: see docs/backends.md.
"""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points

from ..errors import MissingEngine, UnknownBackend
from ..worker.boot import STACK_SIGNAL
from ._base import Backend, Capabilities, Handle, Options

__all__ = ["STACK_SIGNAL", "Backend", "Capabilities", "Handle", "Options", "install_hint", "load", "names"]


@dataclass(frozen=True)
class _Entry:
    target: str
    """Where the class is, as `module:class`."""
    install: str
    """What to run when its engine is missing."""


_BUILT_IN = {
    "horovod": _Entry("jupyter_dist.backends.horovod:Horovod", "jupyter dist install-horovod"),
    "local": _Entry("jupyter_dist.backends.local:Local", 'pip install "jupyter-dist"'),
    "mpi": _Entry("jupyter_dist.backends.mpi:Mpi", "apt-get install openmpi-bin"),
    "ssh": _Entry("jupyter_dist.backends.ssh:Ssh", "apt-get install openssh-client"),
    "torchrun": _Entry("jupyter_dist.backends.torchrun:Torchrun", 'pip install "jupyter-dist[torch]"'),
}


@cache
def _table() -> dict[str, _Entry]:
    found = {
        point.name: _Entry(
            point.value, f"pip install --upgrade {point.dist.name if point.dist else point.name}"
        )
        for point in entry_points(group="jupyter_dist.backends")
    }
    return {**found, **_BUILT_IN}


def names() -> list[str]:
    """All backend names, sorted."""
    return sorted(_table())


def install_hint(name: str) -> str:
    """What to run when the engine of a known backend is missing."""
    return _table()[name].install


@cache
def load(name: str) -> Backend:
    """The backend of that name.

    Raises UnknownBackend, listing what there is, and MissingEngine, with what to install.
    """
    entry = _table().get(name)
    if entry is None:
        close = difflib.get_close_matches(name, names(), 1)
        raise UnknownBackend(
            f"no backend {name!r}. "
            + (f"Did you mean {close[0]!r}? " if close else "")
            + f"There are: {', '.join(names())}."
        )
    module, _, attribute = entry.target.partition(":")
    try:
        backend: Backend = getattr(importlib.import_module(module), attribute)()
    except ImportError as error:
        raise MissingEngine(f"backend {name!r} cannot be loaded ({error}): {entry.install}") from error
    return backend

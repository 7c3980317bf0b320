"""Distributed runs of notebook cells and functions, with a live view of every process.

In a notebook: `%load_ext jupyter_dist`, then `%%distribute -np 4` as the first line of a cell. In that
cell, on every rank: `import jupyter_dist as dist` and `dist.rank()`, `dist.log(loss=…)`, ….
The import of this package imports nothing else. Each name below loads its module at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from .showing.comparison import compare
    from .showing.run import Run
    from .start import attach, run, session
    from .worker.api import (
        attempt,
        barrier,
        device,
        init,
        input,
        local_rank,
        local_world_size,
        log,
        model_dir,
        progress,
        rank,
        shard,
        strategy,
        world_size,
    )
    from .worker.api.folders import checkpoint_dir
    from .worker.api.trial_parameters import parameters

__version__ = "0.1.0"

_HOME = {
    "Run": "showing.run",
    "compare": "showing.comparison",
    "parameters": "worker.api.trial_parameters",
    "attach": "start",
    "run": "start",
    "session": "start",
}
"""The modules of the names that are not in `worker.api`."""

__all__ = [
    "Run",
    "attach",
    "attempt",
    "barrier",
    "checkpoint_dir",
    "compare",
    "device",
    "init",
    "input",
    "local_rank",
    "local_world_size",
    "log",
    "model_dir",
    "parameters",
    "progress",
    "rank",
    "run",
    "session",
    "shard",
    "strategy",
    "world_size",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_HOME.get(name, 'worker.api')}"), name)
    if name == "run":  # the first `run`: record how trainers are created from now on
        importlib.import_module(f"{__name__}.capture.trainer_calls").install()
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Load the extension. `%load_ext jupyter_dist` calls this function."""
    from .magics import load_ipython_extension

    load_ipython_extension(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Unload the extension. `%unload_ext jupyter_dist` calls this function."""
    from .magics import unload_ipython_extension

    unload_ipython_extension(shell)


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Return the module of the server extension, for jupyter_server."""
    return [{"module": "jupyter_dist.server"}]

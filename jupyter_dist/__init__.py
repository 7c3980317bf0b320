"""Ship a notebook's training function to many processes, and watch every one of them.

In a notebook: `%load_ext jupyter_dist`, then `%%distribute -np 4` in front of a cell. In that
cell, on every rank: `import jupyter_dist as dist` and `dist.rank()`, `dist.log(loss=…)`, ….
Importing this package imports nothing else; each name below loads its module when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from .showing.run import Run
    from .start import attach, run
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
    **dict.fromkeys(
        (
            "attempt",
            "barrier",
            "checkpoint_dir",
            "device",
            "init",
            "input",
            "local_rank",
            "local_world_size",
            "log",
            "model_dir",
            "progress",
            "rank",
            "shard",
            "strategy",
            "world_size",
        ),
        "worker.api",
    ),
    "Run": "showing.run",
    "parameters": "worker.api.trial_parameters",
    "attach": "start",
    "run": "start",
}

__all__ = [
    "Run",
    "attach",
    "attempt",
    "barrier",
    "checkpoint_dir",
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
    "shard",
    "strategy",
    "world_size",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    if name == "run":  # somebody means to send something: see how it is made
        importlib.import_module(f"{__name__}.capture.trainer_calls").install()
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by `%load_ext jupyter_dist`."""
    from .magics import load_ipython_extension

    load_ipython_extension(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Called by `%unload_ext jupyter_dist`."""
    from .magics import unload_ipython_extension

    unload_ipython_extension(shell)


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Where jupyter_server finds the extension."""
    return [{"module": "jupyter_dist.server"}]

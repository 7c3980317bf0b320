"""The notebooks that contenders run in: ours, and those of the peers that live in one."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ._notebook import Notebook, notebook

__all__ = ["answer", "in_parallel_kernels", "ours", "own_folders", "plain", "with_engines"]

_START_S = 300.0


@contextlib.contextmanager
def ours(folder: Path, setup: str = "", *, package: Path | None = None) -> Iterator[Notebook]:
    """A notebook with our magics and its own runs folder. `package`: where another jupyter_dist lies."""
    env = own_folders(folder) | ({} if package is None else {"PYTHONPATH": str(package)})
    with notebook(folder, env=env) as found:
        found.run(f"%load_ext jupyter_dist\n{setup}", timeout_s=_START_S)
        yield found


@contextlib.contextmanager
def plain(folder: Path, setup: str = "") -> Iterator[Notebook]:
    """A notebook with nothing but IPython in it."""
    with notebook(folder, env=own_folders(folder)) as found:
        found.run(setup or "pass", timeout_s=_START_S)
        yield found


@contextlib.contextmanager
def with_engines(folder: Path, engines: int, setup: str = "") -> Iterator[Notebook]:
    """A notebook with an ipyparallel cluster; `setup` has run in it and on every engine."""
    with notebook(folder, env=own_folders(folder)) as found:
        found.run(
            "import ipyparallel as ipp\n"
            f"rc = ipp.Cluster(n={engines}, log_level=40).start_and_connect_sync(activate=True)\n"
            "dv = rc[:]\n"
            f"{setup}",
            timeout_s=_START_S,
        )
        if setup:
            found.run(f"dv.execute({setup!r}, block=True)", timeout_s=_START_S)
        yield found


@contextlib.contextmanager
def in_parallel_kernels(folder: Path, processes: int, setup: str = "") -> Iterator[Notebook]:
    """A notebook of jupyter-distributed as its server extension starts it.

    It sends its live output through a comm that its front-end opens; so that is done here as well."""
    env = {
        **own_folders(folder),
        "JUPYTER_DISTRIBUTED_WORLD_SIZE": str(processes),
        "JUPYTER_DISTRIBUTED_BASE_KERNEL": "python3",
        "JUPYTER_DISTRIBUTED_CWD": str(folder),
        "JUPYTER_DISTRIBUTED_REGISTRY_FILE": str(folder / "registry.json"),
    }
    with notebook(folder, argv=["-m", "jupyter_distributed.kernel"], env=env) as found:
        found.run(setup or "pass", timeout_s=_START_S)
        found.open_comm("jupyter.distributed.rank_updates")
        yield found


def own_folders(folder: Path) -> dict[str, str]:
    return {"JUPYTER_DIST_RUNS": str(folder / "runs"), "IPYTHONDIR": str(folder / "ipython")}


def answer(found: Notebook, expression: str, *, timeout_s: float = 60.0) -> Any:
    """The value of an expression in the notebook, which must be JSON."""
    cell = found.run(f"import json as _json; print(_json.dumps({expression}))", timeout_s=timeout_s)
    return json.loads(cell.text.splitlines()[-1])

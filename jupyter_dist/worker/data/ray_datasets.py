"""Each rank's part of a Ray Dataset: one `streaming_split`, which all ranks of the run read together.

The split belongs to an actor with the run's name. The first rank that asks makes the actor, and the other
ranks get their parts of the same split. The actor is detached, because the end of one rank must not remove
the data of the others. The actor ends itself when all ranks have left, or when no rank has sent a heartbeat
for a while.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import signal
import threading
import uuid
import weakref
from typing import Any

__all__ = ["join", "join_cluster", "lasting_name", "name", "share"]

_NAMESPACE = "jupyter_dist"
_IDLE_S = 600.0
"""The time without a heartbeat after which the actor ends. A rank sends heartbeats while its threads run."""
_HEARTBEAT_S = 20.0
_LEAVING_S = 5.0

_names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_parts: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_made_here = 0
_holder: Any = None


def join(address: str | None = None) -> Any:
    """Connect this process to its Ray cluster for datasets, and return the module `ray`.

    The rest is as for `join_cluster`.
    """
    ray = join_cluster(address, "a Ray Dataset")
    importlib.import_module("ray.data")
    return ray


def join_cluster(address: str | None, what: str) -> Any:
    """Connect this process to its Ray cluster, and return the module `ray`.

    The cluster is that of RAY_ADDRESS, which ranks on Ray have, otherwise the one at `address`. `what` needs
    the cluster.
    Raises ModuleNotFoundError if Ray is not installed, ConnectionError if the cluster cannot be reached.
    """
    try:
        ray = importlib.import_module("ray")
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise ModuleNotFoundError(
            f"{what} needs Ray on every rank: pip install 'ray[data]'", name="ray"
        ) from None
    if not ray.is_initialized():
        where = os.environ.get("RAY_ADDRESS") or address or "auto"
        ended = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address=where, log_to_driver=False, logging_level="WARNING", configure_logging=False)
        except Exception as error:
            raise ConnectionError(
                f"this rank cannot join the Ray cluster at {where}, which contains the data. "
                "Run the cell with --backend ray, or build the dataset from data that every rank can read. "
                f"Ray's error: {error}"
            ) from error
        finally:
            # Ray's own handler would end the rank as a failed one (ray._private.worker.connect).
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, ended)
    return ray


def name(dataset: Any, known_as: str) -> Any:
    """Assign a dataset its name, which is the same on every rank, and return the dataset."""
    _names[dataset] = known_as
    return dataset


def lasting_name(dataset: Any) -> str:
    """Return the name of a dataset in the run. A dataset of the kernel without a name gets a lasting one."""
    return _names.setdefault(dataset, uuid.uuid4().hex)


def share(dataset: Any, rank: int, world_size: int) -> Any:
    """Return this rank's part of a Ray Dataset, a `ray.data.DataIterator`. Each dataset has only one."""
    if world_size == 1:
        return dataset.iterator()
    found = _parts.get(dataset)
    if found is None:
        ray = join()
        ask = _the_holder(ray).part.remote(f"{_name_of(dataset)} {world_size}", dataset, world_size, rank)
        found = _parts[dataset] = ray.get(ask)
    return found


def _name_of(dataset: Any) -> str:
    """Return a dataset's name.

    Datasets that ranks make themselves are counted: each rank makes the same ones.
    """
    global _made_here
    known = _names.get(dataset)
    if known is None:
        _made_here += 1
        known = _names[dataset] = f"the {_made_here}th made on each rank"
    return known


def _the_holder(ray: Any) -> Any:
    global _holder
    if _holder is None:
        run, attempt = os.environ["JUPYTER_DIST_RUN_ID"], os.environ.get("JUPYTER_DIST_ATTEMPT", "0")
        _holder = (
            ray.remote(_class_of_the_holder())
            .options(
                name=f"splits-{run}-{attempt}",
                namespace=_NAMESPACE,
                get_if_exists=True,
                lifetime="detached",
                num_cpus=0,
            )
            .remote(_IDLE_S)
        )
        rank = int(os.environ["RANK"])
        atexit.register(_leave, ray, _holder, rank)
        threading.Thread(target=_keep_alive, args=(_holder, rank), daemon=True).start()
    return _holder


def _keep_alive(holder: Any, rank: int) -> None:
    """Send heartbeats. Errors are ignored: a reader of the data gets its own error if the actor has ended."""
    wait = threading.Event()
    with contextlib.suppress(Exception):
        while not wait.wait(_HEARTBEAT_S):
            holder.here.remote(rank)


def _leave(ray: Any, holder: Any, rank: int) -> None:
    # The last rank's call ends the actor, and therefore raises.
    with contextlib.suppress(Exception):
        ray.get(holder.leave.remote(rank), timeout=_LEAVING_S)


def _class_of_the_holder() -> Any:
    # The class is nested, so it is pickled as a whole. Ray's workers then need no code of jupyter-dist.
    class Splits:
        """The splits of one attempt of a run."""

        def __init__(self, idle_s: float) -> None:
            import threading
            import time

            self._now = time.monotonic
            self._splits: dict[str, Any] = {}
            self._ranks: set[int] = set()
            self._heard = self._now()
            threading.Thread(target=self._end_when_idle, args=(idle_s,), daemon=True).start()

        def part(self, known_as: str, dataset: Any, ways: int, rank: int) -> Any:
            self.here(rank)
            if known_as not in self._splits:
                self._splits[known_as] = dataset.streaming_split(ways, equal=True)
            return self._splits[known_as][rank]

        def here(self, rank: int) -> None:
            self._heard = self._now()
            self._ranks.add(rank)

        def leave(self, rank: int) -> None:
            self._ranks.discard(rank)
            if not self._ranks:
                import importlib

                importlib.import_module("ray").actor.exit_actor()

        def _end_when_idle(self, idle_s: float) -> None:
            import importlib
            import time

            while self._now() - self._heard < idle_s:
                time.sleep(min(idle_s, 5.0))
            ray = importlib.import_module("ray")
            ray.kill(ray.get_runtime_context().current_actor)

    return Splits

"""Runs that launch a Ray cluster from a cluster-launcher file, keep a connection to it open, or take it down.

Such a run is one rank of the backend `local`, which calls a function of ray_cluster_tasks.py. So the run
outlives the kernel, its output is a run's log, Stop ends it, and every view shows it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from .. import clusters
from ..backends.ray import cluster_file
from ..backends.ray.cluster_file import LauncherFile
from ..errors import DistError, InputError, RunNotFound
from ..folder import RunFolder, runs
from ..plan.run_plan import make_plan
from ..queries.answers.forms import Launching
from ..record import reader
from ..worker.host.ports import free_ports
from .origin import Origin
from .run_start import start_cell

if TYPE_CHECKING:
    from ..showing.run import Run

__all__ = [
    "Verb",
    "begin",
    "launch",
    "port_of",
    "purpose_of",
    "start",
    "under_way",
    "wait_until_open",
]

Verb = Literal["up", "attach", "down"]
_VERBS = ("up", "attach", "down")
_KIND = "ray-cluster"
_RECENT = 200
"""Number of newest runs that are searched for one that has not ended."""


def launch(verb: str, file: str, name: str | None = None) -> Launching:
    """Start the run for a view, with `begin`. Returns the run's id."""
    if verb not in _VERBS:
        raise InputError(f"{verb!r} is not a command for a Ray cluster. Use one of: {', '.join(_VERBS)}")
    return {"run_id": begin(cast(Verb, verb), file, name).id}


def begin(verb: Verb, given: str, name: str | None = None) -> Run:
    """Start the run for this verb. Blocks for the seconds that the checks of the file take.

    Args:
        given: the cluster-launcher file, or the name of a cluster that was launched from one.
        name: the name for the saved cluster, by default the name in the file.

    If the cluster is already attached, the run that attaches it is returned.
    Raises InputError or MissingEngine, with nothing started.
    """
    saved = _launched(given)
    file = cluster_file.read(given if saved is None else str(saved.launched_from))
    name = name or (saved.name if saved is not None else _known_as(file) or file.name)
    _check_name(name, file)
    for folder in under_way(file.path):
        running = purpose_of(folder)["verb"]
        if running == verb == "attach":
            from ..showing.run import Run

            return Run(folder)
        if running != "attach":
            raise InputError(
                f"Run {folder.id} is already running `ray {running} {file.path.name}`. Stop it with "
                f"`%dist stop {folder.id}`, or wait until it ends"
            )
    return start(verb, file, name)


def start(verb: Verb, file: LauncherFile, name: str) -> Run:
    """Start the run for a checked file. Does not wait for the run."""
    purpose: dict[str, Any] = {"verb": verb, "file": str(file.path)}
    given: dict[str, Any] = {"cluster": name}
    if verb != "down":
        given["client_port"] = file.client_port
    if verb == "attach":
        given["local_port"] = purpose["local_port"] = port_of(name) or free_ports(1)[0]
    call = ", ".join([repr(str(file.path)), *(f"{key}={value!r}" for key, value in given.items())])
    source = f"from jupyter_dist.start import ray_cluster_tasks\n\nray_cluster_tasks.{verb}({call})\n"
    options = {"backend": "local", "np": 1, "gpus_per_worker": 0, "cold": True, "stall_timeout": 0}
    plan = make_plan({**options, "ship_modules": "none"}, spelled_as_flags=False, cluster=False)
    label = f"ray {verb} {file.path.name}"
    origin = Origin(label, Path.cwd(), purpose={_KIND: purpose})
    # Use an empty namespace: nothing of this process is captured.
    return start_cell(source, {"__name__": "__main__"}, plan, origin)


def under_way(path: Path) -> Iterator[RunFolder]:
    """Yield the runs of this file that have not ended, the newest first."""
    for _, folder in zip(range(_RECENT), runs(), strict=False):
        try:
            if purpose_of(folder).get("file") == str(path) and not reader.status(folder).state.ended:
                yield folder
        except RunNotFound:
            continue


def purpose_of(folder: RunFolder) -> Mapping[str, Any]:
    """Return such a run's `verb`, `file` and `local_port`. Empty for any other run. Raises RunNotFound."""
    found: Mapping[str, Any] = (reader.job(folder).purpose or {}).get(_KIND, {})
    return found


def port_of(name: str) -> int | None:
    """Return the port of this machine that was last forwarded to the cluster. None if there was none."""
    cluster = clusters.load().get(name)
    found = re.fullmatch(r"ray://127\.0\.0\.1:(\d+)", str(cluster and cluster.options.get("address")))
    return int(found[1]) if found else None


def _launched(given: str) -> clusters.Cluster | None:
    """Return the saved cluster of that name, if it was launched from a file and no file has that name."""
    if Path(given).expanduser().exists():
        return None
    try:
        found = clusters.load().get(given)
    except DistError:
        return None
    return found if found is not None and found.launched_from else None


def _known_as(file: LauncherFile) -> str | None:
    found = (one.name for one in clusters.load().values() if one.launched_from == str(file.path))
    return next(found, None)


def _check_name(name: str, file: LauncherFile) -> None:
    cure = "Choose another name with --name NAME"
    try:
        clusters.check_name(name)
    except InputError as error:
        raise InputError(f"{error}. {cure}") from None
    known = clusters.load().get(name)
    if known is not None and known.launched_from != str(file.path):
        raise InputError(
            f"A saved cluster {name!r} already exists, and it was not launched from {file.path.name}. {cure}"
        )


def wait_until_open(run: Run, limit_s: float) -> str | None:
    """Wait until an attaching run has opened its connection. Returns the address.

    Returns None if the run ends before, or after `limit_s`.
    """
    # The run prints the address first on a line. A test of the port could meet an earlier run's connection.
    address = f"ray://127.0.0.1:{purpose_of(run.folder)['local_port']}"
    until = time.monotonic() + limit_s
    while time.monotonic() < until and not run.state.ended:
        if any(line.startswith(f"{address} ") for line in run.log(0).split("\n")):
            return address
        time.sleep(0.1)
    return None

"""Launch a Ray cluster from a cluster-launcher file, keep a way to it open, take it down: a run for each.

Such a run is one rank of the backend `local` that calls a function of ray_cluster_tasks.py. So it outlives
the kernel, its output is a run's log, Stop ends it, and every view shows it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

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

__all__ = ["Verb", "begin", "launch", "port_of", "start", "under_way", "wait_until_open"]

Verb = Literal["up", "attach", "down"]
_VERBS = ("up", "attach", "down")
_RECENT = 200
"""A run that is not at its end is looked for among so many, the newest."""


def launch(verb: str, file: str, name: str | None = None) -> Launching:
    """`begin`, for a view: returns the id of the run."""
    if verb not in _VERBS:
        raise InputError(f"{verb!r} is not a command for a Ray cluster. Use one of: {', '.join(_VERBS)}")
    return {"run_id": begin(cast(Verb, verb), file, name).id}


def begin(verb: Verb, given: str, name: str | None = None) -> Run:
    """Start the run that does it; blocks for the seconds that the checks of the file take.

    `given`: the cluster-launcher file, or the name of a cluster that was launched from one. `name`: what the
    cluster is saved as, by default what the file calls it. Of a cluster that is attached already the run that
    does it is returned. Raises InputError or MissingEngine, with nothing started.
    """
    saved = _launched(given)
    file = cluster_file.read(given if saved is None else str(saved.launched_from))
    name = name or (saved.name if saved is not None else _known_as(file) or file.name)
    _check_name(name, file)
    for folder in under_way(file.path):
        running = reader.job(folder).label.split()[1]
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
    """Start the run of a file that was checked; returns at once."""
    arguments = {"up": f"client_port={file.client_port}", "down": ""}.get(verb)
    if arguments is None:
        arguments = f"client_port={file.client_port}, local_port={port_of(name) or free_ports(1)[0]}"
    given = ", ".join(filter(None, (repr(str(file.path)), f"cluster={name!r}", arguments)))
    source = f"from jupyter_dist.start import ray_cluster_tasks\n\nray_cluster_tasks.{verb}({given})\n"
    options = {"backend": "local", "np": 1, "gpus_per_worker": 0, "cold": True, "stall_timeout": 0}
    plan = make_plan({**options, "ship_modules": "none"}, spelled_as_flags=False, cluster=False)
    origin = Origin(label=f"ray {verb} {file.path.name}", directory=Path.cwd())
    # The namespace stands for a notebook's; nothing of this process goes along.
    return start_cell(source, {"__name__": "__main__"}, plan, origin)


def under_way(path: Path) -> Iterator[RunFolder]:
    """The runs of this file that are not at their end, the newest first."""
    call = re.compile(rf"ray_launching\.\w+\({re.escape(repr(str(path)))}, ")
    for _, folder in zip(range(_RECENT), runs(), strict=False):
        try:
            if call.search(reader.job(folder).source) and not reader.status(folder).state.ended:
                yield folder
        except RunNotFound:
            continue


def port_of(name: str) -> int | None:
    """The port of this machine that led to the cluster when it was attached last; None where none did."""
    cluster = clusters.load().get(name)
    found = re.fullmatch(r"ray://127\.0\.0\.1:(\d+)", str(cluster and cluster.options.get("address")))
    return int(found[1]) if found else None


def _launched(given: str) -> clusters.Cluster | None:
    """The saved cluster of that name, where it was launched from a file, and none is called so itself."""
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


def wait_until_open(run: Run, limit_s: float) -> bool:
    """Wait until the way that an attaching run opens is there; false where it is not, or the run ends."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until and not run.state.ended:
        if any("leads to" in line for line in run.log(0).split("\n")):
            return True
        time.sleep(0.1)
    return False

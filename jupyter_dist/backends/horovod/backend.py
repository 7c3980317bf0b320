"""The backend `horovod`: ranks started by horovodrun, with Gloo or MPI, elastic or not."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

from ...errors import InputError, MissingEngine
from ...folder import RunFolder, make_private
from ...hosts.openssh import LOCAL
from ...job import Job
from ...text.format import count
from ...worker import layout
from ...worker.horovod.output_files import FILES
from ...worker.host.machine import interface_of
from ...worker.host.ports import free_ports
from ...worker.launchers.fast_horovodrun import ANY_INTERFACE, EXPORTED, PLACES, SENT, START, built_with
from ..interface import Capabilities, Handle, Options
from ..launchers.local_launcher import Follower, LocalLauncher, environment, last_words, shown, worker_argv
from ..launchers.multi_host_launcher import (
    MultiHostLauncher,
    hosts_argument,
    launcher_environment,
    rank_environments,
)
from ..launchers.rank_control import RemoteRanks
from ..notebook_folder import notebook_folder
from ..ranks.default_environment import cores, crowded, loopback
from ..ranks.local_gpus import check_gpus, detected_gpus, gpu_ranks, gpu_wish, would_take
from ..shared_options.hosts import check_hosts
from . import elastic_local as elastic
from .elastic_hosts import ElasticLauncher
from .host_discovery import is_local
from .options import HorovodOptions, flags, interfaces

__all__ = ["Horovod", "HorovodOptions"]

_MISSING = (
    "the backend 'horovod' needs Horovod, which is not installed beside {python}. "
    "`jupyter dist install-horovod` builds it for the installed torch and TensorFlow in "
    "a few minutes. pip alone fails."
)
_GLOO_TIMEOUT_S = "300"
"""Seconds. Horovod's default of 30 s is too short: a framework's import takes longer on a busy machine."""
_FRAMEWORKS = {"pytorch": ("torch",), "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-gpu")}


class Horovod(Follower):
    """horovodrun starts the ranks. With --min-np it also replaces lost ranks."""

    name: ClassVar[str] = "horovod"
    options: ClassVar[type[Options]] = HorovodOptions
    capabilities: ClassVar[Capabilities] = Capabilities(hosts=True, interrupts=True)
    poll_interval_s: ClassVar[float] = 0.05

    def __init__(self) -> None:
        importlib.invalidate_caches()
        if importlib.util.find_spec("horovod") is None:
            raise MissingEngine(_MISSING.format(python=sys.executable))
        self._launched: LocalLauncher | MultiHostLauncher | ElasticLauncher | None = None
        self._copies: Callable[[], Iterator[tuple[Path, Path]]] = lambda: iter(())

    def default_np(self) -> int:
        return gpu_ranks() or 2

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        found = HorovodOptions(**options)
        if found.elastic:
            elastic.check_script(found, world_size, notebook_folder())
        if found.mpi and shutil.which("mpirun") is None:
            raise InputError("--mpi needs mpirun: apt-get install openmpi-bin, or use --gloo")
        check_hosts(found, users=False)
        elsewhere = found.host_discovery_script or _far(found)
        slots = elastic.slots(found, world_size)
        here = [] if elsewhere else [*check_gpus(found, slots), *_crowded(world_size)]
        return [*_built_for_others(), *here]

    def detect(self) -> dict[str, Any]:
        found: dict[str, Any] = {"horovod": metadata.version("horovod"), **_built_for(), "cores": cores()}
        gpus = detected_gpus()
        found |= gpus if gpus["gpus"] else {}
        mpirun = shutil.which("mpirun")
        return {**found, "mpirun": mpirun} if mpirun else found

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        options = HorovodOptions(**job.options)
        if options.host_discovery_script or _far(options):
            run = Path("RUN" if options.elastic else "STAGE/run")
            argv, env = _over_hosts(job, _with_here(options), attempt, run, ["START"], None)
        else:
            gpus, told = would_take(gpu_wish(options, elastic.slots(options, job.world_size), job))
            names = [gpu.name for gpu in gpus]
            return {**shown(*_request(job, options, attempt, Path("RUN"), 0, names)), **told}
        return shown(argv, env)

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        options = HorovodOptions(**job.options)
        place = folder.attempt(attempt)
        make_private(place)
        self._copies = functools.partial(_copies, job, options, folder, attempt)
        if isinstance(self._launched, MultiHostLauncher | ElasticLauncher):
            return self._launched.submit(attempt)
        if options.elastic and (options.host_discovery_script or _far(options)):
            self._launched = _elastic_hosts(job, folder, options)
            handle = self._launched.submit(attempt)
            elastic.look(job, options, place)
            return handle
        if _far(options):
            self._launched = _staged(job, folder, _with_here(options))
            return self._launched.submit(attempt)
        launched = LocalLauncher(job, folder, attempt, elastic=options.elastic, replaces=options.elastic)
        self._launched = launched

        def start(gpus: Sequence[str], more: Mapping[str, str]) -> Handle:
            argv, env = _request(job, options, attempt, folder.path, free_ports(1)[0], gpus)
            return launched.start(
                argv, {**env, **more}, name="horovodrun", stop_launcher=options.elastic, explain=_explain
            )

        return self.start_with_gpus(job, options, start, takers=elastic.slots(options, job.world_size))

    def release(self, job: Job, folder: RunFolder, handle: Handle) -> str | None:
        for written, wanted in self._copies():
            with contextlib.suppress(OSError):
                make_private(wanted.parent)
                shutil.copyfile(written, wanted)
        return super().release(job, folder, handle)


def _far(options: HorovodOptions) -> list[str]:
    """Return the hosts other than this machine."""
    return [str(host["name"]) for host in options.hosts if not is_local(str(host["name"]))]


def _with_here(options: HorovodOptions) -> HorovodOptions:
    """Return the options with the one name for this machine that needs no ssh."""
    slots: dict[str, int] = {}
    for host in options.hosts:
        name = LOCAL if is_local(str(host["name"])) else str(host["name"])
        slots[name] = slots.get(name, 0) + int(host["slots"])
    hosts = tuple({"name": name, "slots": count} for name, count in slots.items())
    return options.model_copy(update={"hosts": hosts})


def _request(
    job: Job, options: HorovodOptions, attempt: int, run: Path, port: int, gpus: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Return horovodrun's argv for this machine, and its variables that differ from the notebook's. Pure.

    `port`: for MASTER_PORT. `gpus`: the run's GPUs.
    """
    argv, env, gloo = _common(job, options, attempt, run)
    env |= {
        **environment("horovod", job, attempt, job.world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    env |= loopback(os.environ)
    if options.elastic:
        place = Path(layout.attempt_path(run, attempt))
        argv += elastic.arguments(job, options, place, here=True)
        env |= elastic.environment(options, job.world_size, place, gpus)
    elif options.hosts:
        argv += ["-H", ",".join(f"{host['name']}:{host['slots']}" for host in options.hosts)]
    if options.mpi_args:
        argv.append(f"--mpi-args={options.mpi_args}")
    return [*argv, "--gloo" if gloo else "--mpi", *worker_argv(job)], env


def _over_hosts(
    job: Job, options: HorovodOptions, attempt: int, run: Path, start: list[str], interface: str | None
) -> tuple[list[str], dict[str, str]]:
    """Return horovodrun's argv and variables for several hosts.

    `run`: the run's folder on the first host, or on this machine if the run is elastic. `start`: the command
    of a rank, unless the run is elastic. `interface`: this machine's network interface towards the hosts.
    """
    argv, env, gloo = _common(job, options, attempt, run)
    if options.elastic:
        place = Path(layout.attempt_path(run, attempt))
        argv += elastic.arguments(job, options, place, here=False)
        env[PLACES] = str(place)
        start = ["/bin/sh", "-c", f'exec /bin/sh "${START}"']
    else:
        argv += ["-H", hosts_argument(job, options.hosts)]
    if not options.network_interfaces and interface is not None:
        # Without this flag, horovodrun starts a service on every host to find common interfaces.
        argv += ["--network-interfaces", interface]
        env[ANY_INTERFACE] = "1"
    if not gloo:
        # Connect to every host from here with our ssh: hosts cannot log in to each other.
        ours = "-mca plm_rsh_agent ssh -mca plm_rsh_no_tree_spawn 1 --wdir /"
        argv.append(f"--mpi-args={ours} {options.mpi_args or ''}".rstrip())
        env[EXPORTED] = ",".join(job.env_names)
    return [*argv, "--gloo" if gloo else "--mpi", *start], env


def _common(
    job: Job, options: HorovodOptions, attempt: int, run: Path
) -> tuple[list[str], dict[str, str], bool]:
    """Return what does not depend on the hosts: argv, variables, and whether the ranks meet through Gloo."""
    argv = [
        job.python,
        "-m",
        "jupyter_dist.worker.launchers.fast_horovodrun",
        "-np",
        str(job.world_size),
        *flags(options),
    ]
    argv.append("--disable-cache")  # a file shared by all runs of a user, which two runs would damage
    if options.network_interfaces:
        here = {name for _, name in socket.if_nameindex()}
        found = [name for name in options.network_interfaces if name in here]
        # Name one interface: of several, each part of Horovod may choose another one.
        argv += ["--network-interfaces", (found or options.network_interfaces)[0]]
    for flag, variable, _asked in _files(options):
        # Horovod's file is beside the ranks' files, which are copied here from other hosts too.
        place = Path() if options.elastic else Path(layout.attempt_path(run, attempt))
        argv += [flag, str(place / FILES[variable])]
    gloo = options.gloo or options.elastic or (not options.mpi and not _has_mpi())
    if options.binding_args:
        argv.append(f"--binding-args={options.binding_args}")
    if not gloo:
        return argv, _mpi_settings(job.world_size), False
    timeout = os.environ.get("HOROVOD_GLOO_TIMEOUT_SECONDS", _GLOO_TIMEOUT_S)
    env = {SENT: ",".join(job.env_names)}
    if options.gloo_timeout_seconds is None:
        env["HOROVOD_GLOO_TIMEOUT_SECONDS"] = timeout
    return argv, env, True


def _has_mpi() -> bool:
    """Return whether Horovod can use MPI here: mpirun is on PATH, and Horovod was not built without MPI."""
    return shutil.which("mpirun") is not None and built_with() != {"gloo"}


def _staged(job: Job, folder: RunFolder, options: HorovodOptions) -> MultiHostLauncher:
    def start(there: RemoteRanks, attempt: int) -> LocalLauncher:
        facts = [there.fleet.facts(name) for name in there.names]
        client = next((about.client for about in facts if about.client), None)
        interface = interface_of(client) if client else None
        run = Path(facts[0].stage, "run")
        argv, env = _over_hosts(job, options, attempt, run, [there.start_script()], interface)
        launched = LocalLauncher(job, folder, attempt, reach=there)
        env |= launcher_environment(job, folder, options)
        launched.start(argv, env, name="horovodrun", explain=_explain)
        return launched

    return MultiHostLauncher(
        job,
        folder,
        options,
        environments=lambda there, attempt: {
            name: {**env, **interfaces(options)}
            for name, env in rank_environments("horovod", job, attempt, options, there).items()
        },
        start=start,
    )


def _elastic_hosts(job: Job, folder: RunFolder, options: HorovodOptions) -> ElasticLauncher:
    def launch(there: ElasticLauncher, attempt: int, address: str) -> LocalLauncher:
        argv, env = _over_hosts(job, options, attempt, folder.path, [], interface_of(address))
        env |= launcher_environment(job, folder, options, always=True)
        launched = LocalLauncher(job, folder, attempt, elastic=True, replaces=True, reach=there)
        launched.start(argv, env, name="horovodrun", explain=_explain)
        return launched

    return ElasticLauncher(
        job, folder, options, look=lambda place: elastic.command(job, options, place), launch=launch
    )


def _mpi_settings(world_size: int) -> dict[str, str]:
    """Return settings for Open MPI, which other MPIs ignore. The user's own values remain."""
    wanted = {
        # The supervisor stops the other ranks of a failed one, and first gives them time for a checkpoint.
        "OMPI_MCA_orte_abort_on_non_zero_status": "0",
        "OMPI_MCA_odls_base_sigkill_timeout": "5",
    }
    if world_size > cores():
        wanted["OMPI_MCA_mpi_yield_when_idle"] = "1"  # otherwise each waiting rank keeps a core busy
    return {name: value for name, value in wanted.items() if name not in os.environ}


def _files(options: HorovodOptions) -> Iterator[tuple[str, str, str]]:
    """Yield the files that Horovod writes: horovodrun's flag, its variable, and the user's path."""
    if options.timeline is not None:
        yield "--timeline-filename", "HOROVOD_TIMELINE", options.timeline
    if options.autotune_log_file is not None:
        yield "--autotune-log-file", "HOROVOD_AUTOTUNE_LOG", options.autotune_log_file


def _copies(
    job: Job, options: HorovodOptions, folder: RunFolder, attempt: int
) -> Iterator[tuple[Path, Path]]:
    """Yield Horovod's files, each with the path to copy it to.

    The copies are among the run's files, for each attempt and each round of an elastic run. If the user has
    named a folder, a copy is there too.
    """
    for _, variable, asked in _files(options):
        name, wanted = Path(FILES[variable]), Path(asked)
        if options.elastic:
            found = folder.path.glob(layout.rank_path("", "*", "*") + f"/{name.stem}.*{name.suffix}")
            rounds = list(enumerate(sorted(found, key=lambda path: int(path.name.split(".")[1]))))
        else:
            rounds = [(attempt, folder.attempt(attempt) / name)]
        for number, written in rounds:
            kept = wanted.name if number == 0 else f"{wanted.stem}-{number}{wanted.suffix}"
            yield written, folder.files / kept
            if wanted.name != asked:
                yield written, Path(job.cwd, wanted.expanduser()).with_name(kept)


def _built_for() -> dict[str, str]:
    """Return the framework versions that Horovod was built with. Empty if Horovod does not report them."""
    spec = importlib.util.find_spec("horovod")
    if spec is None or spec.origin is None:
        return {}
    try:
        said = json.loads(Path(spec.origin).with_name("metadata.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return {name: str(said[name]) for name in _FRAMEWORKS if name in said}


def _built_for_others() -> list[str]:
    told = []
    for name, version in _built_for().items():
        for distribution in _FRAMEWORKS[name]:
            with contextlib.suppress(metadata.PackageNotFoundError):
                there = metadata.version(distribution)
                if there != version:
                    told.append(
                        f"Horovod was built for {name} {version}, but {there} is installed. Build it again "
                        "with `jupyter dist install-horovod`"
                    )
                break
    return told


def _crowded(world_size: int) -> list[str]:
    gpus = detected_gpus()["gpus"]
    if gpus and world_size > gpus:
        return [f"{world_size} workers share {count(gpus, 'GPU')}"]
    return crowded(world_size)


def _explain(text: str) -> str:
    """Return horovodrun's exception, or mpirun's text between two lines of dashes."""
    raised = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception): (.+)$", text, re.MULTILINE)
    box = re.search(r"^-{20,}\n(.+?)(?:\n\n|^-{20,}$)", text, re.MULTILINE | re.DOTALL)
    found = raised[-1] if raised else box[1] if box else last_words(text)
    return " ".join(found.split())[:300]

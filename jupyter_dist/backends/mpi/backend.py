"""The backend `mpi`: ranks started by mpirun, mpiexec or srun."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Literal

from ...errors import InputError, MissingEngine
from ...folder import RunFolder
from ...job import Job
from ...worker.host.machine import interface_of
from ...worker.host.ports import free_ports
from ...worker.launchers.launched_rank import SRUN
from ...worker.program_output import program_output
from ..interface import Capabilities, Handle, Options
from ..launchers.local_launcher import Follower, LocalLauncher, environment, last_words, shown, worker_argv
from ..launchers.multi_host_launcher import (
    MultiHostLauncher,
    hosts_argument,
    launcher_environment,
    rank_environments,
)
from ..launchers.rank_control import RemoteRanks
from ..ranks.default_environment import crowded, loopback
from ..ranks.local_gpus import check_gpus, detected_gpus, gpu_wish, would_take
from ..shared_options.hosts import check_hosts
from .host_mapping import is_ranked_by_node, mapped_hosts
from .options import MpiOptions

__all__ = ["Mpi", "arguments", "told_apart"]


Kind = Literal["openmpi", "mpich", "intel", "slurm"]
_NAMES: dict[Kind, str] = {
    "openmpi": "Open MPI",
    "mpich": "MPICH",
    "intel": "Intel MPI",
    "slurm": "Slurm",
}
_MISSING = (
    "backend 'mpi' needs mpirun, mpiexec or srun. Install Open MPI: apt-get install "
    "openmpi-bin. If one is installed in another place, name it with --mpirun PATH"
)


class Mpi(Follower):
    """mpirun starts the ranks.

    Each rank writes its own files, because mpirun tears lines that it forwards.
    """

    name: ClassVar[str] = "mpi"
    options: ClassVar[type[Options]] = MpiOptions
    capabilities: ClassVar[Capabilities] = Capabilities(hosts=True, interrupts=True)
    poll_interval_s: ClassVar[float] = 0.05

    def __init__(self) -> None:
        self._launched: LocalLauncher | MultiHostLauncher | None = None

    def default_np(self) -> int:
        return 2

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        found = MpiOptions(**options)
        kind = _kind(_program(found), found)
        if found.hosts:
            if kind == "slurm":
                raise InputError(
                    "srun runs on the hosts that Slurm allocates. Remove -H and --hostfile, or name "
                    "hosts with --mpi-args '--nodelist=node1,node2'"
                )
            check_hosts(found, users=False)
            return []
        if kind == "slurm":
            return []
        if int(os.environ.get("SLURM_JOB_NUM_NODES", "1")) > 1:
            raise InputError(
                "This notebook is in a Slurm allocation of several nodes, "
                f"{os.environ.get('SLURM_JOB_NODELIST')}, and {_NAMES[kind]} would use all of them. "
                "Choose srun with --launcher slurm, or name hosts with -H"
            )
        return [*check_gpus(found, world_size), *crowded(world_size)]

    def detect(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in ("mpirun", "mpiexec", "srun"):
            path = shutil.which(name, path=_search_path())
            if path is None:
                continue
            kind = told_apart(path, _version(path))
            if kind is not None:
                number = re.search(r"\d+(\.\d+)+", _version(path))
                found.setdefault(_NAMES[kind], number[0] if number else path)
        gpus = detected_gpus()
        return {**found, **gpus} if gpus["gpus"] else found

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        options = MpiOptions(**job.options)
        if options.hosts:
            argv = _argv(job, _mapped(job, options), "START")
            return shown(argv, environment("mpi", job, attempt, job.world_size))
        _, told = would_take(gpu_wish(options, job.world_size, job))
        return {**shown(*_request(job, options, attempt, [0] * (1 + job.world_size))), **told}

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        options = MpiOptions(**job.options)
        if options.hosts:
            if not isinstance(self._launched, MultiHostLauncher):
                self._launched = _staged(job, folder, _mapped(job, options))
            return self._launched.submit(attempt)
        argv, env = _request(job, options, attempt, free_ports(1 + job.world_size))
        self._launched = launched = LocalLauncher(job, folder, attempt)
        name = os.path.basename(argv[0])
        # A killed srun leaves its allocation behind, and other jobs wait for it.
        gentle = name == "srun"

        def start(gpus: Sequence[str], more: Mapping[str, str]) -> Handle:
            own = {**env, **(more if not gentle else {})}
            return launched.start(argv, own, name=name, gentle=gentle, explain=_explain, aborted=_aborted)

        # If srun starts the ranks, Slurm assigns the GPUs.
        return self.start_with_gpus(job, options, start, takers=0 if gentle else None)


def _program(options: MpiOptions) -> str:
    """Return the launcher's path. Raises InputError, MissingEngine."""
    if options.mpirun is not None:
        path = shutil.which(options.mpirun, path=_search_path())
        if path is None:
            raise InputError(
                f"--mpirun {options.mpirun!r} is not an executable program on this machine. Name "
                "another program"
            )
        return path
    names = ("srun",) if options.launcher == "slurm" else ("mpirun", "mpiexec", "srun")
    for name in names:
        path = shutil.which(name, path=_search_path())
        if path is not None:
            return path
    raise MissingEngine(_MISSING)


def _search_path() -> str:
    """Return PATH, preceded by the environment of the notebook's Python if that is not activated.

    An MPI that was installed into that environment is the one that its mpi4py uses.
    """
    return _path_with(sys.executable) or os.environ.get("PATH", os.defpath)


def _path_with(program: str) -> str | None:
    """Return PATH with the program's folder first. None if that folder is on PATH already."""
    path, folder = os.environ.get("PATH", os.defpath), os.path.dirname(os.path.abspath(program))
    return None if folder in path.split(os.pathsep) else f"{folder}{os.pathsep}{path}"


def _own_tools(program: str) -> dict[str, str]:
    """Return the PATH for the launcher's own tools: Intel's mpirun runs the first mpiexec.hydra on PATH."""
    path = _path_with(program)
    return {} if path is None else {"PATH": path}


@cache
def _version(program: str) -> str:
    """Return the launcher's version text. Empty if the launcher does not run."""
    try:
        done = program_output([program, "--version"], 20, {**os.environ, **_own_tools(program)})
    except OSError:
        return ""
    return "" if done is None else (done.stdout + done.stderr).strip()


def told_apart(program: str, version: str) -> Kind | None:
    """Return the kind of a launcher from its version text. None: unknown. Pure."""
    if re.search(r"Open ?MPI|OpenRTE|PRRTE", version):
        return "openmpi"
    if re.search(r"Intel\(R\) MPI", version):
        return "intel"
    if re.search(r"HYDRA|MPICH|MVAPICH", version):
        return "mpich"
    # srun of some versions connects to its controller before it prints its version.
    if re.match(r"slurm ", version) or os.path.basename(program) == "srun":
        return "slurm"
    return None


def _kind(program: str, options: MpiOptions) -> Kind:
    if options.launcher != "auto":
        return options.launcher
    version = _version(program)
    kind = told_apart(program, version)
    if kind is None:
        said = version.split("\n")[0] or "nothing"
        raise InputError(
            f"jupyter-dist cannot detect the MPI implementation of {program!r} from its version, "
            f"{said!r}. Name it with --launcher openmpi, mpich, intel or slurm"
        )
    return kind


def _request(
    job: Job, options: MpiOptions, attempt: int, ports: list[int]
) -> tuple[list[str], dict[str, str]]:
    """Return the launcher's argv and variables for this machine alone.

    `ports`: one for MASTER_PORT, then one per rank for TF_CONFIG.
    """
    program = _program(options)
    kind, more = _kind(program, options), shlex.split(options.mpi_args)
    argv = arguments(kind, job.world_size, root=os.geteuid() == 0, version=_version(program), more=more)
    env = {
        **environment("mpi", job, attempt, job.world_size),
        **_own_tools(program),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(ports[0]),
        "JUPYTER_DIST_TF_WORKERS": ",".join(f"127.0.0.1:{port}" for port in ports[1:]),
    }
    if kind == "slurm":
        env[SRUN] = "1"
        if "OMP_NUM_THREADS" not in os.environ:
            del env["OMP_NUM_THREADS"]  # the default follows this machine's cores, not the node's
    else:
        env["JUPYTER_DIST_NODE"] = "0"
        env |= loopback(os.environ)
    return [program, *argv, *more, *worker_argv(job)], env


def _mapped(job: Job, options: MpiOptions) -> MpiOptions:
    """Return the options with the hosts that mpirun uses, and the number of ranks on each as its slots."""
    hosts = mapped_hosts(job.world_size, options.hosts, shlex.split(options.mpi_args))
    return options.model_copy(update={"hosts": hosts})


def _argv(job: Job, options: MpiOptions, start: str, interface: str | None = None) -> list[str]:
    """Return the launcher's argv for several hosts. `interface`: this machine's towards the others."""
    program = _program(options)
    kind = _kind(program, options)
    hosts, more = hosts_argument(job, options.hosts), shlex.split(options.mpi_args)
    argv = arguments(kind, job.world_size, root=os.geteuid() == 0, version=_version(program), more=more)
    if kind == "openmpi":
        # Connect to every host from here with our ssh: hosts cannot log in to each other.
        ssh = ("--mca", "plm_rsh_agent", "ssh", "--mca", "plm_rsh_no_tree_spawn", "1")
        argv += ["-H", hosts, *ssh, "--wdir", "/", *(word for name in job.env_names for word in ("-x", name))]
    else:
        own = ("-bootstrap", "-bootstrap-exec") if kind == "intel" else ("-launcher", "-launcher-exec")
        argv += [own[0], "ssh", own[1], "ssh", "-hosts", hosts, "-wdir", "/"]
        argv += ["-iface", interface] if interface is not None else []
        # By default mpirun would send the whole environment of this machine.
        argv += ["-genvlist", ",".join(job.env_names)] if job.env_names else ["-genvnone"]
    return [program, *argv, *more, start]


def _staged(job: Job, folder: RunFolder, options: MpiOptions) -> MultiHostLauncher:
    def start(there: RemoteRanks, attempt: int) -> LocalLauncher:
        client = next((there.fleet.facts(n).client for n in there.names if there.fleet.facts(n).client), None)
        argv = _argv(job, options, there.start_script(), interface_of(client) if client else None)
        launched = LocalLauncher(job, folder, attempt, reach=there)
        env = launcher_environment(job, folder, options, path=_path_with(argv[0]))
        launched.start(argv, env, name=os.path.basename(argv[0]), explain=_explain, aborted=_aborted)
        return launched

    by_node = is_ranked_by_node(shlex.split(options.mpi_args))
    return MultiHostLauncher(
        job,
        folder,
        options,
        environments=lambda there, attempt: rank_environments(
            "mpi", job, attempt, options, there, by_node=by_node
        ),
        start=start,
    )


def arguments(
    kind: Kind, world_size: int, *, root: bool, version: str = "", more: Sequence[str] = ()
) -> list[str]:
    """Return the arguments between mpirun and its program, without the user's own arguments `more`. Pure.

    They leave the other ranks of a failed one to the supervisor. The supervisor gives these ranks time for a
    checkpoint and for their reports, which mpirun would not.
    """
    count = str(world_size)
    if kind == "openmpi":
        allow = ["--allow-run-as-root"] if root else []
        patience = ["--mca", "orte_abort_on_non_zero_status", "0", "--mca", "odls_base_sigkill_timeout", "5"]
        if re.search(r"Open MPI\) ([5-9]|\d\d)|PRRTE", version):
            patience = ["--runtime-options", "error-nonzero-status=false"]
        return [*allow, "--oversubscribe", *patience, *_placed(more), "-np", count]
    if kind == "slurm":
        return ["--ntasks", count, "--kill-on-bad-exit=0", "--overlap", "--input=none"]
    return [*(["-disable-auto-cleanup"] if kind == "mpich" else []), "-n", count]


def _placed(more: Sequence[str]) -> list[str]:
    """Return arguments that replace Open MPI's default placement.

    With 2 ranks, Open MPI binds each to one core, whose threads then share it. Version 5 puts more ranks than
    cores onto the first host, whatever the slots. A mapping with cores for each rank, as in `slot:PE=2`,
    binds the ranks itself.
    """
    given = {word.lstrip("-").partition("=")[0] for word in more}
    given |= {"cpu-set" for word in more if re.search(r":PE=\d", word, re.IGNORECASE)}
    mapped = given & {"map-by", "rankfile", "rf", "ppr", "N", "npernode", "npersocket", "bynode", "byslot"}
    bound = given & {"bind-to", "bind-to-core", "bind-to-socket", "rankfile", "rf", "cpu-set", "cpu-list"}
    return [*([] if mapped else ["--map-by", "slot"]), *([] if bound else ["--bind-to", "none"])]


def _aborted(log: str) -> int | None:
    """Return the exit code of a rank's MPI_Abort. MPICH's and Intel's mpirun kill that rank at once."""
    found = re.findall(r"^Abort\((-?\d+)\) on node \d+ ", log, re.MULTILINE)
    return int(found[-1]) if found else None


def _explain(text: str) -> str:
    """Return the reason in mpirun's output: text between lines of dashes, or a line with "error"."""
    improper = re.search(r"process rank (\d+) [^.]*\bexiting\s+improperly", text)
    if improper:
        return (
            f"rank {improper[1]} ended without MPI_Init or without MPI_Finalize, but other ranks "
            "called MPI_Init. Call them on all ranks, or on none"
        )
    ours = re.search(r"jupyter_dist: (.+)", text)
    if ours:
        return ours[1]
    box = re.search(r"^-{20,}\n(.+?)(?:\n\n|^-{20,}$)", text, re.MULTILINE | re.DOTALL)
    found = box or re.search(r"^(.*\berror\b.*)$", text, re.MULTILINE | re.IGNORECASE)
    return " ".join(found[1].split())[:300] if found else last_words(text)

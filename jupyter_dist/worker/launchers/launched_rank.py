"""A rank that torchrun, horovodrun, mpirun or srun has started.

The launcher runs `python -m jupyter_dist.worker` with JUPYTER_DIST_LAUNCHER in its environment. `enter` forks
at once. The child is the rank. The parent is the process that the launcher watches. The parent forwards
signals, writes `exit.json` when the rank has ended, and ends the same way. So `exit.json` shows exactly how a
rank ended, whatever the launcher reports.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from .. import layout, stack_signals
from ..line_file import write_all
from ..process_groups import reap
from . import srun_rank
from .rank_folder import rank_folder
from .torchrun_host import ROUND

__all__ = ["LAUNCHER", "SRUN", "enter", "finalize_mpi", "translated"]


LAUNCHER = "JUPYTER_DIST_LAUNCHER"
"""The variable that names the launcher of the ranks: torchrun, horovod or mpi."""

SRUN = "JUPYTER_DIST_SRUN"
"""The variable that is set if srun is the launcher."""

_RESERVED_BYTES = 512
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

# Each launcher's names for our variables, the most reliable first. srun's are also set under other launchers.
_RANK = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_SIZE = ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
_LOCAL_RANK = ("HOROVOD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_LOCAL_SIZE = ("HOROVOD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
_NODE = ("JUPYTER_DIST_NODE", "HOROVOD_CROSS_RANK", "SLURM_NODEID")


def translated(environ: Mapping[str, str]) -> dict[str, str]:
    """Translate a launcher's variables into the variables that every rank has. Pure.

    Raises KeyError when the launcher has not set a rank.
    """
    launcher = environ[LAUNCHER]
    said = {
        "JUPYTER_DIST_ATTEMPT": str(
            int(environ["JUPYTER_DIST_ATTEMPT"]) + int(environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        )
    }
    if launcher == "torchrun":
        return said
    rank, size = _first(environ, _RANK), _first(environ, _SIZE)
    if rank is None or size is None:
        raise KeyError(f"{launcher} did not set the rank of this process: none of {', '.join(_RANK)} is set")
    local_rank = _first(environ, _LOCAL_RANK) or rank
    node = _first(environ, _NODE)
    local_size = _first(environ, _LOCAL_SIZE) or _tasks_per_node(environ, node) or size
    said |= {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": local_size,
        "GROUP_RANK": node or str((int(rank) - int(local_rank)) // int(local_size)),
    }
    workers = environ.get("JUPYTER_DIST_TF_WORKERS")
    if workers is not None:
        cluster = {"worker": workers.split(",")}
        task = {"type": "worker", "index": int(rank)}
        said["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    return said


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)


def _tasks_per_node(environ: Mapping[str, str], node: str | None) -> str | None:
    tasks = srun_rank.counts(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    return str(tasks[int(node)]) if node is not None and int(node) < len(tasks) else None


def enter() -> None:
    """Fork the rank. The function returns only in the child. The parent remains the launcher's process."""
    environ = os.environ
    stack_signals.ignore()  # a rank on another host has the usual action, because sshd has started it
    if environ[LAUNCHER] == "horovod":
        from . import horovodrun_rank

        horovodrun_rank.prepare(environ)
    base = int(environ["JUPYTER_DIST_ATTEMPT"])
    if environ.pop(SRUN, None):
        if not os.path.isdir(environ["JUPYTER_DIST_RUN"]):
            sys.exit(
                f"jupyter_dist: the node {os.uname().nodename} cannot read "
                f"{environ['JUPYTER_DIST_RUN']!r}. Start JupyterLab with JUPYTER_DIST_RUNS set to a "
                "folder that all nodes share"
            )
        if not os.path.isdir(environ.get("JUPYTER_DIST_CWD", "/")):
            # The notebook's folder does not exist on this node.
            environ["JUPYTER_DIST_CWD"] = os.path.expanduser("~")
        environ.update(srun_rank.meeting(environ))
    environ.update(translated(environ))
    if environ[LAUNCHER] == "torchrun":
        environ["JUPYTER_DIST_ATTEMPT"] = str(_attempt_of_round(environ, base))
    place = rank_folder(environ)
    _make_private(place)
    for name in (layout.EXIT, layout.hidden(layout.EXIT)):  # files of an earlier rank in this folder
        with contextlib.suppress(OSError):
            os.unlink(place / name)
    _reserve(place / layout.hidden(layout.EXIT))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
    parent = os.getpid()
    child = os.fork()
    if child:
        _stand_for(child, place)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*_PASSED_ON, signal.SIGCHLD})
    umask = environ.pop("JUPYTER_DIST_UMASK", None)
    if umask is not None:  # the launcher's own files are private; the user's files get the user's umask
        os.umask(int(umask, 8))
    environ["JUPYTER_DIST_PARENT"] = str(parent)
    for name in (LAUNCHER, ROUND, "JUPYTER_DIST_NODE", "JUPYTER_DIST_TF_WORKERS"):
        environ.pop(name, None)
    import atexit

    atexit.register(finalize_mpi)  # registered before the user's handlers, which therefore run earlier


def _attempt_of_round(environ: Mapping[str, str], base: int) -> int:
    """Return the attempt to which ranks that torchrun has started together belong.

    On several hosts the number of their rendezvous is the attempt (torchrun_host.py). On one host, torchrun
    does not count a restart after a node joined or left. But each round has a port of its own. So the attempt
    is the first folder that no other round uses.
    """
    told = environ.get(ROUND, "")
    if told.isdigit():
        return base + int(told)
    word = "{MASTER_ADDR} {MASTER_PORT} {TORCHELASTIC_RESTART_COUNT}".format_map(environ)
    attempt = int(environ["JUPYTER_DIST_ATTEMPT"])
    while True:
        place = Path(layout.attempt_path(environ["JUPYTER_DIST_RUN"], attempt))
        _make_private(place)
        own, taken = place / f".round.{os.getpid()}", place / ".round"
        try:
            _write(own, word.encode())
            with contextlib.suppress(FileExistsError):
                os.link(own, taken)
            os.unlink(own)
            if taken.read_text() == word:
                return attempt
        except OSError:
            return attempt  # the disk is full, or has no links
        attempt += 1


def _make_private(path: Path) -> None:
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):  # the other ranks make the folder too
            folder.mkdir(0o700)


def _reserve(path: Path) -> None:
    """Reserve the space for `exit.json`. A disk that the rank fills up then cannot hide its end."""
    with contextlib.suppress(OSError):
        _write(path, b" " * _RESERVED_BYTES)


def _write(path: Path, data: bytes) -> None:
    # O_TRUNC would release the reserved blocks.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def _stand_for(child: int, place: Path) -> NoReturn:
    """Wait for the rank, then end as the rank did."""
    listed = _listed(child)
    while True:
        signum = signal.sigwait({*_PASSED_ON, signal.SIGCHLD})
        if signum != signal.SIGCHLD:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signum)
        reaped = reap(child)  # this also kills the processes that the rank left running
        if reaped is not None:
            break
    ended = time.time() + float(os.environ.get("JUPYTER_DIST_CLOCK_OFFSET_S") or 0)
    if listed is not None:
        with contextlib.suppress(OSError):
            os.unlink(listed)
    code = reaped.returncode
    exit_ = {
        "pid": child,
        **reaped._asdict(),
        "ended": ended,
        "host": os.uname().nodename,
    }
    if code and "TORCHELASTIC_ERROR_FILE" in os.environ:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            torchs = Path(os.environ["TORCHELASTIC_ERROR_FILE"])
            _exchange_errors(place / layout.ERROR, torchs, code, ended)
    with contextlib.suppress(OSError):
        reserved = place / layout.hidden(layout.EXIT)
        _write(reserved, json.dumps(exit_).encode().ljust(_RESERVED_BYTES))
        os.replace(reserved, place / layout.EXIT)
        os.unlink(place / layout.hidden(layout.ERROR))  # the reserved space for an error that did not happen
    if code < 0 and os.environ[LAUNCHER] == "mpi":
        # Some versions of mpirun kill the other ranks at once after a signal. The supervisor decides about
        # the other ranks.
        code = 128 - code
    _end_like(code)


def _listed(child: int) -> Path | None:
    """List the rank in the stage folder. On other hosts the agent must find the ranks of a launcher."""
    stage = os.environ.get("JUPYTER_DIST_STAGE")
    if stage is None:
        return None
    file = Path(stage, "ranks", str(child))
    with contextlib.suppress(OSError):
        _make_private(file.parent)
        file.touch(0o600)
    return file


def _end_like(code: int) -> NoReturn:
    if code < 0:
        with contextlib.suppress(Exception):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the rank's own core dump is the useful one
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
    os._exit(code if code >= 0 else 128 - code)


def _exchange_errors(ours: Path, torchs: Path, code: int, ended: float) -> None:
    """Pass the rank's error to torchrun, so that its report names the exception.

    If only torch's error handler has written an error, copy that error to the rank's file instead.
    """
    if ours.exists():
        if not torchs.exists():
            error = json.loads(ours.read_bytes())
            extra = {"py_callstack": error["text"], "timestamp": str(int(error["time"]))}
            told = {"message": f"{error['type']}: {error['message']}", "extraInfo": extra}
            torchs.write_text(json.dumps({"message": told}))
        return
    if not torchs.exists():
        return
    said: Any = json.loads(torchs.read_bytes())["message"]
    if isinstance(said, str):
        said = {"message": said}
    text = str(said["message"])
    extra = said.get("extraInfo", {})
    kind, colon, message = text.partition(": ")
    data: dict[str, Any] = {
        "rank": int(os.environ["RANK"]),
        "time": min(ended, float(extra.get("timestamp", ended))),
        "type": kind if colon and kind.replace(".", "").isidentifier() else "Error",
        "message": message if colon and kind.replace(".", "").isidentifier() else text,
        "text": str(extra.get("py_callstack") or text),
        "frames": [],
        "exit_code": code if code >= 0 else None,
    }
    temporary = ours.with_name(layout.hidden(layout.ERROR))
    temporary.write_text(json.dumps(data))
    os.replace(temporary, ours)


def finalize_mpi() -> None:
    """Finalize MPI if the cell used mpi4py. A rank that ends without it counts as failed.

    mpi4py would finalize MPI when the interpreter is torn down, but a rank skips that.
    """
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()

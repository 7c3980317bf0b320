"""What a platform's container runs on every host, in place of a training script.

This file is sent as it stands, beside the courier's program: it needs nothing but the standard library.
SageMaker's toolkit or Azure ML starts it once per host, or torchrun and mpirun start it once for each rank
that they have there. The first one of a host has the courier run (agent/mailbox_relay.py), whose agent starts
the ranks. The others wait for its end: they only lend their places. What a launcher tells each of its
processes, such as Open MPI's PMIX_RANK, is written down for the rank that has the place
(worker/launchers/mpi_slot.py).

Each argument is an input of the job, as NAME=PATH. What follows `--` is for those who look at the job.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping

__all__ = ["COURIER", "MAILBOX", "PROGRAM", "console", "main", "named", "place_of", "whole"]

PROGRAM = "jupyter_dist_host.py"
"""What this file is called there."""
COURIER = "jupyter_dist_courier.py"
"""Beside this file: hosts/bootstrap.py."""
MAILBOX = "jupyter_dist_mailbox.json"
"""Beside this file, where the job's environment is for more eyes than its code: variables of the courier."""
_WATCH = (
    "import os, signal, sys, threading\n"
    "def watch(lifeline=int(os.environ.pop('JUPYTER_DIST_ENTRY_LIFELINE'))):\n"
    "    os.read(lifeline, 1)\n"
    "    os.kill(os.getpid(), signal.SIGTERM)\n"
    "threading.Thread(target=watch, daemon=True).start()\n"
)
_OF_LAUNCHER = re.compile(
    r"TORCHELASTIC_|PET_|(RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|NODE_RANK|TF_CONFIG)$|(LOCAL|GROUP|ROLE)_"
)
"""What a launcher tells its own processes: with TORCHELASTIC_USE_AGENT_STORE ranks would look for a store."""
_SECRETS = ("JUPYTER_DIST_MAILBOX_KEY", "JUPYTER_DIST_MAILBOX_SAS")


def place_of(environ: Mapping[str, str]) -> tuple[int, int]:
    """The number of this host, and of this process on it. Under mpirun SM_CURRENT_HOST is the first host's
    everywhere, for it hands its own environment on."""
    if "OMPI_COMM_WORLD_RANK" in environ:
        rank, size = int(environ["OMPI_COMM_WORLD_RANK"]), int(environ["OMPI_COMM_WORLD_LOCAL_SIZE"])
        return rank // size, int(environ["OMPI_COMM_WORLD_LOCAL_RANK"])
    if "SM_HOSTS" not in environ:
        # https://learn.microsoft.com/azure/machine-learning/how-to-train-distributed-gpu
        node = environ.get("NODE_RANK") or json.loads(environ["TF_CONFIG"])["task"]["index"]
        return int(node), int(environ.get("LOCAL_RANK", "0"))
    hosts = sorted(json.loads(environ["SM_HOSTS"]), key=lambda name: (len(name), name))
    return hosts.index(environ["SM_CURRENT_HOST"]), int(environ.get("LOCAL_RANK", "0"))


def whole(environ: Mapping[str, str], processes: str = "/proc") -> dict[str, str]:
    """The environment with what mpirun has not handed on to other hosts: SageMaker's toolkit, which waits
    there for mpirun's end, still has it. https://github.com/aws/sagemaker-training-toolkit (mpi.py)"""
    if "JUPYTER_DIST_MAILBOX_RUN" in environ:
        return dict(environ)
    told = os.path.join(os.path.dirname(os.path.abspath(__file__)), MAILBOX)
    if os.path.exists(told):
        with open(told) as file:
            return {**environ, **json.load(file)}
    for entry in filter(str.isdigit, os.listdir(processes)):
        try:
            with open(f"{processes}/{entry}/environ", "rb") as file:
                parts = [os.fsdecode(part).partition("=") for part in file.read().split(b"\0") if part]
        except OSError:
            continue
        found = {name: value for name, _, value in parts}
        if "JUPYTER_DIST_MAILBOX_KEY" in found:
            return {**found, **environ}
    raise SystemExit("jupyter_dist: this host's environment has no JUPYTER_DIST_MAILBOX")


def named(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with the name of this host's run. All training jobs of a tuning job have the same
    environment, which says of which variable the name is."""
    run = environ["JUPYTER_DIST_MAILBOX_RUN"]
    return {**environ, "JUPYTER_DIST_MAILBOX_RUN": environ[run[1:]] if run.startswith("$") else run}


def console(run: str, processes: str = "/proc") -> int | None:
    """Where the container's own first process writes to, which is what CloudWatch shows; None: not known.

    SageMaker's toolkit reads what we write in pieces of 64 kB and prints those again, which tears lines, and
    under mpirun the lines of all hosts are the first one's.
    https://github.com/aws/sagemaker-training-toolkit (process.py, watch)
    """
    mark = f"JUPYTER_DIST_MAILBOX_RUN={run}".encode()
    for pid in sorted(map(int, filter(str.isdigit, os.listdir(processes)))):
        try:
            with open(f"{processes}/{pid}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    return os.open(f"{processes}/{pid}/fd/1", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY)
        except OSError:
            continue
    return None


def main() -> None:
    """Hold this place until the host is released. Does not return: the exit code is the courier's."""
    told = whole(os.environ)
    environ = named(told)
    node, local = place_of(environ)
    if (name := os.uname().nodename) in environ.get("SM_HOSTS", ""):
        environ["SM_CURRENT_HOST"] = name
    folder = f"/tmp/jupyter-dist-{environ['JUPYTER_DIST_MAILBOX_RUN']}-{node}"
    os.makedirs(folder, mode=0o700, exist_ok=True)
    given = sys.argv[1:]
    for name, _, path in (each.partition("=") for each in given[: [*given, "--"].index("--")]):
        environ["JUPYTER_DIST_INPUT_" + re.sub(r"\W", "_", name).upper()] = path
    secrets = {name: environ.pop(name) for name in _SECRETS if name in environ}
    with open(f"{folder}/.{local}", "w") as file:
        json.dump(environ, file)
    os.replace(f"{folder}/.{local}", f"{folder}/{local}.json")
    if local == 0:
        shown = console(told["JUPYTER_DIST_MAILBOX_RUN"])
        code = _serve(folder, {**environ, **secrets}, node, shown)
    else:
        code = _wait(folder)
    # Not sys.exit: `python -m mpi4py`, which runs this under mpirun, would begin MPI to tell of an error.
    sys.stdout.flush()
    os._exit(code)


def _serve(folder: str, environ: Mapping[str, str], node: int, shown: int | None) -> int:
    with open(f"{folder}/.held", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        os.replace(held.name, f"{folder}/held")
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), COURIER)) as file:
            program = _WATCH + file.read()
        # However this process ends, the pipe ends with it, and then the courier, its agent and the ranks.
        lifeline, kept = os.pipe()
        own = {name: value for name, value in environ.items() if not _OF_LAUNCHER.match(name)}
        own |= {"JUPYTER_DIST_MAILBOX_NODE": str(node), "JUPYTER_DIST_ENTRY_LIFELINE": str(lifeline)}
        if "OMPI_COMM_WORLD_RANK" in environ:
            own["JUPYTER_DIST_LENT"] = folder
        courier = subprocess.Popen(
            [sys.executable, "-I", "-c", program],
            env=own,
            stdin=subprocess.DEVNULL,
            stdout=shown,
            pass_fds=[lifeline],
            start_new_session=True,
        )
        os.close(lifeline)
        signal.signal(signal.SIGTERM, lambda *_: courier.terminate())
        code = courier.wait()
        os.close(kept)
        with open(f"{folder}/over", "w") as file:
            file.write(str(code))
        return abs(code)


def _wait(folder: str) -> int:
    """For the end of the first process of this host, whatever it comes to."""
    for _ in range(600):
        if os.path.exists(f"{folder}/held"):
            break
        time.sleep(0.1)
    try:
        with open(f"{folder}/held") as held:
            fcntl.flock(held, fcntl.LOCK_SH)  # the first one has it for as long as it lives
        with open(f"{folder}/over") as file:
            return abs(int(file.read()))
    except (OSError, ValueError):
        return 1


if __name__ == "__main__":
    main()

"""The program that a platform's container runs on every host, in place of a training script.

This file is sent as it is, beside the mailbox relay's program. It needs only the standard library.
SageMaker's toolkit or Azure ML starts it once per host, or torchrun and mpirun start it once per rank. The
first process of a host runs the relay (agent/mailbox_relay.py), whose agent starts the ranks. The other
processes wait until the first one ends, and only lend their places. Each process records its launcher's
variables, such as Open MPI's PMIX_RANK, for the rank in its place (worker/launchers/mpi_slot.py).

Each argument is an input of the job, as NAME=PATH. Arguments after `--` only inform people who view the job.
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
"""Name of this file on the host."""
COURIER = "jupyter_dist_courier.py"
"""Name of the relay's program beside this file (hosts/bootstrap.py)."""
MAILBOX = "jupyter_dist_mailbox.json"
"""File beside this one with the relay's variables.

It exists if more people can read the job's environment than its code.
"""
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
"""Variables that a launcher sets for its own processes.

With TORCHELASTIC_USE_AGENT_STORE, ranks would look for a store.
"""
_SECRETS = ("JUPYTER_DIST_MAILBOX_KEY", "JUPYTER_DIST_MAILBOX_SAS")


def place_of(environ: Mapping[str, str]) -> tuple[int, int]:
    """Return the index of this host, and the index of this process on the host.

    Under mpirun, SM_CURRENT_HOST is the first host's everywhere: mpirun exports its own environment.
    """
    if "OMPI_COMM_WORLD_RANK" in environ:
        rank, size = int(environ["OMPI_COMM_WORLD_RANK"]), int(environ["OMPI_COMM_WORLD_LOCAL_SIZE"])
        return rank // size, int(environ["OMPI_COMM_WORLD_LOCAL_RANK"])
    if "SM_HOSTS" not in environ:
        # https://learn.microsoft.com/azure/machine-learning/how-to-train-distributed-gpu
        node = environ.get("NODE_RANK")
        if not node:
            told = json.loads(environ["TF_CONFIG"])
            # The parameter servers follow the workers, as the ranks do.
            before = told["cluster"].get("worker", ()) if told["task"]["type"] == "ps" else ()
            node = len(before) + told["task"]["index"]
        return int(node), int(environ.get("LOCAL_RANK", "0"))
    hosts = sorted(json.loads(environ["SM_HOSTS"]), key=lambda name: (len(name), name))
    return hosts.index(environ["SM_CURRENT_HOST"]), int(environ.get("LOCAL_RANK", "0"))


def whole(environ: Mapping[str, str], processes: str = "/proc") -> dict[str, str]:
    """Return the environment, with the variables that mpirun has not exported to other hosts.

    SageMaker's toolkit waits on those hosts for mpirun's end, and still has the variables.
    https://github.com/aws/sagemaker-training-toolkit (mpi.py)
    """
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
    """Return the environment with the id of this host's run.

    All training jobs of a tuning job have the same environment. It names the variable that has the run's id.
    """
    run = environ["JUPYTER_DIST_MAILBOX_RUN"]
    return {**environ, "JUPYTER_DIST_MAILBOX_RUN": environ[run[1:]] if run.startswith("$") else run}


def console(run: str, processes: str = "/proc") -> int | None:
    """Return the stdout of the container's first process, which CloudWatch shows. None: not found.

    SageMaker's toolkit reads our output in pieces of 64 kB and prints them again. That tears lines. Under
    mpirun it also shows the lines of all hosts as the first host's lines.
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
    """Occupy this place until the host is released. Does not return: exits with the relay's exit code."""
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
    # Not sys.exit: under mpirun `python -m mpi4py` runs this, and would initialize MPI to report an error.
    sys.stdout.flush()
    os._exit(code)


def _serve(folder: str, environ: Mapping[str, str], node: int, shown: int | None) -> int:
    with open(f"{folder}/.held", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        os.replace(held.name, f"{folder}/held")
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), COURIER)) as file:
            program = _WATCH + file.read()
        # When this process ends, the pipe closes. The relay, its agent and the ranks then end too.
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
    """Wait until the first process of this host ends, and return its exit code."""
    for _ in range(600):
        if os.path.exists(f"{folder}/held"):
            break
        time.sleep(0.1)
    try:
        with open(f"{folder}/held") as held:
            fcntl.flock(held, fcntl.LOCK_SH)  # the first process holds this lock while it lives
        with open(f"{folder}/over") as file:
            return abs(int(file.read()))
    except (OSError, ValueError):
        return 1


if __name__ == "__main__":
    main()

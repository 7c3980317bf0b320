"""The main program of the launcher's pod of an MPIJob: it has mpirun hold a place for each rank.

A place is good for one rank. When the ranks of another attempt ask for places, those there were are given up,
and mpirun ends; or it has ended with a rank that was killed. Then it is started anew, and holds new ones.

This is sent to the pod as text, so this module stands alone: nothing of our package is there. What mpirun
starts on the workers is mpi_slot_program.py. The operator has put there the list of the workers, and the key
for their sshd: https://github.com/kubeflow/mpi-operator/blob/master/pkg/controller/mpi_job_controller.go
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

__all__ = ["HOSTFILE", "hosts_of", "main"]

HOSTFILE = "/etc/mpi/hostfile"
_WITHIN_S = 120.0
_NEVER_BEGAN_S = 5.0
"""An mpirun that fails as early as this does not fail because of a rank."""
# The workers' host keys are those of their image, or were made a moment ago: nothing knows them.
_SSH = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectTimeout=5"
_WITH_PYTHON = (
    "for python in python3 python /opt/conda/bin/python /usr/local/bin/python3; do "
    'if "$python" -I -S -c "" 2>/dev/null; then exec "$python" -I -S -c "$@"; fi; done; exit 69'
)


def hosts_of(text: str) -> list[str]:
    """The names in a hostfile of Open MPI's."""
    return [line.split()[0] for line in text.splitlines() if line.strip()]


def _wait_for(hosts: Sequence[str]) -> None:
    """Until sshd answers on all of them: their names are known a moment after they are up."""
    deadline = time.monotonic() + _WITHIN_S
    for host in hosts:
        while True:
            argv = ["ssh", *_SSH.split(), "-o", "BatchMode=yes", host, "true"]
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode == 0:
                break
            if time.monotonic() > deadline:
                sys.exit(f"jupyter-dist: {host} does not answer to ssh: {done.stderr.strip()[-300:]}")
            time.sleep(0.2)


def main(place: str, folder: str, ranks: str) -> None:
    """Does not return. `place`: the program on the workers; `folder`: where that writes what it is told."""
    mpirun = shutil.which("mpirun")
    if mpirun is None or shutil.which("ssh") is None:
        sys.exit("jupyter-dist: this image has no mpirun, or no ssh, and an MPIJob needs both")
    with open(HOSTFILE) as file:
        hosts = hosts_of(file.read())
    _wait_for(hosts)
    # What the operator says of ssh, with our words on host keys; once for Open MPI 4, and once for 5.
    os.environ.update({"OMPI_MCA_plm_rsh_args": _SSH, "PRTE_MCA_plm_ssh_args": _SSH})
    # By slot: ranks fill the workers in the hostfile's order, as ours do.
    argv = ["--allow-run-as-root", "--oversubscribe", "--map-by", "slot", "--bind-to", "none"]
    argv += ["--hostfile", HOSTFILE, "-np", ranks, "/bin/sh", "-c", _WITH_PYTHON, "sh", place, folder]
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    for turn in itertools.count():
        print(f"jupyter-dist: mpirun holds {ranks} places on {len(hosts)} workers, {turn}", flush=True)
        began = time.monotonic()
        process = subprocess.Popen([mpirun, *argv, str(turn)], stdin=subprocess.DEVNULL)
        while process.poll() is None and not told:
            time.sleep(0.1)
        if told:
            process.terminate()
            process.wait()
            sys.exit(143)
        if process.returncode and time.monotonic() - began < _NEVER_BEGAN_S:
            sys.exit(abs(process.returncode))


if __name__ == "__main__":
    main(*sys.argv[1:])

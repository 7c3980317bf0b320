"""The main program of an MPIJob's launcher pod: mpirun starts a process for each rank's place.

A place is good for one rank. If another attempt's ranks ask for places, the old places are released and
mpirun ends. mpirun also ends if a rank is killed. The program then starts mpirun again, with new places.

The pod receives this module as text, so it imports nothing of our package. On the workers, mpirun starts
mpi_slot_program.py. The operator provides the list of workers and the key for their sshd:
https://github.com/kubeflow/mpi-operator/blob/master/pkg/controller/mpi_job_controller.go
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
_TAKEN = "jupyter-dist: a place is taken"
"""The line that mpi_slot_program.py prints. mpirun passes it on."""
# The workers' host keys are unknown: they belong to the image, or are new.
_SSH = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectTimeout=5"
_WITH_PYTHON = (
    "for python in python3 python /opt/conda/bin/python /usr/local/bin/python3; do "
    'if "$python" -I -S -c "" 2>/dev/null; then exec "$python" -I -S -c "$@"; fi; done; exit 69'
)


def hosts_of(text: str) -> list[str]:
    """Return the names in a hostfile of Open MPI."""
    return [line.split()[0] for line in text.splitlines() if line.strip()]


def _wait_for(hosts: Sequence[str]) -> None:
    """Wait until sshd answers on all hosts: their names resolve a moment after their start."""
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


class _Output:
    """mpirun's output. This program prints it again, except for the lines that say that a place is taken."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._fd = process.stdout.fileno()
        os.set_blocking(self._fd, False)
        self._rest = b""
        self.taken = 0

    def read(self) -> None:
        """Read what there is. Does not wait: a process that mpirun has left can keep the pipe open."""
        while True:
            try:
                data = os.read(self._fd, 65_536)
            except BlockingIOError:
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            if not data and self._rest:
                lines, self._rest = [self._rest], b""
            for line in lines:
                if line.strip() == _TAKEN.encode():
                    self.taken += 1
                else:
                    sys.stdout.buffer.write(line + b"\n")
            sys.stdout.flush()
            if not data:
                return


def main(place: str, folder: str, ranks: str) -> None:
    """Run mpirun. Does not return.

    `place`: the program on the workers. `folder`: where it writes what mpirun sets.
    """
    mpirun = shutil.which("mpirun")
    if mpirun is None or shutil.which("ssh") is None:
        sys.exit("jupyter-dist: this image has no mpirun, or no ssh, and an MPIJob needs both")
    with open(HOSTFILE) as file:
        hosts = hosts_of(file.read())
    _wait_for(hosts)
    # The operator's ssh options and ours for host keys, once for Open MPI 4, once for 5.
    os.environ.update({"OMPI_MCA_plm_rsh_args": _SSH, "PRTE_MCA_plm_ssh_args": _SSH})
    # By slot: ranks fill the workers in the hostfile's order, as ours do.
    argv = ["--allow-run-as-root", "--oversubscribe", "--map-by", "slot", "--bind-to", "none"]
    argv += ["--hostfile", HOSTFILE, "-np", ranks, "/bin/sh", "-c", _WITH_PYTHON, "sh", place, folder]
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    for turn in itertools.count():
        print(f"jupyter-dist: mpirun holds {ranks} places on {len(hosts)} workers, {turn}", flush=True)
        program = [mpirun, *argv, str(turn)]
        process = subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        output = _Output(process)
        while process.poll() is None and not told:
            output.read()
            time.sleep(0.1)
        if told:
            process.terminate()
            process.wait()
            sys.exit(143)
        output.read()
        if process.returncode and output.taken < int(ranks):
            sys.exit(abs(process.returncode))  # mpirun itself failed, not a rank


if __name__ == "__main__":
    main(*sys.argv[1:])

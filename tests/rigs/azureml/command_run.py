"""A command job's life: its machines, its code and inputs, its processes, and what they print.

What a process finds in its environment is what the service documents for each distribution.
https://learn.microsoft.com/azure/machine-learning/how-to-train-distributed-gpu
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .job_run import JobRun

if TYPE_CHECKING:
    from .service import AzurePlane

__all__ = ["NODES", "CommandRun", "Machines"]

NODES = ("node-a", "node-b")
"""The machines that there are, which are called otherwise than our backend calls them."""
_CODE = "/mnt/code"
_INPUTS = "/mnt/inputs"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TERM_S = 10.0


class Machines:
    """Which of the machines are free."""

    def __init__(self) -> None:
        self._free, self._lock = list(NODES), threading.Lock()

    def take(self, count: int) -> tuple[str, ...]:
        """So many of them; none where there are not so many."""
        with self._lock:
            taken = tuple(self._free[:count]) if count <= len(self._free) else ()
            self._free = [node for node in self._free if node not in taken]
            return taken

    def give_back(self, taken: Sequence[str]) -> None:
        with self._lock:
            self._free = sorted([*self._free, *taken])


class CommandRun(JobRun):
    """Runs one job in a thread of its own."""

    def __init__(
        self, plane: AzurePlane, name: str, body: dict[str, Any], code: str, *, alone: bool = True
    ) -> None:
        """`code`: the address of the container and folder of blobs that its code lies in. `alone`: it takes
        all machines, also those that it has no use for."""
        super().__init__(name, body)
        self._plane, self.code = plane, code
        self.printed: dict[str, bytearray] = {}
        """What each of its processes has printed, by the names of its logs."""
        self.began: float | None = None
        self.over: float | None = None
        self.asked = threading.Event()
        """To be cancelled."""
        self.preempted = threading.Event()
        """Its machines are to be taken away; it gets others."""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pumps: list[threading.Thread] = []
        self._count = int(body["resources"]["instanceCount"])
        self._taken = len(NODES) if alone else self._count
        self.nodes: tuple[str, ...] = ()
        threading.Thread(target=self._work, name=f"job {name}", daemon=True).start()

    @property
    def lines(self) -> dict[str, list[str]]:
        """What each of its processes has printed, line by line."""
        return {
            name: bytes(text).decode(errors="replace").removesuffix("\n").split("\n") if text else []
            for name, text in self.printed.items()
        }

    def _work(self) -> None:
        self.status = "Queued"
        while not (taken := self._plane.machines.take(self._taken)):
            if self.asked.wait(0.05):
                self.status = "Canceled"
                return
        self.nodes = taken[: self._count]
        try:
            while True:
                self.status = "Preparing"
                final = self._run()
                if not self.preempted.is_set():
                    break
                self.preempted.clear()
                self.status = "Queued"
                self.asked.wait(5)
        except Exception as error:
            final, self.error = "Failed", str(error)
            self._plane.own_faults.note(f"job {self.name}")
        finally:
            self._plane.machines.give_back(taken)
        self.over = time.time()
        self.status = final

    def _run(self) -> str:
        self._processes, self._pumps = [], []
        for node in self.nodes:
            self._lay_out(node)
        if self.asked.is_set():
            return "Canceled"
        self.status = "Running"
        self.began = self.began or time.time()
        kind = str((self.body.get("distribution") or {}).get("distributionType"))
        starts = {"Mpi": self._by_mpi, "TensorFlow": self._by_tensorflow, "PyTorch": self._by_pytorch}
        starts.get(kind, self._alone)(self._command())
        while any(process.poll() is None for process in self._processes):
            if (
                self.asked.is_set()
                or self.preempted.is_set()
                or any(process.poll() for process in self._processes)
            ):
                break
            time.sleep(0.05)
        first = next((number for number, process in enumerate(self._processes) if process.poll()), 0)
        self._end()
        if self.asked.is_set():
            return "Canceled"
        if not any(process.returncode for process in self._processes):
            return "Completed"
        code, log = self._processes[first].returncode, list(self.printed)[first]
        self.error = (
            f"Execution failed. User process 'python' exited with status code {code}. Please check log file "
            f"'{log}' for error details. Error: {self.lines[log][-1:]}"
        )
        return "Failed"

    def _lay_out(self, node: str) -> None:
        hosts = self._plane.hosts
        hosts.empty_tmp(node)
        clean = f"rm -rf {_CODE} {_INPUTS} ~/.cache && mkdir -p {_CODE} {_INPUTS}"
        hosts.exec(node, ["sh", "-c", clean])
        for name, data in self._plane.files(self.code).items():
            self._write(node, f"{_CODE}/{name}", data)
        for name, given in self.body.get("inputs", {}).items():
            for path, data in self._plane.inputs.get(given["uri"], {}).items():
                self._write(node, f"{_INPUTS}/{name}/{path}", data)

    def _write(self, node: str, path: str, data: bytes) -> None:
        put = ["sh", "-c", 'mkdir -p "$(dirname "$0")" && cat > "$0"', path]
        subprocess.run(self._plane.hosts.inside(node, put), input=data, check=True)

    def _command(self) -> str:
        def path(match: re.Match[str]) -> str:
            given = self.body["inputs"][match[1]]
            return given["uri"] if given.get("mode") == "Direct" else f"{_INPUTS}/{match[1]}"

        return re.sub(r"\$\{\{inputs\.(\w+)\}\}", path, self.body["command"])

    def _alone(self, command: str) -> None:
        self._start(self.nodes[0], ["sh", "-c", command], {}, None)

    def _by_pytorch(self, command: str) -> None:
        each = int(self.body["distribution"].get("processCountPerInstance") or 1)
        for number, node in enumerate(self.nodes):
            for local in range(each):
                env = {
                    "MASTER_ADDR": self._plane.hosts.address(self.nodes[0]),
                    "MASTER_PORT": "6105",
                    "WORLD_SIZE": str(each * len(self.nodes)),
                    "RANK": str(number * each + local),
                    "LOCAL_RANK": str(local),
                    "NODE_RANK": str(number),
                }
                self._start(node, ["sh", "-c", command], env, number * each + local)

    def _by_tensorflow(self, command: str) -> None:
        addresses = [f"{self._plane.hosts.address(node)}:2222" for node in self.nodes]
        workers = int(self.body["distribution"]["workerCount"])
        roles = {"worker": addresses[:workers], "ps": addresses[workers:]}
        cluster = {kind: several for kind, several in roles.items() if several}
        tasks = [
            {"type": kind, "index": index} for kind, each in cluster.items() for index in range(len(each))
        ]
        for number, (node, task) in enumerate(zip(self.nodes, tasks, strict=True)):
            config = {"cluster": cluster, "task": task, "environment": "cloud"}
            self._start(node, ["sh", "-c", command], {"TF_CONFIG": json.dumps(config)}, number)

    def _by_mpi(self, command: str) -> None:
        each = int(self.body["distribution"].get("processCountPerInstance") or 1)
        hosts = ",".join(f"{node}:{each}" for node in self.nodes)
        mpirun = ["mpirun", "--allow-run-as-root", "-H", hosts, "-np", str(each * len(self.nodes))]
        # mpirun starts the others by ssh, which knows nothing of this job's environment.
        for name in ("PATH", "AZUREML_RUN_ID", *self._plane.for_jobs):
            mpirun += ["-x", name]
        self._start(self.nodes[0], [*mpirun, "--wdir", _CODE, "sh", "-c", command], {}, 0)

    def _start(self, node: str, argv: Sequence[str], more: Mapping[str, str], number: int | None) -> None:
        """`number`: of the process; None for the only one of a job without a distribution."""
        env = {
            "PATH": f"{Path(sys.executable).parent}:{_PATH}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "AZUREML_RUN_ID": self.name,
            **self._plane.for_jobs,
            **self.body.get("environmentVariables", {}),
            **more,
        }
        process: subprocess.Popen[bytes] = self._plane.hosts.popen(
            node,
            ["sh", "-c", f"cd {_CODE} && exec {shlex.join(argv)}"],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._processes.append(process)
        of = "" if number is None else f"_process_{number:02d}"
        printed = self.printed.setdefault(f"user_logs/std_log{of}.txt", bytearray())
        self._pumps.append(threading.Thread(target=_pump, args=(process, printed), daemon=True))
        self._pumps[-1].start()

    def _end(self) -> None:
        """The containers: SIGTERM to what the service has started, and SIGKILL to the rest."""
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + _TERM_S
        while time.monotonic() < deadline and any(process.poll() is None for process in self._processes):
            time.sleep(0.05)
        hosts = self._plane.hosts
        while left := [each for node in self.nodes for each in hosts.pids(node)]:
            for each in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)
            time.sleep(0.02)
        for process in self._processes:
            process.wait(30)
        for pump in self._pumps:
            pump.join(30)


def _pump(process: subprocess.Popen[bytes], printed: bytearray) -> None:
    assert process.stdout is not None
    with process.stdout:
        while data := os.read(process.stdout.fileno(), 1 << 16):
            printed += data

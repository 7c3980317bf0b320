"""A real Ray over hosts that share no disk: its head here, or on a host, and a raylet on every other host.

    with shared_ray(tmp_path_factory) as ray:          # the Ray of all tests in the group IN_SHARED
        ray.address                                    # what a driver on this machine connects to
        ray.client_address                             # ray://…, for a driver that is only Ray's client
        ray.add("h2"); ray.power_off("h2")             # nodes come and go
        ray.kill("h1", "raylet")                       # SIGKILL by the name of a Ray process

Ray wants a driver's machine to be one of its nodes. So the head lies here, without CPUs: nothing of a run
is placed on it, and all ranks are on machines whose disk the driver does not see. With `head="h1"` there is
no Ray on this machine at all, and only `client_address` leads to it.

It is small (an object store of 80 MB for each node) and takes 10 seconds to start, on a loaded machine more:
so there is one for all tests, and a test that ends a node leaves it so: the next module gets it whole again.
It needs root. Others may run theirs beside it: all ports here are its own, and `close` ends its processes,
which are known by a word in their environment, and nobody else's.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.conformance.deadlines import Deadline
from jupyter_dist.conformance.ports import take_port
from jupyter_dist.conformance.run_control import Runs
from jupyter_dist.conformance.target import Target
from tests.rigs.hosts import Hosts, missing
from tests.rigs.ray.start import RAY, ports_of_a_node

__all__ = ["HEAD_PATIENCE_S", "IN_SHARED", "RayNodes", "end_shared", "ray_nodes", "runs_on", "shared_ray"]

IN_SHARED = "ray"
"""The group (of pytest-xdist) of the tests that use the shared Ray: one process runs them all."""
HEAD_PATIENCE_S = 8
"""How long nodes wait for a head that has died: Ray's own 60 s, made shorter."""

_ANSWERS = """
import contextlib, json, socket, sys, time
from ray._raylet import GcsClient
address, client = sys.argv[1], None

def connected():
    global client
    if client is None:
        # Before there is a server, the client itself would wait for half a minute.
        socket.create_connection(address.split(":"), timeout=2).close()
        client = GcsClient(address=address)
    return client

def alive(count, timeout_s):
    found, deadline = [], time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            nodes = connected().get_all_node_info(timeout=5).values()
            found = [node.node_manager_address for node in nodes if node.state == 0]
            if count in (-1, len(found)):
                break
        time.sleep(0.1)
    return found

def metadata(told):
    if told:
        connected().internal_kv_put(b"CLUSTER_METADATA", json.dumps(told).encode(), True, b"cluster")
    return json.loads(connected().internal_kv_get(b"CLUSTER_METADATA", b"cluster"))

for line in sys.stdin:
    name, *given = json.loads(line)
    print(json.dumps({"alive": alive, "metadata": metadata}[name](*given)), flush=True)
"""
"""Answers questions to a head. It is a process of its own, since the tests' is to be as a notebook is that
has not imported Ray; and one for all questions, since that import takes seconds on a loaded machine."""


class RayNodes:
    """One Ray; a context manager. `folder` gets the logs of its nodes' start, and the hosts' settings."""

    def __init__(
        self,
        folder: Path,
        nodes: int = 2,
        *,
        spare: int = 0,
        cpus: int = 4,
        gpus: int = 0,
        head: str = "driver",
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`nodes`: hosts that have a raylet from the beginning. `spare`: more hosts, for `add`. `cpus`,
        `gpus`: what each of these nodes says that it has. `head`: "driver", or the host that has it. `env`:
        more variables for all of Ray's processes."""
        self.folder = folder
        self.hosts = Hosts(folder / "hosts", [f"h{number + 1}" for number in range(nodes + spare)])
        self.nodes: list[str] = []
        """The hosts that have a raylet."""
        self._first, self._cpus, self._gpus, self._head = self.hosts.names[:nodes], cpus, gpus, head
        self._word = secrets.token_hex(8)
        self._env = {
            "RAY_worker_niceness": "0",
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            # Else some servers for Ray's clients end while they are forked, which is noticed after 40 s:
            # https://github.com/ray-project/ray/issues/63202
            "GRPC_ENABLE_FORK_SUPPORT": "0",
            # A node that does not answer is given up after 15 s or so; by default it takes a minute.
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "5000",
            "RAY_health_check_failure_threshold": "3",
            "RAY_gcs_rpc_server_reconnect_timeout_s": str(HEAD_PATIENCE_S),
            "JUPYTER_DIST_TEST_RAY": self._word,
            **(env or {}),
        }
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._answers: subprocess.Popen[str] | None = None
        self._temp = Path(tempfile.mkdtemp(prefix="jdray"))
        self._port = self._client_port = 0

    def __enter__(self) -> RayNodes:
        try:
            self.hosts.__enter__()
            self._start_head()
            self.mend()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """The address of the head's GCS."""
        return f"{self._ip(self._head)}:{self._port}"

    @property
    def client_address(self) -> str:
        """Where Ray's clients connect."""
        return f"ray://{self._ip(self._head)}:{self._client_port}"

    @property
    def env(self) -> dict[str, str]:
        """What a driver needs in its environment."""
        return {name: value for name, value in self._env.items() if name.startswith("RAY_")}

    def add(self, name: str, *, cpus: int | None = None, gpus: int | None = None, wait: bool = True) -> None:
        """Start a raylet on a host that has none."""
        before = len(self.alive()) if wait else 0
        argv = ["--address", self.address, *self._what(name, cpus, gpus)]
        self._start(name, argv)
        if wait:
            self.until(before + 1)

    def mend(self) -> None:
        """Have all nodes again that were there at first, after some were ended in whatever way."""
        lacking = [name for name in self._first if not self._runs(name)]
        for name in lacking:
            if name in self._started:
                self.end(name)
            if not self.hosts.is_on(name):
                self.hosts.power_on(name)
            self.add(name, wait=False)
        if lacking:
            self.until(len(self._started))

    @property
    def has_head(self) -> bool:
        """Whether there is still a head; without one there is nothing to mend."""
        return self._runs(self._head)

    def _runs(self, name: str) -> bool:
        return name in self._started and self._started[name].poll() is None

    def alive(self) -> list[str]:
        """The addresses of the nodes that are alive, as Ray knows them; the head's here is one."""
        return list(self._asked("alive", -1, 5))

    def until(self, count: int) -> None:
        """Wait until so many nodes are alive, the head among them where it is one."""
        deadline = Deadline()
        while len(alive := self._asked("alive", count, 10.0)) != count:
            ended = [name for name, process in self._started.items() if process.poll() is not None]
            if deadline.passed() or ended:
                logs = [path.read_text(errors="replace") for path in self.folder.glob("ray-*.log")]
                shown = "\n".join(logs)
                pytest.fail(f"{count} nodes of Ray were expected, {alive} are alive, ended: {ended}\n{shown}")

    def lives(self, host: str, pid: int) -> bool:
        """Whether a process of a host still runs, by the number that it has there."""
        return any(process.own_pid == pid for process in self.hosts.pids(host))

    def pids(self, where: str, program: str) -> list[int]:
        """The processes of this Ray whose command line has the word: `raylet/raylet`, `gcs_server`,
        `ray::Place`; `where` is a host or "driver". The numbers are this machine's."""
        if where != "driver":
            found = [(each.pid, " ".join(each.argv)) for each in self.hosts.pids(where)]
        else:
            found = [(pid, command) for pid, command in self._ours() if self._is_here(pid)]
        return [pid for pid, command in found if program in command]

    def kill(self, where: str, program: str) -> int:
        """SIGKILL these; returns how many there were."""
        pids = self.pids(where, program)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def end(self, name: str) -> None:
        """Take a node away as its administrator would: its raylet and all that it started are ended."""
        process = self._started.pop(name)
        process.terminate()
        process.wait()
        if name in self.nodes:
            self.nodes.remove(name)

    def power_off(self, name: str) -> None:
        """Have a host vanish with everything that runs on it; `add` after `hosts.power_on` brings it back."""
        self.hosts.power_off(name)
        process = self._started.pop(name)
        process.kill()
        process.wait()
        self.nodes.remove(name)

    @contextlib.contextmanager
    def only_client_port(self) -> Iterator[None]:
        """Meanwhile this machine reaches nothing of the hosts but their port for Ray's clients."""
        assert self._head != "driver"
        table = f"jdray{self._client_port}"
        rule = f'oifname "{self.hosts.interface}" tcp flags syn tcp dport != {self._client_port} reject'
        chain = f"chain out {{\n type filter hook output priority 0;\n {rule}\n}}"
        text = f"table inet {table} {{\n{chain}\n}}\n"
        subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)
        try:
            yield
        finally:
            subprocess.run(["nft", "delete", "table", "inet", table], check=True)

    @contextlib.contextmanager
    def pretending(self, **told: str) -> Iterator[None]:
        """Meanwhile the head tells others of its `ray_version` or its `python_version` than it has."""
        before = self._asked("metadata", {})
        self._asked("metadata", {**before, **told})
        try:
            yield
        finally:
            self._asked("metadata", before)

    def close(self) -> None:
        """End every process of this Ray, and the hosts. Repeatable."""
        if self._answers is not None:
            with self._answers:
                self._answers.kill()
            self._answers = None
        for process in self._started.values():
            process.kill()
        for process in self._started.values():
            process.wait()
        self._started, self.nodes = {}, []
        deadline = time.monotonic() + 10
        while (left := list(self._ours())) and time.monotonic() < deadline:
            for pid, _ in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        if hasattr(self.hosts, "_slot"):
            self.hosts.close()
        shutil.rmtree(self._temp, ignore_errors=True)

    def _ip(self, name: str) -> str:
        return self.hosts.driver_address if name == "driver" else self.hosts.address(name)

    def _start_head(self) -> None:
        self._port, self._client_port = take_port(), take_port()
        argv = ["--head", "--port", str(self._port), "--ray-client-server-port", str(self._client_port)]
        self._start(self._head, [*argv, "--include-dashboard", "false", *self._what(self._head, None, None)])
        self.until(1)
        self._until_clients_can_connect()

    def _until_clients_can_connect(self) -> None:
        """Wait for the server of Ray's clients, which starts after the head."""
        deadline = Deadline()
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection((self._ip(self._head), self._client_port)).close()
                return
            if deadline.passed() or not self.has_head:
                pytest.fail(f"nothing listens at {self.client_address}")
            time.sleep(0.1)

    def _asked(self, *question: Any) -> Any:
        """What the head answers; its GCS is to be there, or to come."""
        if self._answers is None:
            self._answers = subprocess.Popen(
                [sys.executable, "-c", _ANSWERS, self.address],
                env={**os.environ, **self._env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._answers.stdin is not None
        assert self._answers.stdout is not None
        self._answers.stdin.write(json.dumps(question) + "\n")
        self._answers.stdin.flush()
        return json.loads(self._answers.stdout.readline())

    def _what(self, name: str, cpus: int | None, gpus: int | None) -> list[str]:
        if name == "driver":
            cpus = gpus = 0
        has = {"cpus": self._cpus if cpus is None else cpus, "gpus": self._gpus if gpus is None else gpus}
        return ["--num-cpus", str(has["cpus"]), "--num-gpus", str(has["gpus"])]

    def _start(self, name: str, argv: list[str]) -> None:
        # With --block Ray's processes end with the one that starts them, however that ends.
        common = ["--block", "--node-ip-address", self._ip(name), "--object-store-memory", "80000000"]
        common += ["--disable-usage-stats", "--include-log-monitor", "false", *ports_of_a_node()]
        temp = [] if name != "driver" else ["--temp-dir", str(self._temp)]
        ray = [*RAY, "start", *argv, *common, *temp]
        with (self.folder / f"ray-{name}.log").open("ab") as log:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            if name == "driver":
                ended_with_us = ["setpriv", "--pdeathsig", "KILL", "--", *ray]
                env = {**os.environ, **self._env}
                self._started[name] = subprocess.Popen(
                    ended_with_us, env=env, start_new_session=True, cwd="/", **streams
                )
            else:
                self._started[name] = self.hosts.popen(
                    name, ray, env=self._env, start_new_session=True, **streams
                )
                self.nodes.append(name)

    def _ours(self) -> Iterator[tuple[int, str]]:
        marker = f"JUPYTER_DIST_TEST_RAY={self._word}".encode()
        for entry in os.listdir("/proc"):
            # Processes come and go while we look.
            with contextlib.suppress(OSError):
                if entry.isdigit() and marker in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    command = Path("/proc", entry, "cmdline").read_bytes().replace(b"\0", b" ")
                    yield int(entry), command.decode(errors="replace").strip()

    @staticmethod
    def _is_here(pid: int) -> bool:
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")
        return False


_shared: list[RayNodes] = []


@contextlib.contextmanager
def shared_ray(folders: pytest.TempPathFactory) -> Iterator[RayNodes]:
    """The Ray that tests of this process share, for a module of the group IN_SHARED: h1 and h2 with 2 CPUs
    and 1 GPU each; of the GPUs Ray knows only the number. conftest.py ends it after the group's last test."""
    _check()
    if _shared and not _shared[0].has_head:
        end_shared()
    if not _shared:
        _shared.append(RayNodes(folders.mktemp("ray"), 2, cpus=2, gpus=1).__enter__())
    _shared[0].mend()
    with _as_driver(_shared[0]):
        yield _shared[0]


def end_shared() -> None:
    """End the shared Ray, where there is one."""
    while _shared:
        _shared.pop().close()


@contextlib.contextmanager
def ray_nodes(folder: Path, nodes: int = 2, **options: Any) -> Iterator[RayNodes]:
    """A Ray of its own for the tests of a module."""
    _check()
    folder.mkdir(parents=True, exist_ok=True)
    with RayNodes(folder, nodes, **options) as running, _as_driver(running):
        yield running


def _check() -> None:
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    pytest.importorskip("ray")


@contextlib.contextmanager
def _as_driver(running: RayNodes) -> Iterator[None]:
    """The environment in which drivers of this process find it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in running.env.items():
            patch.setenv(name, value)
        patch.delenv("RAY_ADDRESS", raising=False)
        yield


@contextlib.contextmanager
def runs_on(ray: RayNodes, folder: Path, *, np: int = 4, **flags: Any) -> Iterator[Runs]:
    """Runs there, of which nothing may be left on the nodes: no process of ours, nor an actor of Ray's."""
    given = {"address": ray.address, "grace": 60, **flags}
    started = Runs(Target("ray", np=np, flags=given, startup_s=20.0, lives=ray.lives), folder / "runs")
    yield started
    started.close()
    deadline = Deadline()
    while left := [found for name in ray.nodes for found in ("jdist", "NodeActor") if ray.pids(name, found)]:
        assert not deadline.passed(), f"still there: {left}"
        time.sleep(0.1)

"""A Ray and a Spark on this machine, each started once and used by all contenders of a benchmark."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

from jupyter_dist.conformance.ports import take_port
from tests.rigs.ray.start import RAY, ports_of_a_node

from ._notebook import until
from ._processes import Failed, Family, last_line

__all__ = ["Shared", "ray_head", "spark_master"]

_START_S = 300.0


class Shared:
    """What `open` gives, for several contenders: opened for the first one, closed after the last one."""

    def __init__(self, open: Callable[[], AbstractContextManager[str]]) -> None:
        self._open = open
        self._users = 0
        self._stack = ExitStack()
        self._address = ""

    @contextlib.contextmanager
    def lent(self) -> Iterator[str]:
        if self._users == 0:
            self._address = self._stack.enter_context(self._open())
        self._users += 1
        try:
            yield self._address
        finally:
            self._users -= 1
            if self._users == 0:
                self._stack.close()


@contextlib.contextmanager
def ray_head(cpus: int) -> Iterator[str]:
    """The address of a Ray of one node with that many CPUs, whatever the machine has."""
    port = take_port()
    argv = [*RAY, "start", "--head", "--block", f"--port={port}", f"--num-cpus={cpus}"]
    argv += ["--object-store-memory=80000000", "--include-dashboard=false", "--disable-usage-stats"]
    argv += [f"--ray-client-server-port={take_port()}", *ports_of_a_node()]
    # Ray puts sockets into its folder, and the path of a socket must be short.
    with (
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder,
        _servers() as start,
    ):
        log = Path(folder, "start.log")
        process = start([*argv, f"--temp-dir={folder}"], log)
        until(partial(_started_or_ended, log, process), _START_S, "Ray has not started")
        if not _started(log):
            raise Failed(f"Ray has not started: {last_line(log.read_text(errors='replace'))}")
        yield f"{_host()}:{port}"


@contextlib.contextmanager
def spark_master(cores: int) -> Iterator[str]:
    """The URL of a standalone Spark with two workers of that many cores each."""
    from pyspark.find_spark_home import _find_spark_home

    spark_class = str(Path(_find_spark_home(), "bin", "spark-class"))
    port = take_port()
    url = f"spark://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="spark-") as folder, _servers() as start:
        env = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "SPARK_WORKER_DIR": folder}
        env |= {"PYSPARK_PYTHON": sys.executable, "SPARK_NO_DAEMONIZE": "1"}
        deploy = "org.apache.spark.deploy"
        common = ["--host", "127.0.0.1", "--webui-port", "0"]
        log = Path(folder, "master.log")
        start([spark_class, f"{deploy}.master.Master", *common, "--port", str(port)], log, env)
        until(lambda: _listens(port), _START_S, "Spark's master has not started")
        for _ in range(2):
            worker = [spark_class, f"{deploy}.worker.Worker", *common, "-c", str(cores), "-m", "4g", url]
            start(worker, Path(folder, "worker.log"), env)
        until(
            lambda: log.read_bytes().count(b"Registering worker") == 2,
            _START_S,
            "Spark's workers have not started",
        )
        yield url


@contextlib.contextmanager
def _servers() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start servers that are ended, with all they have started, when the block is left."""
    family = Family()
    processes: list[subprocess.Popen[bytes]] = []

    def start(argv: list[str], log: Path, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        with log.open("ab") as file:
            process = subprocess.Popen(
                argv,
                env=family.environ({"RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0", **(env or {})}),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        processes.append(process)
        time.sleep(0.1)
        if process.poll() is not None:
            raise Failed(f"{os.path.basename(argv[0])}: {last_line(log.read_text(errors='replace'))}")
        return process

    try:
        yield start
    finally:
        family.end()
        for process in processes:
            process.wait()


def _started_or_ended(log: Path, process: subprocess.Popen[bytes]) -> bool:
    return _started(log) or process.poll() is not None


def _started(log: Path) -> bool:
    return b"Ray runtime started" in log.read_bytes()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _host() -> str:
    from ray.util import get_node_ip_address

    return str(get_node_ip_address())

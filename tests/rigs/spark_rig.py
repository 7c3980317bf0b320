"""Real, small Sparks on this machine: a standalone master with its workers, and a server of Spark Connect.

    with standalone(folder) as master:                           # "spark://127.0.0.1:PORT"
        with connect(folder, "local-cluster[2,1,1024]") as url:  # "sc://127.0.0.1:PORT"
    with session("local[2]") as context:                         # as a notebook has it, in this process

All that is started ends with the block, by its process group. The fixture
`spark_context` is a notebook's session on two executors, which the modules of a group share.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.conformance.deadlines import Deadline
from jupyter_dist.conformance.ports import take_port
from tests.rigs.hosts import Hosts

__all__ = [
    "LOCAL_CLUSTER",
    "SMALL",
    "KeptSession",
    "connect",
    "connect_url",
    "kept_session",
    "missing",
    "session",
    "spark_context",
    "standalone",
]

LOCAL_CLUSTER = "local-cluster[2,1,1024]"
SMALL = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # On two cores the compilers' and collectors' threads cost more than they save.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""For sessions of tests."""
_DEPLOY = "org.apache.spark.deploy"


def missing() -> str | None:
    """Why no Spark can be started here."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed"
    if shutil.which("java") is None:
        return "there is no Java: apt-get install default-jre-headless"
    return None


@contextlib.contextmanager
def standalone(
    folder: Path,
    address: str = "127.0.0.1",
    workers: Mapping[str, int] = {"127.0.0.1": 2},
    hosts: Hosts | None = None,
) -> Iterator[str]:
    """A master, and workers with so many cores by their hosts; its URL. `hosts`: where these are not here."""
    port = take_port()
    argv = [f"{_DEPLOY}.master.Master", "--host", address, "--port", str(port), "--webui-port", "0"]
    url = f"spark://{address}:{port}"
    with contextlib.ExitStack() as stack:
        stack.enter_context(_java(folder, "master", argv))
        _wait_for_port(address, port)
        for host, cores in workers.items():
            at = host if hosts is None else hosts.address(host)
            argv = [
                f"{_DEPLOY}.worker.Worker",
                "-c",
                str(cores),
                "-m",
                "1g",
                "--host",
                at,
                "--webui-port",
                "0",
            ]
            env = {"SPARK_LOCAL_IP": at, "SPARK_WORKER_DIR": f"/tmp/{folder.name}-{host}-{port}"}
            inside = [] if hosts is None else hosts.inside(host, ["env"])
            stack.enter_context(_java(folder, f"worker-{host}", [*argv, url], env, inside=inside))
            stack.callback(shutil.rmtree, env["SPARK_WORKER_DIR"], ignore_errors=True)
        for host in workers:
            _wait_for_text(folder / f"worker-{host}.log", "Successfully registered with master")
        yield url


@contextlib.contextmanager
def connect(folder: Path, master: str) -> Iterator[str]:
    """A server of Spark Connect whose session has that master; its URL."""
    port = take_port()
    settings = {**SMALL, "spark.connect.grpc.binding.port": str(port)}
    argv = ["org.apache.spark.deploy.SparkSubmit", "--master", master]
    for name, value in settings.items():
        argv += ["--conf", f"{name}={value}"]
    argv += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with _java(folder, "connect", argv, memory="512m"):
        _wait_for_text(folder / "connect.log", "Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"


@contextlib.contextmanager
def session(master: str) -> Iterator[Any]:
    """The SparkContext of this process, once it has its executors and has run a job; nothing is left of it or
    of its JVM."""
    with _variables(), _started(master) as context:
        yield context


class KeptSession:
    """One session on LOCAL_CLUSTER for several modules, whose start takes longer than most tests."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._context: Any = None

    @contextlib.contextmanager
    def lent(self) -> Iterator[Any]:
        """This process's session for as long as the block lasts: before and after, it seems to have none."""
        from pyspark import SparkContext

        with _variables():
            if self._context is None:
                settings = {"spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin"}
                settings["spark.connect.grpc.binding.port"] = str(take_port())
                self._context = self._stack.enter_context(_started(LOCAL_CLUSTER, settings))
            SparkContext._active_spark_context = self._context
            try:
                yield self._context
            finally:
                stopped = self._context._jsc is None
                SparkContext._active_spark_context = None
        if stopped:
            self.close()

    def close(self) -> None:
        """Also of a session that a test has stopped. Repeatable."""
        self._stack.close()
        self._context = None


@pytest.fixture(scope="session")
def kept_session() -> Iterator[KeptSession]:
    kept = KeptSession()
    yield kept
    kept.close()


@pytest.fixture(scope="module")
def spark_context(kept_session: KeptSession) -> Iterator[Any]:
    """The SparkContext of this process, which is a notebook's kernel to the module's tests. Its JVM is a
    server of Spark Connect as well (`connect_url`), whose sessions have the same executors."""
    with kept_session.lent() as context:
        yield context


def connect_url(context: Any) -> str:
    """By which others have sessions of their own in the JVM of `spark_context`."""
    return f"sc://127.0.0.1:{context.getConf().get('spark.connect.grpc.binding.port')}"


@contextlib.contextmanager
def _variables() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        yield


@contextlib.contextmanager
def _started(master: str, settings: Mapping[str, str] = {}) -> Iterator[Any]:
    from pyspark import SparkConf, SparkContext

    conf = SparkConf().setMaster(master).setAppName("notebook").setAll(list({**SMALL, **settings}.items()))
    context = SparkContext(conf=conf)
    process = SparkContext._gateway.proc
    known = 1 + (2 if master == LOCAL_CLUSTER else 0)  # the driver counts, too
    try:
        context.setLogLevel("ERROR")
        deadline = Deadline()
        while context._jsc.sc().getExecutorMemoryStatus().size() < known:
            if deadline.passed():
                pytest.fail(f"the executors of {master} were not there")
            time.sleep(0.1)
        # The first job of a Spark takes many times as long as the next ones.
        context.parallelize([0], 1).barrier().mapPartitions(list).collect()
        yield context
    finally:
        with contextlib.suppress(Exception):  # a test may have stopped it, or its JVM
            context.stop()
        SparkContext._gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _java(
    folder: Path,
    name: str,
    argv: Sequence[str],
    env: Mapping[str, str] = {},
    memory: str = "128m",
    inside: Sequence[str] = (),
) -> Iterator[None]:
    """A program of Spark's; `inside`: what runs a command with an environment in a host."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    folder.mkdir(parents=True, exist_ok=True)
    own = {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": memory,
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYSPARK_PYTHON": sys.executable,
        **env,
    }
    there = [*inside, *(f"{key}={value}" for key, value in own.items())] if inside else []
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [*there, str(home / "bin" / "spark-class"), *argv],
            env={**os.environ, **own},
            cwd="/" if inside else folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for_port(address: str, port: int) -> None:
    deadline = Deadline()
    while True:
        try:
            socket.create_connection((address, port), 5).close()
            return
        except OSError:
            if deadline.passed():
                pytest.fail(f"nobody listens at {address}, port {port}")
            time.sleep(0.1)


def _wait_for_text(path: Path, text: str) -> None:
    deadline = Deadline()
    while text not in (said := path.read_text(errors="replace")):
        if deadline.passed():
            pytest.fail(f"{text!r} was not said: {said[-3000:]}")
        time.sleep(0.1)

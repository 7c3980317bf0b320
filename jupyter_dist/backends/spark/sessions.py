"""The connection to a Spark cluster: a new session, Spark Connect, or the notebook's open session.

The functions here import PySpark. The module itself does not.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
import sys
import threading
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...errors import DistError, LaunchError
from . import barrier_task

__all__ = ["GATEWAY", "REMOTE", "Session", "SparkAddress", "is_final", "open_session", "slots_of", "why"]

GATEWAY = "JUPYTER_DIST_SPARK_GATEWAY"
"""Variable with `PORT PYTHON SECRET` of the notebook's own session. Only the run's processes have it.

The secret allows anyone to run any code as the user.
"""
REMOTE = "JUPYTER_DIST_SPARK_REMOTE"
"""Variable with the Spark Connect URL of the notebook's session. The URL may contain a token."""
_DIAL_S = 5.0
_STOP_S = 5.0
_OF_A_NOTEBOOK = (
    *("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_REMOTE"),
    *("SPARK_REMOTE", "SPARK_API_MODE"),
)
"""Variables that would make PySpark join a session instead of creating one."""

Task = Callable[[Iterator[Any]], Iterator[str]]


@dataclass(frozen=True)
class SparkAddress:
    """The address of a run's cluster.

    Without a master, the process's environment decides, else Spark's default.
    """

    run: str
    """The run's id: it names the application, or the Spark Connect session."""
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    """The Python of the executors."""
    np: int = 1


class Session(Protocol):
    """A session with a cluster, for one thread at a time. Any thread may call `cancel` and `close`."""

    where: str
    """The session's name for people: the master's URL."""

    def address(self) -> tuple[str, str]:
        """Return this machine's address for the executors, and the local address to listen on."""
        ...

    def slots(self) -> int | None:
        """Return how many tasks the current executors can run at the same time, or None if unknown."""
        ...

    def hold(self, np: int, task: Task, name: str) -> None:
        """Run a barrier stage of that many tasks. Blocks until the stage ends. Raises Spark's errors."""
        ...

    def cancel(self, name: str) -> None:
        """Make Spark end the stages of that name, also those of another process. Repeatable. May raise."""
        ...

    def close(self) -> None:
        """Release what was opened. Never raises."""
        ...


def open_session(spark_address: SparkAddress) -> Session:
    """Open a session. Blocks until the cluster answers. Raises LaunchError, or PySpark's errors."""
    _travel_by_value()
    url = spark_address.master
    if url is None:
        url = os.environ.get(REMOTE)
        if url is None and GATEWAY in os.environ:
            return _Shared()
        url = url or os.environ.get("SPARK_REMOTE")
    return (
        _Connect(url, spark_address.run)
        if url is not None and url.startswith("sc://")
        else _Own(spark_address)
    )


def _travel_by_value() -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(barrier_task)  # type: ignore[no-untyped-call, unused-ignore]


def slots_of(context: Any) -> int | None:
    """Return how many tasks the executors of a SparkContext can run at the same time, or None if unknown.

    Spark computes the number before a barrier stage (checkBarrierStageWithNumSlots in
    https://github.com/apache/spark/blob/master/core/src/main/scala/org/apache/spark/scheduler/DAGScheduler.scala).
    The method is private. A Spark without it yields no number, and nothing else fails.
    """
    from py4j.protocol import Py4JError

    try:
        inner = context._jsc.sc()
        return int(inner.maxNumConcurrentTasks(inner.resourceProfileManager().defaultResourceProfile()))
    except (Py4JError, AttributeError, TypeError):
        return None


class _Classic:
    """A SparkContext in a JVM on this machine."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.where = str(context.master)

    def address(self) -> tuple[str, str]:
        conf = self._context.getConf()
        address = str(conf.get("spark.driver.host")).strip("[]")
        return address, str(conf.get("spark.driver.bindAddress", address)).strip("[]")

    def slots(self) -> int | None:
        if self._context._jsc is None or self._context._jsc.sc().isStopped():
            raise LaunchError("the Spark session was stopped")
        return slots_of(self._context)

    def hold(self, np: int, task: Task, name: str) -> None:
        from pyspark import InheritableThread

        context, raised = self._context, list[BaseException]()

        def job() -> None:
            try:
                context.setJobGroup(name, f"jupyter-dist: {name}", interruptOnCancel=True)
                context.parallelize(range(np), np).barrier().mapPartitions(task).collect()
            except BaseException as error:
                raised.append(error)

        # A job group belongs to a JVM thread. Only this kind of Python thread has a JVM thread of its own.
        thread = InheritableThread(target=job, daemon=True)
        thread.start()
        thread.join()
        if raised:
            raise raised[0]

    def cancel(self, name: str) -> None:
        self._context.cancelJobGroup(name)


class _Own(_Classic):
    """A new application, which ends with this process."""

    def __init__(self, spark_address: SparkAddress) -> None:
        for name in _OF_A_NOTEBOOK:
            os.environ.pop(name, None)
        master = spark_address.master
        if master is not None and master.startswith("local"):
            # In a container, this machine's hostname may not resolve.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if spark_address.python is not None:
            os.environ["PYSPARK_PYTHON"] = spark_address.python
        _find_master(master)
        from pyspark import SparkConf, SparkContext

        conf = SparkConf().setAppName(f"jupyter-dist {spark_address.run}")
        for name, value in {**_defaults(spark_address), **spark_address.conf}.items():
            conf.set(name, value)
        conf.setIfMissing("spark.master", "local[*]")
        super().__init__(SparkContext(conf=conf))

    def close(self) -> None:
        _stop(self._context)


class _Shared(_Classic):
    """The context of a notebook. This class never stops it. It ends with the notebook's kernel."""

    def __init__(self) -> None:
        port, python, secret = os.environ[GATEWAY].split(" ", 2)
        for name in _OF_A_NOTEBOOK:
            os.environ.pop(name, None)
        os.environ |= {"PYSPARK_GATEWAY_PORT": port, "PYSPARK_GATEWAY_SECRET": secret}
        os.environ["PYSPARK_PYTHON"] = urllib.parse.unquote(python)
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway

        try:
            gateway = launch_gateway()
            inner = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
        except Exception as error:
            raise LaunchError(f"the notebook's Spark session has ended ({why(error)})") from error
        java = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(inner)
        super().__init__(SparkContext(gateway=gateway, jsc=java, conf=SparkConf(_jconf=java.getConf())))

    def close(self) -> None:
        pass


class _Connect:
    """A Spark Connect session, without a JVM here. Another process finds it again by its name."""

    def __init__(self, url: str, run: str) -> None:
        self.where = url.partition(";")[0].rstrip("/")
        parts = urllib.parse.urlsplit(self.where)
        self._server = parts.hostname or "localhost", parts.port or 15002
        _reach(self.where, [self._server])
        for name in _OF_A_NOTEBOOK:
            os.environ.pop(name, None)
        from pyspark.sql import SparkSession

        if "session_id=" not in url:
            named = uuid.UUID(bytes=hashlib.sha256(run.encode()).digest()[:16], version=4)
            url = f"{url.rstrip(';')}{'' if '/;' in url else '/'};session_id={named}".replace("//;", "/;")
        self._spark = SparkSession.builder.remote(url).getOrCreate()
        self._spark.version  # noqa: B018 - the first request: raises where nobody answers

    def address(self) -> tuple[str, str]:
        with socket.create_connection(self._server, _DIAL_S) as connection:
            own = str(connection.getsockname()[0])
        return own, own

    def slots(self) -> int | None:
        return None

    def hold(self, np: int, task: Task, name: str) -> None:
        self._spark.addTag(name)
        frame = self._spark.range(0, np, 1, np)
        frame.mapInArrow(barrier_task.in_arrow(task), "said string", barrier=True).collect()

    def cancel(self, name: str) -> None:
        self._spark.interruptTag(name)

    def close(self) -> None:
        _stop(self._spark)


def _stop(opened: Any) -> None:
    """Stop a SparkContext or a SparkSession. Blocks for some seconds at most."""

    def stop() -> None:
        with contextlib.suppress(Exception):
            opened.stop()

    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()
    stopping.join(_STOP_S)


def _defaults(spark_address: SparkAddress) -> dict[str, str]:
    """Return the default settings of a new application."""
    found = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A barrier stage is impossible with it, and this application runs nothing else.
        "spark.dynamicAllocation.enabled": "false",
    }
    master = spark_address.master or ""
    if spark_address.master is not None:
        found["spark.master"] = spark_address.master
    cores = int(spark_address.conf.get("spark.task.cpus", "1"))
    if master.startswith("spark://"):
        # By default, the first application on a standalone cluster gets all its cores.
        # The cluster starts only whole executors within this limit.
        each = int(spark_address.conf.get("spark.executor.cores", "0"))
        executors = -(-spark_address.np // max(1, each // cores))
        found["spark.cores.max"] = str(executors * each if each >= cores else spark_address.np * cores)
    elif master.startswith(("yarn", "k8s://")):
        each = max(1, int(spark_address.conf.get("spark.executor.cores", "1")) // cores)
        found["spark.executor.instances"] = str(-(-spark_address.np // each))
    return found


def _find_master(master: str | None) -> None:
    """Check that a standalone master listens. Spark itself tries for a minute if none does."""
    if master is None or not master.startswith("spark://"):
        return
    places = []
    for part in master.removeprefix("spark://").split(","):
        host, _, port = part.rpartition(":")
        places.append((host.strip("[]"), int(port)))
    _reach(master, places)


def _reach(url: str, places: list[tuple[str, int]]) -> None:
    said = []
    for place in places:
        try:
            socket.create_connection(place, _DIAL_S).close()
            return
        except OSError as error:
            said.append(f"{place[0]}, port {place[1]}: {error.strerror or error}")
    raise LaunchError(f"no Spark answers at {url} ({'; '.join(said)})")


_TOLD = (
    # The last line of a Python worker's traceback, and Spark's message about a task or a stage.
    re.compile(
        r"^(?:\w+\.)*(?:\w*Error|\w*Exception): (?P<why>.*cannot reach the notebook's machine.*)$", re.M
    ),
    re.compile(r"Error from python worker:\n(?:  [^\n]*\n)*?  (?P<why>[^\n]*)\n(?!  )"),
    re.compile(r"finished unsuccessfully\.\s*(?P<why>[^\n]+)"),
    re.compile(r"(?P<why>Cannot run program [^\n]*)"),
    re.compile(r"(?P<why>Job \S+ cancelled[^\n]*)"),
    re.compile(r"SparkException: (?P<why>[^\n]+)"),
)


# Spark's worker compares the versions before it unpickles anything:
# https://github.com/apache/spark/blob/master/python/pyspark/worker_util.py (check_python_version)
_OTHER_PYTHON = re.compile(r"PYTHON_VERSION_MISMATCH\].*?version: (\d+\.\d+) .*?driver: (\d+\.\d+)", re.S)


def is_final(error: BaseException) -> bool:
    """Return whether a retry would fail in the same way."""
    return isinstance(error, DistError) or _OTHER_PYTHON.search(str(error)) is not None


def why(error: BaseException) -> str:
    """Return Spark's error in one line. Its exceptions contain pages of frames."""
    text = str(error)
    if isinstance(error, DistError):
        return text
    other = _OTHER_PYTHON.search(text)
    if other is not None:
        return (
            f"the executors' Python is {other[1]} and the notebook's is {other[2]}: what travels is pickled, "
            "which only the same version reads. Name one of the notebook's version with --python, or with "
            "PYSPARK_PYTHON before the session is opened"
        )
    for pattern in _TOLD:
        found = pattern.search(text)
        if found is not None:
            said = found["why"].partition(" Consider setting ")[0].strip()
            return said.removeprefix("org.apache.spark.SparkException: ")[:500]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:500]}" if lines else type(error).__name__

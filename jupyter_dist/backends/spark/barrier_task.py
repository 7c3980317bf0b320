"""The function of each task of a barrier stage: it occupies one slot of the cluster for a run.

Every task connects to the driver, and both prove to each other that they have the run's key. On each machine,
one task then runs the stage program, with that connection as its standard input and output. The other tasks
wait. All of them end when the driver orders it.

Spark pickles this module by value. It imports nothing of the package, which is missing on the executors.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["END", "HOST", "WAIT", "holder", "in_arrow", "proof", "receive", "run_held"]

HOST, WAIT, END = b"h", b"w", b"e"
"""The driver's orders: run the stage program on this connection, wait for another order, end.

HOST is followed by the GPUs of all tasks on the machine: four bytes with a length, and JSON.
"""
_DIAL_S = 10.0
_FIRST_DIAL_S = 30.0
"""Seconds of failed first connections until the task fails, so that the user sees the error."""
_AGAIN_S = 0.5
_REFUSED_S = 2.0
"""Seconds of refused connections until the task ends.

The driver's machine answers, but the run's processes there are dead.
"""
_SPARKS_OWN = (
    # Spark sets these for its Python workers. OMP_NUM_THREADS is for the task's cores, and ranks get their
    # own.
    *("OMP_NUM_THREADS", "PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_SOCK_PATH"),
    *("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_BUFFER_SIZE", "SPARK_AUTH_SOCKET_TIMEOUT"),
)


def proof(key: bytes, who: bytes, *parts: bytes) -> bytes:
    """Return the proof that `who` ("driver" or "task") has the key.

    `parts` contain the other side's challenge.
    """
    return hmac.new(key, b"\0".join((who, *parts)), hashlib.sha256).digest()


def receive(connection: socket.socket, size: int) -> bytes:
    """Read exactly that many bytes. Raises ConnectionError if the other side ends."""
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionResetError("the other side has hung up")
        data += more
    return data


def holder(
    address: tuple[str, int], key: bytes, program: str, word: str, grace_s: float
) -> Callable[[Iterator[Any]], Iterator[str]]:
    """Return the function for `mapPartitions` of a barrier stage. It yields one string when its task is over.

    `address`: where the driver listens. `grace_s`: how long the task tries to reconnect to a driver. Raises
    OSError, which Spark shows, if the driver is unreachable.
    """

    def hold(_: Iterator[Any]) -> Iterator[str]:
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        about = _about(context.partitionId(), context.resources())
        read, write = os.pipe()
        try:
            for connection in _dialled(address, key, about, grace_s):
                with connection:
                    order, gpus = _ordered(connection)
                    if order == HOST:
                        run_held([sys.executable, "-I", "-c", program, word], connection, read, gpus)
                if order == END:
                    break
        finally:
            os.close(read)
            os.close(write)
        yield f"{about['hostname']} {about['partition']}"

    return hold


def in_arrow(hold: Callable[[Iterator[Any]], Iterator[str]]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the same function for `mapInArrow`, whose result has one column `said`."""

    def hold_in_arrow(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for _ in batches:
            pass
        for said in hold(iter(())):
            yield pyarrow.RecordBatch.from_pylist([{"said": said}])

    return hold_in_arrow


def run_held(
    argv: Sequence[str],
    connection: socket.socket | None,
    lifeline: int,
    gpus: Sequence[str],
    env: Mapping[str, str] | None = None,
) -> int:
    """Run a program until it ends, and return its exit code. The connection is its input and output.

    `lifeline`: the reading end of a pipe. This task has the other end. When the task ends for any reason, the
    program's children read the end of the pipe: Spark then assigns the slot to others.
    """
    streams = subprocess.DEVNULL if connection is None else connection.fileno()
    own = {name: value for name, value in os.environ.items() if name not in _SPARKS_OWN}
    if gpus:
        own["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    process = subprocess.Popen(
        list(argv),
        stdin=streams,
        stdout=streams,
        env={**own, **(env or {}), "JUPYTER_DIST_LIFELINE": str(lifeline)},
        pass_fds=[lifeline],
    )
    return process.wait()


def _about(partition: int, resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the driver needs to know about this task."""
    gpus = resources.get("gpu")
    return {
        "partition": partition,
        "hostname": socket.gethostname(),
        "machine": _machine(),
        "gpus": [] if gpus is None else [str(address) for address in gpus.addresses],
        "pid": os.getpid(),
        "version": platform.python_version(),
    }


def _machine() -> str:
    """Return the machine's identity. It is equal for two tasks only if they share processes and network.

    One agent serves both tasks then.
    """
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        spaces = [os.readlink(f"/proc/self/ns/{name}") for name in ("net", "pid", "mnt")]
        return " ".join((file.read().strip(), *spaces))
    return socket.gethostname()


def _dialled(
    address: tuple[str, int], key: bytes, about: dict[str, Any], grace_s: float
) -> Iterator[socket.socket]:
    """Yield connections to the driver, one after the other. Raises OSError after too long without one."""
    known, silent_since = False, time.monotonic()
    while True:
        try:
            connection = _dial(address, key, about)
        except OSError as error:
            patience_s = grace_s if known else _FIRST_DIAL_S
            if known and isinstance(error, ConnectionRefusedError):
                patience_s = _REFUSED_S
            if time.monotonic() - silent_since > patience_s:
                raise OSError(
                    f"{about['hostname']} cannot reach the notebook's machine at {address[0]}, port "
                    f"{address[1]}: {error.strerror or error}"
                ) from None
            time.sleep(_AGAIN_S)
            continue
        yield connection
        known, silent_since = True, time.monotonic()


def _dial(address: tuple[str, int], key: bytes, about: Mapping[str, Any]) -> socket.socket:
    connection = socket.create_connection(address, _DIAL_S)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _keep_alive(connection)
        theirs, ours = receive(connection, 32), os.urandom(32)
        told = json.dumps(about).encode()
        connection.sendall(
            ours + proof(key, b"task", theirs, ours, told) + len(told).to_bytes(4, "big") + told
        )
        if not hmac.compare_digest(receive(connection, 32), proof(key, b"driver", ours)):
            raise ConnectionRefusedError("somebody else listens there")
        connection.settimeout(None)  # a timeout would leave O_NONBLOCK set for the stage program
    except BaseException:
        connection.close()
        raise
    return connection


def _keep_alive(connection: socket.socket) -> None:
    """Set keep-alive options that detect the silent loss of the driver's machine within two minutes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _ordered(connection: socket.socket) -> tuple[bytes, list[str]]:
    """Return the next order other than WAIT, and the GPUs for the stage program.

    Returns WAIT if the connection was lost before an order.
    """
    try:
        while (order := receive(connection, 1)) == WAIT:
            pass
        if order != HOST:
            return order, []
        size = int.from_bytes(receive(connection, 4), "big")
        return order, list(json.loads(receive(connection, size)))
    except OSError:
        return WAIT, []

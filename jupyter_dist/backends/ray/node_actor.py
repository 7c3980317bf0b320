"""Our actor on a Ray node: a detached actor that keeps the resources and starts the stage program.

Ray ships the actor to the node by value. This module therefore imports nothing of our package.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import secrets
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["PIECE", "WORD", "NodeActor", "gpus_given", "proof"]

WORD = "jupyter-dist-stage"
"""First word of the stage program's answer."""
PIECE = 90_000
"""Bytes per call. Ray keeps results below 100 KiB out of its object store, which may be full."""
_CALL_S = 30.0
"""Time in seconds within which a caller must connect to the port."""
_LOOK_EVERY_S = 2.0


class NodeActor:
    """The actor. It runs one asyncio loop, with many calls at once.

    Our agent and the ranks are separate processes that Ray does not manage. They have the reading end of a
    pipe, the *lifeline*. Only this process has its writing end. When this process dies for any reason, they
    end too. When no process has a reading end any more, nobody needs the resources. The actor then releases
    the placement group, which also ends the actor.
    """

    def __init__(self, program: str, group: str, namespace: str, bundles: int, idle_s: float) -> None:
        """`program`: the stage program's text. `group`: the name of our placement group. The node actors in
        it are called `group-bundle`, for bundles from 0 to `bundles`. `idle_s`: how long the actor keeps
        unused resources.
        """
        self._program, self._group, self._namespace, self._bundles = program, group, namespace, bundles
        self._environment = _environment({})
        self._lifelines: list[int] = []
        self._stages: list[subprocess.Popen[bytes]] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._looking = threading.Lock()
        self._used = time.monotonic()
        self._idle_s = idle_s
        self._session = ""
        self._process: asyncio.subprocess.Process | None = None
        self._sent = self._received = 0
        self._sending, self._receiving = asyncio.Lock(), asyncio.Lock()
        threading.Thread(target=self._keep, name="jupyter-dist-keep", daemon=True).start()

    async def equip(self, environment: Mapping[str, str], gpus: Sequence[Any]) -> None:
        """Set the environment variables of future agents, and the GPUs of all our bundles on this node.

        `gpus`: the results of `gpus_given` in the other bundles. GPUs that Ray did not assign stay invisible.
        """
        import ray

        given = [gpus_given(), *[await each for each in gpus]]
        ours = {
            "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
            "JUPYTER_DIST_ADDRESS": ray.util.get_node_ip_address(),
            "CUDA_VISIBLE_DEVICES": ",".join(dict.fromkeys(gpu for some in given for gpu in some)),
        }
        self._environment = _environment({**ours, **environment})

    async def watch(self) -> None:
        """Never return. A caller that waits for the result learns when this actor ends."""
        await asyncio.Event().wait()

    async def idle(self) -> bool:
        """Return whether nobody needs these resources any more."""
        return self._is_idle()

    async def listen(self, key: bytes) -> tuple[str, int]:
        """Wait at the returned address for one connection whose other side proves that it has the key.

        The connected socket becomes the stage program's stdin and stdout. The actor handles none of its
        bytes.
        """
        import ray

        address = ray.util.get_node_ip_address()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, 0), family=family)
        listener.setblocking(False)
        call = asyncio.ensure_future(self._answer(listener, key))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return address, listener.getsockname()[1]

    async def _answer(self, listener: socket.socket, key: bytes) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError, asyncio.TimeoutError), listener:
            async with _limit(_CALL_S):
                while True:
                    connection, _ = await loop.sock_accept(listener)
                    with connection:
                        if await _is_known(connection, key):
                            connection.setblocking(True)
                            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                            self._start(connection.fileno())
                            return

    def _start(self, descriptor: int) -> None:
        reading, environment = self._lifeline()
        try:
            stage = subprocess.Popen(
                [sys.executable, "-I", "-c", self._program, WORD],
                stdin=descriptor,
                stdout=descriptor,
                env=environment,
                pass_fds=[reading],
            )
        finally:
            os.close(reading)
        with self._looking:
            self._stages.append(stage)

    def _lifeline(self) -> tuple[int, dict[str, str]]:
        """Return the reading end of a new lifeline, and the environment of the process that inherits it."""
        reading, writing = os.pipe()
        with self._looking:
            self._lifelines.append(writing)
        self._used = time.monotonic()
        return reading, {**self._environment, "JUPYTER_DIST_LIFELINE": str(reading)}

    async def open(self, session: str) -> None:
        """Start a stage program for `send` and `receive`, in place of the previous one."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        self._session, self._sent, self._received = session, 0, 0
        self._sending, self._receiving = asyncio.Lock(), asyncio.Lock()
        reading, environment = self._lifeline()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-c", self._program, WORD),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=1 << 20,
                env=environment,
                pass_fds=[reading],
            )
        finally:
            os.close(reading)

    async def send(self, session: str, offset: int, data: bytes) -> None:
        """Write to the stage program what follows `offset` bytes.

        A call that overtook others waits for them.
        """
        while True:
            async with self._sending:
                process = self._of(session)
                assert process.stdin is not None
                if offset == self._sent:
                    self._sent += len(data)
                    process.stdin.write(data)
                    await process.stdin.drain()
                    return
            await asyncio.sleep(0.001)

    async def receive(self, session: str, wait_s: float) -> tuple[int, bytes | None]:
        """Return the stage program's output, and how many bytes preceded it. None: the program has ended.

        Blocks for `wait_s` at most.
        """
        async with self._receiving:
            process = self._of(session)
            assert process.stdout is not None
            self._used = time.monotonic()
            offset = self._received
            try:
                data = await asyncio.wait_for(process.stdout.read(PIECE), wait_s)
            except asyncio.TimeoutError:
                return offset, b""
            self._received += len(data)
            return offset, data or None

    def _of(self, session: str) -> asyncio.subprocess.Process:
        if self._process is None or session != self._session:
            raise RuntimeError("another supervisor controls this run now")
        return self._process

    def _is_idle(self) -> bool:
        with self._looking:
            self._stages = [stage for stage in self._stages if stage.poll() is None]
            for lifeline in [each for each in self._lifelines if not _is_held(each)]:
                self._lifelines.remove(lifeline)
                os.close(lifeline)
            if self._stages or self._lifelines:
                self._used = time.monotonic()
            return time.monotonic() - self._used > self._idle_s

    def _keep(self) -> None:
        """Release the resources when nobody needs them, even if no supervisor returns."""
        while True:
            time.sleep(_LOOK_EVERY_S)
            if self._is_idle() and self._others_are_idle():
                _remove(self._group)

    def _others_are_idle(self) -> bool:
        import ray

        for bundle in range(self._bundles):
            try:
                other = ray.get_actor(f"{self._group}-{bundle}", namespace=self._namespace)
                if not ray.get(other.idle.remote(), timeout=5):
                    return False
            except Exception:
                continue  # there is none, or it has ended
        return True


def gpus_given() -> list[str]:
    """Return the GPUs of the bundle in which this function runs, by Ray's ids."""
    import ray

    return [str(gpu) for gpu in ray.get_runtime_context().get_accelerator_ids()["GPU"]]


def proof(key: bytes, side: bytes, *nonces: bytes) -> bytes:
    """Return the proof over these nonces that only an owner of the key can compute."""
    return hmac.new(key, b"|".join((side, *nonces)), hashlib.sha256).digest()


async def _is_known(connection: socket.socket, key: bytes) -> bool:
    """Check that the other side has the key, then prove to it that this side has the key."""
    loop = asyncio.get_running_loop()
    connection.setblocking(False)
    own = secrets.token_bytes(32)
    try:
        async with _limit(5):
            await loop.sock_sendall(connection, own)
            answer = b""
            while len(answer) < 64:
                data = await loop.sock_recv(connection, 64 - len(answer))
                if not data:
                    return False
                answer += data
            theirs, given = answer[:32], answer[32:]
            if not hmac.compare_digest(given, proof(key, b"driver", own, theirs)):
                return False
            await loop.sock_sendall(connection, proof(key, b"node", theirs, own))
    except (OSError, asyncio.TimeoutError):
        return False
    return True


class _limit:
    """`asyncio.timeout`, which Python 3.10 lacks."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._late = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._end, task)

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._late = True
        task.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if self._late and kind is asyncio.CancelledError:
            raise asyncio.TimeoutError


def _is_held(lifeline: int) -> bool:
    poll = select.poll()
    poll.register(lifeline, 0)  # the end of all readers is always reported
    return not poll.poll(0)


def _remove(group: str) -> None:
    import ray

    with contextlib.suppress(Exception):
        ray.util.remove_placement_group(ray.util.get_placement_group(group))


_OF_THE_WORKER = (
    *("OMP_NUM_THREADS", "PYTHONBREAKPOINT", "SPT_NOENV"),
    *("RAY_CLIENT_MODE", "RAY_JOB_ID", "RAY_LD_PRELOAD_ON_WORKERS", "RAY_RAYLET_PID"),
)
"""Variables that Ray sets for its own worker, and that a rank must not inherit.

The backend sets a rank's number of threads, and no debugger of Ray's waits for a rank.
"""


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of agents: this worker's, without Ray's own variables."""
    kept = {name: value for name, value in os.environ.items() if name not in _OF_THE_WORKER}
    return {**kept, **more}

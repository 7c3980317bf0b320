"""The transport to a pod: exec starts a stage program there, whose streams are the frames of a WebSocket.

https://kubernetes.io/docs/reference/kubectl/generated/kubectl_exec/ does the same by hand. Each message
begins with the number of its stream. Kubernetes' own client reads all bytes into memory, and damages some.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import DistError
from ...hosts import openssh
from ...hosts.links.link import LinkError
from ...hosts.links.stream import Pipe
from ...hosts.openssh import SshSettings
from .api_server import Cluster

__all__ = ["NOT_OURS", "ExecTransport", "Site"]

_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _STATUS = 0, 1, 2, 3
_PIECE = 60 << 10
"""Bytes in one message. Some API servers and their proxies accept at most 64 KiB."""
_PING_EVERY_S, _PONG_WITHIN_S, _OPEN_S = 2.0, 4.0, 15.0
# The UID identifies the pod: another pod may have the same name by now.
_FENCE = '[ "$JUPYTER_DIST_POD_UID" = "$0" ] || { echo "$1 gone"; exit 70; }; '
# A PyTorchJob's pods have these variables for the torchrun that usually runs there. A torchrun in a cell must
# not use them.
NOT_OURS = "for name in `env | sed -n 's/^\\(PET_[A-Z_]*\\)=.*/\\1/p'`; do unset \"$name\"; done; "
"""Shell commands that unset these variables."""


@dataclass(frozen=True)
class Site:
    """A pod of ours."""

    name: str
    uid: str
    container: str
    node: str
    slots: int
    before: int = 0
    """How many earlier pods of ours had the same name."""

    @property
    def host(self) -> str:
        """The pod's name among the run's hosts. No other host has it, now or later."""
        return f"{self.name}.{self.before}" if self.before else self.name


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop for all transports of this process. It runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="exec into pods", daemon=True).start()
    return loop


class ExecTransport:
    """Runs the stage program in one pod, anew for each connection."""

    def __init__(self, cluster: Cluster, site: Site, python: str | None, other_python: bool) -> None:
        self._cluster, self._site = cluster, site
        self._settings = SshSettings(python=python, other_python=other_python)
        self._why: LinkError | None = None

    def open(self) -> Pipe:
        # Pipes instead of sockets: the buffer of a pipe is a MiB, which needs fewer turns.
        (out, down), (up, into), (said, saying) = os.pipe(), os.pipe(), os.pipe()
        for descriptor in (up, down):
            os.set_blocking(descriptor, False)
        word = secrets.token_hex(12)
        self._why = None
        asyncio.run_coroutine_threadsafe(self._serve(up, down, saying, word), _loop())
        held = [os.fdopen(out, "rb", 0), os.fdopen(into, "wb", 0), os.fdopen(said, "rb", 0)]
        first = openssh.opening(word, _pythons(self._settings), self._settings.other_python)
        return Pipe(out, into, word, first=first, said=said, held=held)

    def unanswered(self, code: int | None, said: str, printed: str) -> LinkError:
        if self._why is not None:
            return self._why
        shown = " ".join((printed + " " + said).split())[-300:]
        return LinkError("it gave no sign within the time" + (f"; it said: {shown}" if shown else ""))

    def refused(self, words: Sequence[str]) -> LinkError:
        if words[:1] == ["gone"]:
            return LinkError("another pod has come to its name", final=True)
        others = words[1] if len(words) > 1 else ""
        return LinkError(_no_python(self._settings, others), final=True)

    async def _serve(self, up: int, down: int, saying: int, word: str) -> None:
        """Copy bytes until either side ends, and record the reason before the streams close."""
        try:
            why = await self._carry(up, down, word)
        except DistError as error:
            why = LinkError(str(error), busy=True)
        except Exception as error:  # WebSocket libraries raise many kinds; the link tries again
            why = LinkError(_told(error), busy=True)
        if why is not None:
            self._why = why
            with contextlib.suppress(OSError):
                os.write(saying, f"{why}\n".encode()[:4096])
        for descriptor in (saying, down, up):
            os.close(descriptor)

    async def _carry(self, up: int, down: int, word: str) -> LinkError | None:
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidStatus

        command = ["/bin/sh", "-c", _FENCE + NOT_OURS + openssh.finding_python(), self._site.uid, word]
        way = await asyncio.to_thread(self._cluster.way_in, self._site.name, self._site.container, command)
        named: dict[str, Any] = {} if way.server_name is None else {"server_hostname": way.server_name}
        try:
            opened = await connect(
                way.url,
                additional_headers=dict(way.headers),
                subprotocols=list(_PROTOCOLS),  # type: ignore[arg-type]
                ssl=way.tls,
                proxy=way.proxy or True,
                compression=None,
                max_size=None,
                open_timeout=_OPEN_S,
                ping_interval=_PING_EVERY_S,
                ping_timeout=_PONG_WITHIN_S,
                close_timeout=1,
                **named,
            )
        except InvalidStatus as refused:
            return self._refusal(refused.response.status_code, bytes(refused.response.body or b""))
        async with opened:
            sending = asyncio.create_task(_carry_up(up, opened))
            receiving = asyncio.create_task(_carry_down(opened, down))
            done, going = await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
            for task in going:
                task.cancel()
            await asyncio.gather(*going, return_exceptions=True)
            return receiving.result() if receiving in done else sending.result()

    def _refusal(self, status: int, body: bytes) -> LinkError:
        try:
            told = str(json.loads(body)["message"])
        except (ValueError, KeyError, TypeError):
            told = body.decode(errors="replace")
        told = " ".join(told.split())[:300] or f"HTTP {status}"
        if status == 401:
            self._cluster.renew()
            return LinkError(f"the API server does not know us any more ({told})", busy=True)
        if status == 403:
            needed = "the verbs get and create on pods/exec, or --mailbox, which needs none of them"
            return LinkError(f"we may run nothing in its pod ({told}): that needs {needed}", busy=False)
        if status == 404:
            return LinkError(f"its pod is gone ({told})", busy=False)
        return LinkError(f"exec into its pod is refused ({told})", busy=True)


async def _carry_up(up: int, opened: Any) -> None:
    while True:
        try:
            data = os.read(up, _PIECE)
        except BlockingIOError:
            await _until(up, "reader")
            continue
        if not data:
            return
        await opened.send(bytes([_STDIN]) + data)


async def _write(down: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(down, data) :]
        except BlockingIOError:
            await _until(down, "writer")


async def _until(descriptor: int, what: Literal["reader", "writer"]) -> None:
    """Wait until the descriptor is readable, or writable."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    add, remove = getattr(loop, f"add_{what}"), getattr(loop, f"remove_{what}")
    add(descriptor, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        remove(descriptor)


async def _carry_down(opened: Any, down: int) -> LinkError | None:
    """Copy the pod's output. Returns why the connection ended, if a message has the reason."""
    said = b""
    async for message in opened:
        if isinstance(message, str):
            message = message.encode()
        channel, data = message[:1], message[1:]
        if channel == bytes([_STDOUT]):
            await _write(down, data)
        elif channel == bytes([_STDERR]):
            said = (said + data)[-2048:]
        elif channel == bytes([_STATUS]) and data:
            told = " ".join(said.decode(errors="replace").split())[-300:]
            return LinkError(told or f"the program in the pod has ended ({_ended(data)})")
    return LinkError("the connection to its pod was closed", busy=True)


def _ended(status: bytes) -> str:
    try:
        return str(json.loads(status).get("message") or "without a word")
    except (ValueError, AttributeError):
        return status.decode(errors="replace")[:200]


def _told(error: Exception) -> str:
    said = " ".join(str(error).split())[:300]
    if "keepalive" in said:
        return f"neither its pod nor the API server has answered for {_PONG_WITHIN_S:g} s"
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return f"the API server gives no connection to its pod within {_OPEN_S:g} s"
    return f"no connection to its pod: {said or type(error).__name__}"


def _pythons(settings: SshSettings) -> tuple[str, ...]:
    """Return the Pythons to try in a pod. Those on the image's PATH precede all others."""
    found = openssh.pythons(settings)
    return found if settings.python is not None else found[1:]


def _no_python(settings: SshSettings, others: str) -> str:
    own, found = openssh.own_version(), others.strip(", ")
    named = "" if settings.python is None else f" at {settings.python!r}"
    had = f" ({found})" if found else ""
    if settings.other_python:
        return (
            f"its image has no Python from {openssh.OLDEST} on{named}{had}. Use an image with Python "
            f"{openssh.OLDEST} or newer, or name one there with --python"
        )
    return (
        f"its image has no Python {own}{named}{had}: what travels is pickled by the notebook's Python {own}, "
        f"which only the same version reads. Use an image with Python {own}, or name one there with --python"
        f"{openssh.other_python_hint(found)}"
    )

"""The mailbox relay, a host's main process: sets up the agent, and copies frames between mailbox and agent.

The mailbox relay corresponds to the stage program of a stream, and polls the mailbox for a driver. Its
settings are environment variables: the store's URL (`JUPYTER_DIST_MAILBOX`), the run's id (`_MAILBOX_RUN`),
the run's key (`_MAILBOX_KEY`) and the host's number (`_MAILBOX_NODE`). With `_MAILBOX_ECHO` it also prints
the ranks' output. The relay has one end of the agent's lifeline: when the relay ends, the agent ends its
ranks.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
import zipfile
from collections.abc import Mapping
from typing import Any

from ..worker.boot import TO_SAVE_S
from ..worker.jitter import jitter
from ..worker.launchers.platform_environment import standing
from ..worker.line_file import write_all
from .console_output import ConsoleOutput
from .frames import FrameError, Frames, encode
from .mailbox_objects import (
    HOLE_S,
    MOST_BYTES,
    SessionOrder,
    digest_of,
    object_name,
    parse,
    session_name,
    sign,
    verify,
)
from .stage_program import Refused, not_set_up, prepare
from .stores.folder_store import open_store
from .stores.store import DeniedError, Store, StoreError

__all__ = ["MailboxRelay", "main"]

_LOOK_S, _BRISK_LOOK_S = 1.0, 0.15
_LINGER_S, _BRISK_LINGER_S = 0.3, 0.03
"""Seconds from the first waiting byte to the object that contains it."""
_APART_S = 1.0
"""Seconds between two objects while there is little output."""
_BRISK_S = 5.0
"""How long the relay polls and writes faster after a request, because others usually follow."""
_MOST_LEFT_BYTES = 256 << 20
"""Maximum bytes in the store that no driver has read. Beyond, the output stays in the ranks' files."""
_COUNT_EVERY_BYTES = 32 << 20
_FIRST_WAIT_S = 600.0
"""How long the relay waits for a driver's first mailbox object."""
_DENIED_S = 10.0
_LAST_WORDS_S = 20.0
"""How long the agent may need to end its ranks after the end of the run's reservation on this host.

The time in which ranks save, TO_SAVE_S or --stop-grace, is added."""


class MailboxRelay:
    """Relay between one mailbox and the agent of one host."""

    def __init__(
        self, store: Store, run: str, key: bytes, node: int, echo: ConsoleOutput | None = None
    ) -> None:
        self._store, self._run, self._key, self._node = store, run, key, node
        self._echo = echo
        self._session = ""
        self._inbox = SessionOrder()
        self._agent: socket.socket | None = None
        self._from_driver, self._from_agent = Frames(), Frames()
        self._to_agent = bytearray()
        self._wish: dict[str, Any] | None = None
        self._waiting = bytearray()
        self._waiting_since = self._posted_at = 0.0
        self._number = 0
        self._object: tuple[str, bytes] | None = None
        """The name and the content of an object, until the store has it."""
        self._uncounted = 0
        self._full = False
        self._brisk_until = time.monotonic() + _BRISK_S
        self._look_at = self._retry_at = 0.0
        self._backoff_s = 0.2
        self._began = self._heard = time.monotonic()
        self._grace_s, self._last_words_s = _FIRST_WAIT_S, _LAST_WORDS_S
        self._over = False
        """Whether the driver has released this host."""
        self._ended_at: float | None = None
        """When the run's reservation on this host ended (monotonic clock)."""
        read, self._lifeline = os.pipe()
        os.environ["JUPYTER_DIST_LIFELINE"] = str(read)

    def give_up(self, *_: object) -> None:
        """Close the lifeline: the agent ends its ranks, and then `serve` returns."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
            self._ended_at = time.monotonic()

    def serve(self) -> int:
        """Serve until the work is done. Returns 0 if the driver has released the host, else 1. Blocks.

        Raises PermissionError if the store has denied access to this host from the start.
        """
        while True:
            try:
                self._turn()
            except StoreError as error:
                if isinstance(error, DeniedError) and self._is_useless:
                    # SageMaker's toolkit searches a program's last output for this exception's name.
                    raise PermissionError(str(error)) from None
                _log(f"{error}; trying again")
                # The jitter spreads the hosts' retries: their number may overload the store.
                self._retry_at = time.monotonic() + self._backoff_s * jitter(1, 2)
                self._backoff_s = min(self._backoff_s * 2, 4.0)
            now = time.monotonic()
            done = self._agent is None and not self._waiting and self._object is None
            if self._over and done:
                return 0
            if self._ended_at is not None and (done or now - self._ended_at > self._last_words_s):
                return 1
            if self._agent is None and now - self._heard > self._grace_s:
                _log(f"no driver for {self._grace_s:g} s")
                return 1

    @property
    def _is_useless(self) -> bool:
        """Return whether no object was ever written, for longer than a new policy needs to take effect."""
        return not self._posted_at and time.monotonic() - self._began > _DENIED_S

    def _turn(self) -> None:
        now = time.monotonic()
        if now >= self._retry_at:
            self._post(now)
            if now >= self._look_at and not self._over:
                self._look()
                self._look_at = time.monotonic() + (_BRISK_LOOK_S if self._brisk else _LOOK_S)
            self._backoff_s = 0.2
        self._talk(0.02 if self._brisk else 0.1)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass  # as a container's first process, the relay inherits orphans

    @property
    def _brisk(self) -> bool:
        return time.monotonic() < self._brisk_until

    def _look(self) -> None:
        """Read the driver's new objects, and process their frames."""
        listed = [
            found for name in self._store.names(f"{self._run}/down/{self._node}-") if (found := parse(name))
        ]
        newest = max((session for _, _, session, _ in listed), default="")
        if newest > self._session:
            if self._ended_at is not None:
                return  # the session is for a relay that replaces this one
            if not self._session and self._store.get(session_name(self._run, self._node, newest)) is not None:
                return  # an earlier relay has claimed it; the driver will open another session
            self._begin(newest)
        numbers = [number for _, _, session, number in listed if session == self._session]
        for number in self._inbox.due(numbers):
            if len(self._to_agent) > MOST_BYTES:
                break  # the agent has to read the files of a session's cell first
            name = object_name(self._run, "down", self._node, self._session, number)
            data = self._store.get(name)
            if data is None:
                return  # a store may list an object before it can be read: retry in the next turn
            content = verify(self._key, name, data)
            if content is None:
                _log(f"{name} is not sealed with the run's key; it is passed over")
                self._store.remove([name])
                return
            self._inbox.took(number)
            self._heard = time.monotonic()
            try:
                frames = self._from_driver.feed(content)
            except FrameError as error:
                _log(f"{name} holds {error}")
                continue
            for header, body in frames:
                self._obey(header, body)
        if self._agent is not None and self._inbox.hole_s > HOLE_S:
            # The driver would notice only the silence of the agent, which gets no later request.
            why = f"a request has not arrived there for {HOLE_S:g} s"
            _log(why)
            self._hang_up()
            self._say({"is": "closed", "why": why})
        taken = [
            object_name(self._run, "down", self._node, session, number)
            for _, _, session, number in listed
            if session < self._session or number < self._inbox.next
        ]
        if len(taken) > 20:
            self._store.remove(taken)

    def _begin(self, session: str) -> None:
        """Replace the connection by a new session."""
        self._hang_up()
        self._session, self._inbox, self._number = session, SessionOrder(), 0
        self._from_driver, self._to_agent, self._wish = Frames(), bytearray(), None
        self._waiting.clear()
        self._object = None
        self._full = False

    def _obey(self, header: dict[str, Any], body: bytes) -> None:
        if header.get("do") != "ping":
            self._brisk_until = time.monotonic() + _BRISK_S
        if self._wish is None:
            self._wish = header
            self._set_up({**header, "umask": self._umask()})
        elif self._agent is not None:
            self._to_agent += encode(header, len(body)) + body

    @staticmethod
    def _umask() -> int:
        umask = os.umask(0o077)
        os.umask(umask)
        return umask

    def _set_up(self, wish: dict[str, Any]) -> None:
        self._grace_s = float(wish["grace_s"])
        self._last_words_s = _LAST_WORDS_S + float(wish.get("stop_grace_s") or TO_SAVE_S)
        umask = os.umask(0o077)
        try:
            self._agent = prepare(wish, lambda stage, missing: self._fetch(wish, stage, missing), self._say)
        except Refused as error:
            self._say({"is": "refused", "why": str(error), "final": error.final})
        except StoreError as error:
            self._say({"is": "refused", "why": f"it cannot fetch the run's files: {error}"})
        except OSError as error:
            self._say({"is": "refused", "why": not_set_up(error)})
        else:
            self._agent.setblocking(False)
            self._from_agent = Frames()
        finally:
            os.umask(umask)

    def _fetch(self, wish: Mapping[str, Any], stage: str, missing: list[str]) -> None:
        """Download the run's files, and verify the hash of each file and of the code archive."""
        hashes = {name: digest for name, _, digest in wish["files"]}
        code = [name for name in missing if hashes[name] is None]
        if code:
            archived = os.path.join(stage, "code.zip")
            self._download("code/", wish["code"], archived)
            with zipfile.ZipFile(archived) as archive:
                for name in code:
                    _write(os.path.join(stage, name), archive.read(name.removeprefix("code/")))
            os.unlink(archived)
        for name in missing:
            digest = hashes[name]
            if digest is not None:
                self._download(f"{self._run}/files/", digest, os.path.join(stage, name))

    def _download(self, folder: str, digest: str, path: str) -> None:
        """Write an object to a file. The object may be larger than this host's memory."""
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        for pause_s in (0.2, 0.5, 1, 2, 4, 8, 8, 0):
            try:
                with open(path + ".part", "wb+") as file:
                    is_there = self._store.fetch(folder + digest, file)
                    if is_there and digest_of(file) == digest:
                        os.replace(path + ".part", path)
                        return
                why = "is not what the driver has sent" if is_there else "is not there"
            except StoreError as error:
                why = str(error)
            time.sleep(pause_s)
        raise StoreError(f"{folder}{digest}: {why}")

    def _say(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        if self._over:
            return  # after `released` the driver clears the store
        if not self._waiting:
            self._waiting_since = time.monotonic()
        self._waiting += encode(header, len(body)) + body
        if header.get("is") == "released":
            self._over = True

    def _talk(self, pause_s: float) -> None:
        """Exchange data with the agent. Blocks for at most `pause_s`."""
        if self._agent is None:
            time.sleep(pause_s)
            return
        room = len(self._waiting) < MOST_BYTES and not self._full
        can_read, can_write, _ = select.select(
            [self._agent] if room else [], [self._agent] if self._to_agent else [], [], pause_s
        )
        try:
            if can_write:
                del self._to_agent[: self._agent.send(self._to_agent)]
            while can_read and len(self._waiting) < MOST_BYTES:
                data = self._agent.recv(1 << 18)
                if not data:
                    raise ConnectionResetError
                for header, body in self._from_agent.feed(data):
                    self._say(header, body)
                    if self._echo is not None:
                        self._echo.take(header, body)
        except BlockingIOError:
            pass
        except (OSError, FrameError):
            self._hang_up()
            self._say({"is": "closed"})

    def _hang_up(self) -> None:
        if self._agent is not None:
            self._agent.close()
            self._agent = None

    def _post(self, now: float) -> None:
        """Write an object if output is waiting and an object is due."""
        if self._full:
            self._full = self._left_bytes() > _MOST_LEFT_BYTES
            return
        if self._object is None:
            if not self._is_time(now):
                return
            name = object_name(self._run, "up", self._node, self._session, self._number)
            self._object = name, sign(self._key, name, bytes(self._waiting))
            self._waiting.clear()
            self._number += 1
        name, data = self._object
        if parse(name) == ("up", self._node, self._session, 0):
            self._store.put(session_name(self._run, self._node, self._session), b"")
        self._store.put(name, data)  # a retry writes the same content to the same name
        self._object = None
        self._posted_at = time.monotonic()
        self._uncounted += len(data)
        if self._uncounted > _COUNT_EVERY_BYTES:
            self._uncounted = 0
            self._full = self._left_bytes() > _MOST_LEFT_BYTES

    def _is_time(self, now: float) -> bool:
        if not self._waiting:
            return False
        if len(self._waiting) >= MOST_BYTES // 4 or self._over or self._ended_at is not None:
            return True
        if self._brisk:
            return now - self._waiting_since >= _BRISK_LINGER_S
        return now - self._waiting_since >= _LINGER_S and now - self._posted_at >= _APART_S

    def _left_bytes(self) -> int:
        """Return an upper limit for the bytes of this host's objects in the store."""
        return len(self._store.names(f"{self._run}/up/{self._node}-{self._session}-")) * MOST_BYTES


def _write(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(path + ".part", "wb") as file:
        file.write(data)
    os.replace(path + ".part", path)


def _log(text: str) -> None:
    with contextlib.suppress(OSError):
        print(time.strftime("%H:%M:%S"), text, flush=True)


def _print(text: str) -> None:
    """Print in pieces that a pipe writes atomically, because other processes write to the pipe too."""
    piece = b""
    with contextlib.suppress(OSError):
        for line in text.encode(errors="replace").splitlines(keepends=True):
            if len(piece) + len(line) > select.PIPE_BUF:
                write_all(1, piece)
                piece = b""
            piece += line
        write_all(1, piece)


def main() -> None:
    """Serve the mailbox that the environment names."""
    url = os.environ["JUPYTER_DIST_MAILBOX"]
    key = bytes.fromhex(os.environ.pop("JUPYTER_DIST_MAILBOX_KEY"))  # no rank needs it
    # If a platform starts many relays with the same environment, its own variables have the host's number.
    told = standing(os.environ)
    node = int(os.environ.get("JUPYTER_DIST_MAILBOX_NODE") or told.node or 0)
    for name in told.drop:
        del os.environ[name]
    echo = ConsoleOutput(_print) if os.environ.pop("JUPYTER_DIST_MAILBOX_ECHO", None) else None
    store = open_store(url, dict(os.environ))
    os.environ.pop("JUPYTER_DIST_MAILBOX_SAS", None)
    courier = MailboxRelay(store, os.environ["JUPYTER_DIST_MAILBOX_RUN"], key, node, echo)
    signal.signal(signal.SIGTERM, courier.give_up)
    _log(f"courier {os.getpid()} of node {node}")
    code = courier.serve()
    if echo is not None:
        echo.finish()
    sys.exit(code)


if __name__ == "__main__":
    main()

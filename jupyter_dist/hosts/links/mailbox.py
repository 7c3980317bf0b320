"""The mailbox link: frames as objects in a store that the driver and the hosts can access.

agent/mailbox_objects.py defines the objects: their names, signatures and order. The other side is
agent/mailbox_relay.py. One thread per run makes the calls that may block. The driver lists the objects of
all hosts in one call, reads the new ones, and removes them.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...agent.frames import Frame, FrameError, Frames, encode
from ...agent.mailbox_objects import HOLE_S, SessionOrder, digest_of, object_name, parse, sign, verify
from ...agent.stores.store import StoreError
from ...folder import RunFolder, write_bytes
from ...worker import layout
from ...worker.jitter import jitter
from ..bootstrap import courier_program
from ..staged_files import Shipped, bundle, shipped
from ..stores.object_store import BulkStore, driver_store
from .link import LinkError
from .wake_pipe import WakePipe

__all__ = ["Mailbox", "MailboxLink", "run_key"]

_LOOK_S, _BRISK_LOOK_S = 0.5, 0.1
_BRISK_S = 5.0
_SILENT_S = 180.0
"""Longest silence of an agent, which answers a ping every 15 s. A store may delay each way by a minute."""
_IDLE_S = 120.0
"""How long an agent waits for a driver if it has never started a process."""
_TROUBLE_SHOWN_S = 3.0
_SWEEP_EVERY_S, _JOIN_S = 5.0, 20.0
_CLEAR_S = 20.0
"""How long the driver retries to remove a run's objects, for each of its folders."""


def run_key(folder: RunFolder) -> bytes:
    """Return a run's key, which is in the run's folder here, never in a store. The first call creates it."""
    path = folder.path / layout.KEY
    if not path.exists():
        write_bytes(path, secrets.token_hex(32).encode())
    return bytes.fromhex(path.read_text())


class Mailbox:
    """A run's folder in a store, and the links to its hosts."""

    def __init__(
        self,
        url: str,
        folder: RunFolder,
        options: Mapping[str, Any] | None = None,
        *,
        opening_s: float = 600.0,
        store: Callable[[], BulkStore] | None = None,
        run: str | None = None,
    ) -> None:
        """`url`: `s3://bucket/prefix`, or any fsspec URL; `options`: fsspec's storage options.
        `opening_s`: time for a host until it first reads its mailbox. `store`: opens the same folder if only
        hosts can use the URL. `run`: the folder's name in the store, if it is not the run's id.
        Does not touch the store yet."""
        self.url, self._folder, self._options = url.rstrip("/"), folder, dict(options or {})
        self.run, self.key, self.opening_s = run or folder.id, run_key(folder), opening_s
        self.wake = threading.Event()
        self._links: list[MailboxLink] = []  # the opened ones: a link replaces the list
        self.wake_pipe = WakePipe()  # open while the thread runs
        self._files = shipped(folder)
        self._code = bundle(self._files)
        self._thread: threading.Thread | None = None
        self._closing = False
        self._trouble: tuple[float, str] | None = None
        self._make_store = store or (lambda: driver_store(self.url, self._options))
        self._store: BulkStore | None = None
        self._uploaded: dict[str, str] | None = None
        self._taken: set[str] = set()
        self._swept = time.monotonic()

    @property
    def code(self) -> str:
        """Return the hash of the code that hosts run."""
        return hashlib.sha256(self._code).hexdigest()

    @property
    def trouble(self) -> str | None:
        """Return the store's error if it has lasted some seconds; else None."""
        if self._trouble is None or time.monotonic() - self._trouble[0] < _TROUBLE_SHOWN_S:
            return None
        return f"{self._trouble[1]}; trying again"

    def reach(self, host: str, wish: Mapping[str, Any], files: Sequence[Shipped]) -> MailboxLink:
        """Create the link to a host. This method is the fleet's `Reach`."""
        return MailboxLink(self, host, wish)

    def host_program(self, node: int | None, python: str = "python3") -> tuple[list[str], dict[str, str]]:
        """Return the arguments and the environment of a host's program, which needs only that Python.

        The environment contains the run's key: never write it to an argument or a file. The host also needs
        the store's credentials. `node` None: the platform sets the host's number."""
        env = {
            "JUPYTER_DIST_MAILBOX": self.url,
            "JUPYTER_DIST_MAILBOX_RUN": self.run,
            "JUPYTER_DIST_MAILBOX_KEY": self.key.hex(),
            "JUPYTER_DIST_MAILBOX_NODE": "" if node is None else str(node),
            "JUPYTER_DIST_MAILBOX_CODE": self.code,
        }
        return [python, "-I", "-c", courier_program()], env

    def upload(self) -> dict[str, str]:
        """Upload the files that hosts need and the store lacks. All runs share `code/HASH`.
        Returns path → hash of the run's own files. Blocks. Repeatable. Raises StoreError."""
        if self._uploaded is None:
            store = self._open()
            if f"code/{self.code}" not in store.names(f"code/{self.code}"):
                store.put(f"code/{self.code}", self._code)
            own = {file.path: file.content for file in self._files if isinstance(file.content, Path)}
            hashes = {}
            there = set(store.names(f"{self.run}/files/"))
            for path, content in own.items():
                with content.open("rb") as file:  # it may be larger than this machine's memory
                    hashes[path] = digest = digest_of(file)
                    if f"{self.run}/files/{digest}" not in there:
                        file.seek(0)
                        store.put_file(f"{self.run}/files/{digest}", file)
            self._uploaded = hashes
        return self._uploaded

    def wish(self, mode: str) -> dict[str, Any]:
        """Return the message to a stage program about the uploaded files."""
        assert self._uploaded is not None
        files = [[file.path, file.size, self._uploaded.get(file.path)] for file in self._files]
        return {"mode": mode, "files": files if mode == "stage" else [], "code": self.code, "idle_s": _IDLE_S}

    def rest(self, node: int) -> list[Frame]:
        """Return the frames of all unread objects of a host, even if some are missing. Raises StoreError."""
        store = self._open()
        names = [name for name in store.names(f"{self.run}/up/{node}-") if parse(name)]
        frames: list[Frame] = []
        for name, data in sorted(store.get_all(names).items()):
            content = verify(self.key, name, data)
            with contextlib.suppress(FrameError):
                frames += Frames().feed(content or b"")
        return frames

    def start(self) -> None:
        """Start the thread if it does not run. Repeatable."""
        if self._thread is None or not self._thread.is_alive():
            self._closing = False
            self.wake_pipe.open()
            self._thread = threading.Thread(target=self._work, name="jupyter-dist mailbox", daemon=True)
            self._thread.start()

    def leave(self) -> None:
        """End the thread, but leave the objects in the store. Repeatable. Never raises."""
        self._closing = True
        self.wake.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)
            self._thread = None
        self.wake_pipe.close()

    def close(self) -> None:
        """End the thread, and remove the run's objects from the store. Repeatable. Never raises."""
        self.leave()
        try:
            for part in ("up", "down", "files"):
                self._clear(f"{self.run}/{part}/")
        except StoreError as error:
            print(f"mailbox: what the run has left in {self.url} stays there: {error}", flush=True)

    def _clear(self, part: str) -> None:
        """Remove all objects below a prefix, with retries while the store is busy. Raises StoreError."""
        until, pause_s = time.monotonic() + _CLEAR_S, 0.2
        while True:
            try:
                store = self._open()
                store.remove(store.names(part))
                return
            except StoreError:
                if time.monotonic() + pause_s > until:
                    raise
            time.sleep(pause_s * jitter(0.5, 1))
            pause_s = min(pause_s * 2, 4.0)

    def _open(self) -> BulkStore:
        if self._store is None:
            self._store = self._make_store()
        return self._store

    def _work(self) -> None:
        backoff_s = 0.2
        while not self._closing:
            try:
                self._turn()
            except Exception as error:  # any error, also of a client library: the thread must survive
                self._trouble = self._trouble or (time.monotonic(), "")
                self._trouble = self._trouble[0], str(error) or type(error).__name__
                time.sleep(backoff_s * jitter(1, 2))
                backoff_s = min(backoff_s * 2, 4.0)
                continue
            self._trouble, backoff_s = None, 0.2
            self.wake.wait(_BRISK_LOOK_S if any(link.brisk for link in self._links) else _LOOK_S)
            self.wake.clear()

    def _turn(self) -> None:
        store = self._open()
        self.upload()
        links = {link.node: link for link in self._links}
        for link in links.values():
            link.post(store)
        numbers: dict[tuple[int, str], list[int]] = {}
        for name in store.names(f"{self.run}/up/") if links else ():
            if (found := parse(name)) is not None:
                numbers.setdefault((found[1], found[2]), []).append(found[3])
        for link in links.values():
            # An object is listed again in each turn until it is removed. The set ignores repetitions.
            self._taken.update(link.collect(store, numbers.get((link.node, link.session), [])))
        if len(self._taken) > 100 or time.monotonic() - self._swept > _SWEEP_EVERY_S:
            self._swept = time.monotonic()
            taken, self._taken = self._taken, set()
            store.remove(sorted(taken))


class MailboxLink:
    """A link with one session at a time to one host's mailbox relay. The mailbox's thread fills it."""

    ping_every_s = 15.0
    answers_within_s = 60.0
    exact_clock = False
    pid = None

    def __init__(self, mailbox: Mailbox, host: str, wish: Mapping[str, Any]) -> None:
        self.host, self.node = host, int(wish["node"])
        self._mailbox, self._wish = mailbox, dict(wish)
        self.stage: str | None = None
        self.up = self.opened = False
        self.sent = self.to_send = 0
        self.session = ""
        self._lock = threading.Lock()
        self._sign = self._asked = time.monotonic()
        self._begin("")

    def _begin(self, mode: str) -> None:
        self._mode = mode
        self._out: deque[bytes] = deque()
        self._posting: tuple[str, bytes] | None = None
        self._number = self.waiting = 0
        self._inbox = SessionOrder()
        self._cutter = Frames()
        self._came: list[Frame] = []
        self._why: LinkError | None = None
        self._sign = self._asked = time.monotonic()

    @property
    def silent_s(self) -> float:
        return time.monotonic() - self._sign

    @property
    def brisk(self) -> bool:
        """Return whether the driver expects an answer soon."""
        return self.opened and time.monotonic() - self._asked < _BRISK_S

    def open(self, mode: str) -> None:
        with self._lock:
            self._begin(mode)
            self.session, self.opened, self.up = "", True, False
        self._mailbox._links = [*(each for each in self._mailbox._links if each is not self), self]
        self._mailbox.start()
        self._mailbox.wake.set()

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        if not self.up:
            return
        with self._lock:
            self._out.append(encode(header, len(body)) + body)
            self.waiting += len(self._out[-1])
        if header.get("do") != "ping":
            self._asked = time.monotonic()
            self._mailbox.wake.set()

    def close(self) -> None:
        self.opened = self.up = False
        self._mailbox._links = [each for each in self._mailbox._links if each is not self]

    def rest(self) -> list[Frame]:
        try:
            return self._mailbox.rest(self.node)
        except StoreError as error:
            print(f"mailbox: what host {self.host} wrote last cannot be read: {error}", flush=True)
            return []

    def register(self, poll: select.poll) -> None:
        if self._came:
            self._mailbox.wake_pipe.wake()  # the `pump` of another link may have cleared the pipe meanwhile
        self._mailbox.wake_pipe.register(poll)

    def pump(self) -> list[Frame]:
        if not self.opened:
            return []
        self._mailbox.wake_pipe.clear()
        with self._lock:
            came, self._came, why = self._came, [], self._why
        frames = []
        for header, body in came:
            if header.get("is") == "refused":
                why = LinkError(str(header.get("why")), final=bool(header.get("final")))
            elif header.get("is") == "closed":
                why = LinkError(str(header.get("why") or "its agent has ended the connection"))
            else:
                if header.get("is") == "connected":
                    self.stage, self.up = str(header["stage"]), True
                frames.append((header, body))
        limit_s = _SILENT_S if self.up else self._mailbox.opening_s
        if why is None and self.silent_s > limit_s:
            why = LinkError(self._mailbox.trouble or "no answer")
        if why is not None and not frames:
            self.close()
            raise why
        if why is not None:
            with self._lock:
                self._why = why
        return frames

    def post(self, store: BulkStore) -> None:
        """Write all pending messages as one object. Runs in the mailbox's thread. Raises StoreError."""
        if not self.session:
            known = store.names(f"{self._mailbox.run}/down/{self.node}-")
            newest = max((found[2] for name in known if (found := parse(name))), default="0")
            with self._lock:
                # The new name sorts after all earlier sessions, even if another driver's clock is ahead.
                begun = max(int(time.time() * 1000), int(newest[:12], 16) + 1)
                self.session = f"{begun:012x}{secrets.token_hex(3)}"
                self._out.appendleft(encode({**self._wish, **self._mailbox.wish(self._mode)}))
                self._sign = self._asked = time.monotonic()
        with self._lock:
            if self._posting is None and self._out:
                name = object_name(self._mailbox.run, "down", self.node, self.session, self._number)
                self._posting = name, sign(self._mailbox.key, name, b"".join(self._out))
                self._number += 1
                self._out.clear()
            posting = self._posting
        if posting is not None:
            store.put(*posting)  # a retry writes the same content to the same name
            with self._lock:
                if self._posting == posting:
                    self._posting, self.waiting = None, sum(map(len, self._out))
            self._mailbox.wake_pipe.wake()  # files of a session's cell wait for room

    def collect(self, store: BulkStore, numbers: Sequence[int]) -> list[str]:
        """Read the next objects in order. Returns the names of all objects that can be removed.
        Runs in the mailbox's thread. Raises StoreError."""
        session, inbox = self.session, self._inbox
        run, key = self._mailbox.run, self._mailbox.key
        done = [n for n in numbers if n < inbox.next]
        due = inbox.due(numbers)[:32]
        there = store.get_all([object_name(run, "up", self.node, session, number) for number in due])
        for number in due:
            name = object_name(run, "up", self.node, session, number)
            if name not in there:
                break  # a store may list an object before it can be read: retry in the next turn
            content = verify(key, name, there[name])
            if content is None:
                print(f"mailbox: {name} is not sealed with the run's key; it is not read", flush=True)
                store.remove([name])
                break
            if not self._keep(session, number, content):
                break
            done.append(number)
        if inbox.hole_s > HOLE_S:
            missing = object_name(run, "up", self.node, session, inbox.next)
            print(f"mailbox: {missing} has not come for {HOLE_S:g} s; asking for what it held", flush=True)
            with self._lock:
                if session == self.session:
                    self._why = LinkError(f"a part of what it wrote has not come for {HOLE_S:g} s")
        return [object_name(run, "up", self.node, session, number) for number in done]

    def _keep(self, session: str, number: int, content: bytes) -> bool:
        with self._lock:
            if session != self.session:
                return False
            try:
                frames = self._cutter.feed(content)
            except FrameError as error:
                self._why = LinkError(f"host {self.host} sent {error}")
                return False
            self._inbox.took(number)
            self._came += frames
            self._sign = time.monotonic()
        self._mailbox.wake_pipe.wake()
        return True

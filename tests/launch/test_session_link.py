"""Questions of a kernel to a session's supervisor, over a connection that stays open."""

from __future__ import annotations

import fcntl
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_dist.conformance.deadlines import PATIENCE_S
from jupyter_dist.errors import LaunchError
from jupyter_dist.launch import session_link
from jupyter_dist.launch.session_connections import OPEN
from jupyter_dist.record.sessions import StoredSession
from jupyter_dist.worker.session import channel

_HIGH = 1500


@pytest.fixture
def many_files() -> Iterator[None]:
    """Descriptors above those with which `select.select` works."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= _HIGH:
        pytest.skip(f"a process may open only {hard} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, _HIGH + 1), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _session(path: Path) -> StoredSession:
    about = {"created": 1.0, "takes_jobs": True, "supervisor": {"host": socket.gethostname()}}
    return StoredSession(path, about)


def test_a_kernel_with_many_open_files_asks_again(
    many_files: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, connect_low = channel.listen(tmp_path), channel.connect
    connections: list[channel.Channel] = []

    def serve() -> None:
        link = channel.Channel(listener.accept()[0])
        connections.append(link)
        while link.receive() is not None:
            link.send({"ok": len(connections)})
        link.close()

    def connect(folder: Path) -> channel.Channel:
        low = connect_low(folder)
        fd = fcntl.fcntl(low.sock.fileno(), fcntl.F_DUPFD_CLOEXEC, _HIGH)
        low.close()
        return channel.Channel(socket.socket(fileno=fd))

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    monkeypatch.setattr(channel, "connect", connect)
    session = _session(tmp_path)
    try:
        assert [session_link.ask(session, {"ask": "about"}) for _ in range(2)] == [{"ok": 1}] * 2
    finally:
        OPEN.drop(session)
        server.join(10)
        listener.close()


def test_a_connection_is_closed_if_a_message_in_advance_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of the message may have been sent, and the next one would follow it."""
    listener = channel.listen(tmp_path)
    session = _session(tmp_path)
    link = OPEN.take(session)
    OPEN.keep(session, link)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(channel.Channel, "send", interrupted)
    with listener:
        with pytest.raises(KeyboardInterrupt):
            session_link.wake(session, ("1", "<In[1]>", 0))
        assert link.fileno() == -1
        assert not OPEN.has(session)


def test_a_connection_of_a_session_that_ends_by_itself_is_closed(tmp_path: Path) -> None:
    paths = [tmp_path / "ended", tmp_path / "other"]
    for path in paths:
        path.mkdir()
    ended, other = map(_session, paths)
    with channel.listen(ended.path) as listener:
        link = OPEN.take(ended)
        OPEN.keep(ended, link)
        listener.accept()[0].close()
    with channel.listen(other.path):
        OPEN.keep(other, OPEN.take(other))
        assert link.fileno() == -1
        OPEN.drop(other)


@pytest.mark.parametrize("killed", [False, True])
def test_a_session_that_ends_while_a_cell_is_captured_is_started_anew(tmp_path: Path, killed: bool) -> None:
    """`%dist close --kill` would find no such session. A supervisor that was killed leaves its socket."""
    if killed:
        channel.listen(tmp_path).close()
    with pytest.raises(LaunchError, match="has just ended"):
        session_link.ask(_session(tmp_path), {"ask": "about"})


def test_neither_the_end_of_a_process_nor_its_fork_leaves_a_connection(tmp_path: Path) -> None:
    """A session notices the end of its kernel, also while a process lives that the kernel has forked."""
    code = f"""
import atexit, os, sys
from pathlib import Path
atexit.register(lambda: print(link.fileno()))  # runs after those that are registered later
from jupyter_dist.launch.session_connections import OPEN
from tests.launch.test_session_link import _session
session = _session(Path({str(tmp_path)!r}))
link = OPEN.take(session)
OPEN.keep(session, link)
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
"""
    with channel.listen(tmp_path) as listener:
        listener.settimeout(PATIENCE_S)
        kernel = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            accepted, _ = listener.accept()
            with accepted:
                accepted.settimeout(PATIENCE_S)
                assert accepted.recv(1) == b""
        finally:
            told, _ = kernel.communicate()
        assert told == b"-1\n"

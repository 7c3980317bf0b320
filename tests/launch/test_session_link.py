"""Questions of a kernel to a session's supervisor, over a connection that stays open."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_dist.launch import session_link
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
    session = StoredSession(tmp_path, {"created": 1.0, "supervisor": {"host": socket.gethostname()}})
    try:
        assert [session_link.ask(session, {"ask": "about"}) for _ in range(2)] == [{"ok": 1}] * 2
    finally:
        _, link = session_link._links.pop((str(tmp_path), os.getpid()), (0.0, None))
        if link is not None:
            link.close()
        server.join(10)
        listener.close()


def test_a_connection_is_closed_if_a_message_in_advance_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of the message may have been sent, and the next one would follow it."""
    key, listener = (str(tmp_path), os.getpid()), channel.listen(tmp_path)
    link = channel.connect(tmp_path)
    session_link._links[key] = 1.0, link

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(channel.Channel, "send", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            session_link.wake(
                StoredSession(tmp_path, {"created": 1.0, "takes_jobs": True}), ("1", "<In[1]>", 0)
            )
        assert key not in session_link._links
        assert link.fileno() == -1
    finally:
        session_link._links.pop(key, None)
        link.close()
        listener.close()

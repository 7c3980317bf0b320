"""What a session's supervisor does before its ranks start."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from jupyter_dist.errors import DistError
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job
from jupyter_dist.supervise.session import server
from jupyter_dist.worker.file_locks import Lock, try_lock
from jupyter_dist.worker.session import place


class Begun(Exception):
    """The session has begun."""


def serve(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(*_: object) -> None:
        raise Begun

    monkeypatch.setattr(server, "Server", begin)
    job = Job("some", "local", 1, 0.0, "/tmp", sys.executable, "1", session={"name": "main"})
    lock = Lock(None, None)
    server.serve(RunFolder(own_folders / "some"), job, lock, warm=True, prepared=None)


def test_it_begins_as_soon_as_the_earlier_one_has_freed_its_name(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place.sessions_root(own_folders) / "main"
    path.mkdir(parents=True)
    earlier = try_lock(path / place.LIFE_LOCK)
    assert earlier is not None
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: earlier.release())
    monkeypatch.setattr(server, "time", clock)
    with pytest.raises(Begun):
        serve(own_folders, monkeypatch)


def test_it_does_not_wait_for_one_that_accepts_cells(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place.sessions_root(own_folders) / "main"
    path.mkdir(parents=True)
    (path / place.ABOUT).touch()
    other = try_lock(path / place.LIFE_LOCK)
    assert other is not None
    with pytest.raises(DistError, match="the session 'main' runs already"):
        serve(own_folders, monkeypatch)
    other.release()

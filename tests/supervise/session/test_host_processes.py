"""The end of a session on hosts whose backend has not answered yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job
from jupyter_dist.supervise.backend_calls import Call, Failure
from jupyter_dist.supervise.session import host_processes
from jupyter_dist.supervise.session.host_processes import HostProcesses


class Slow:
    """A backend process that answers at the third look."""

    pid = None

    def __init__(self, *_: object, **__: object) -> None:
        self.calls: list[Call] = []
        self._looks = 0

    def begin(self, name: str, /, **_: Any) -> Call:
        self.calls.append(Call(name))
        return self.calls[-1]

    def look(self) -> None:
        self._looks += 1
        if self._looks > 2:
            for call in self.calls:
                call.succeed({"attempt": 0})

    def close(self) -> None:
        pass


def test_what_is_still_being_reserved_is_released_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_processes, "BackendProcessClient", Slow)
    processes = HostProcesses(Job("id", "ssh", 1, 0.0, "/tmp", "python", "1"), RunFolder(tmp_path))
    processes.start()
    processes.poll()
    processes.release(lambda: None)
    assert [call.name for call in processes._caller.calls] == ["submit", "release"]  # type: ignore[attr-defined]


class Doubtful(Slow):
    """A backend process whose submission fails for now, though the cluster may have started hosts."""

    found: Failure | None = None

    def look(self) -> None:
        for call in [call for call in self.calls if not call.done]:
            if call.name == "submit":
                call.fail(Failure("ConnectionError", "reset", may_pass=True))
            elif call.name == "find" and self.found is not None:
                call.fail(self.found)
            else:
                call.succeed({"attempt": 0} if call.name == "find" else "the job has cost 1 USD")


def test_what_a_failed_submission_has_reserved_is_released_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_processes, "BackendProcessClient", Doubtful)
    processes = HostProcesses(Job("id", "ssh", 1, 0.0, "/tmp", "python", "1"), RunFolder(tmp_path))
    processes.start()
    assert processes.release(lambda: None) == "the job has cost 1 USD"
    names = [call.name for call in processes._caller.calls]  # type: ignore[attr-defined]
    assert names == ["submit", "find", "release"]


def test_hosts_that_cannot_be_looked_for_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_processes, "BackendProcessClient", Doubtful)
    monkeypatch.setattr(Doubtful, "found", Failure("Unreachable", "signed out", may_pass=True))
    processes = HostProcesses(Job("id", "ssh", 1, 0.0, "/tmp", "python", "1"), RunFolder(tmp_path))
    processes.start()
    told = processes.release(lambda: None)
    assert told is not None
    assert "may still have hosts, which can cost money" in told
    assert "signed out" in told

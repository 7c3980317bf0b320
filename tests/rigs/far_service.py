"""The service of packages/far_backend: a thread that starts and ends what is left in its store."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import backends

__all__ = ["Service"]

INSTALLED = Path(__file__).parent / "packages" / "far_backend"


class Service:
    """`hold` keeps jobs in the queue while it is set. `silent` hides that they have left it."""

    def __init__(self, store: Path, patch: pytest.MonkeyPatch) -> None:
        store.mkdir()
        self.store = store
        self.hold = threading.Event()
        self.silent = threading.Event()
        self._over = threading.Event()
        self._jobs: dict[str, list[subprocess.Popen[bytes]]] = {}
        patch.syspath_prepend(str(INSTALLED))
        patch.setenv("PYTHONPATH", str(INSTALLED), prepend=os.pathsep)
        patch.setenv("FAR_STORE", str(store))
        backends._table.cache_clear()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for ranks in self._jobs.values():
            for rank in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(rank.pid, signal.SIGKILL)
                rank.wait()
        backends._table.cache_clear()

    @property
    def jobs(self) -> list[str]:
        """The names of all jobs that were ever submitted."""
        return sorted(path.name for path in self.store.iterdir() if path.is_dir() and path.name[0] != ".")

    def running(self) -> list[int]:
        """The ranks that run."""
        return [rank.pid for ranks in self._jobs.values() for rank in ranks if rank.poll() is None]

    def _serve(self) -> None:
        while not self._over.wait(0.02):
            for name in self.jobs:
                self._look_after(self.store / name)

    def _look_after(self, place: Path) -> None:
        stopped = (place / "stop").exists() or (place / "kill").exists()
        if place.name not in self._jobs:
            if stopped:
                self._jobs[place.name] = []
                self._tell(place, {"state": "stopped", "ranks": []})
            elif not self.hold.is_set():
                self._start(place)
            return
        ranks = self._jobs[place.name]
        if stopped and ranks:
            sent = place / ("killed" if (place / "kill").exists() else "stopped")
            if not sent.exists():
                sent.touch()
                for rank in ranks:
                    rank.send_signal(signal.SIGKILL if sent.name == "killed" else signal.SIGTERM)
        if ranks and not self.silent.is_set():
            self._report(place, ranks, stopped)

    def _start(self, place: Path) -> None:
        spec = json.loads((place / "spec.json").read_bytes())
        self._jobs[place.name] = ranks = []
        for rank in range(spec["np"]):
            size = str(spec["np"])
            env = {**spec["env"], "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": size}
            env |= {"LOCAL_WORLD_SIZE": size, "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
            argv = [spec["python"], "-m", "jupyter_dist.worker"]
            ranks.append(subprocess.Popen(argv, env=env, cwd=INSTALLED.parents[1], start_new_session=True))

    def _report(self, place: Path, ranks: list[subprocess.Popen[bytes]], stopped: bool) -> None:
        found = []
        if not (place / "started").exists():
            (place / "started").write_text(str(time.time()))
        for number, rank in enumerate(ranks):
            code = rank.poll()
            state = (
                "running"
                if code is None
                else "succeeded"
                if code == 0
                else "stopped"
                if stopped
                else "failed"
            )
            told = (None, None) if code is None else (code, None) if code >= 0 else (None, -code)
            about: dict[str, Any] = {"rank": number, "state": state, "pid": rank.pid}
            about |= {
                "host": socket.gethostname(),
                "local_rank": number,
                "exit_code": told[0],
                "signal": told[1],
            }
            about["started"] = float((place / "started").read_text())
            found.append(about)
        states = {about["state"] for about in found}
        order = ("running", "failed", "stopped", "succeeded")
        self._tell(place, {"state": next(s for s in order if s in states), "ranks": found})

    def _tell(self, place: Path, status: dict[str, Any]) -> None:
        text = json.dumps(status)
        with contextlib.suppress(FileNotFoundError):
            if (place / "status.json").read_text() == text:
                return
        (place / ".status.json").write_text(text)
        (place / ".status.json").rename(place / "status.json")

"""Somebody else's backend: hosts that share no disk with the notebook and take no connections from it.

Their platform, made up for this sample, is a JSON file: `{"h1": ["nsenter", …], …}` says what a command has
to begin with to run on each host. All that passes between a host and the notebook lies in an S3 bucket.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from jupyter_dist.backends import Capabilities, Options
from jupyter_dist.backends.hosted import Hosted, Hosting, HostSettings, Mailbox
from jupyter_dist.errors import InputError, Unreachable
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job, Poll

_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL")
_END_S = 10.0
_LOOK_EVERY_S = 2.0


class TentsOptions(Options):
    platform: str = Field(title="Platform", description="The file that describes the platform's hosts.")
    store: str = Field(title="Store", description="Where the mail goes, such as s3://bucket/prefix.")
    slots: int = Field(default=1, ge=1, title="Slots", description="Ranks that each host takes.")
    python: str = Field(default="python3", title="Python", description="The Python on the hosts.")
    grace: float = Field(default=60, ge=5, title="Grace", description="Seconds that ranks go on unwatched.")

    def hosts(self, world_size: int) -> list[dict[str, Any]]:
        names = list(json.loads(Path(self.platform).read_text()))
        return [{"name": name, "slots": self.slots} for name in names[: -(-world_size // self.slots)]]


class Tents:
    name: ClassVar[str] = "tents"
    options: ClassVar[type[Options]] = TentsOptions
    capabilities: ClassVar[Capabilities] = Capabilities(
        outlives=True, apart=True, visible=False, interrupts=True, sessions=True
    )
    poll_interval_s: ClassVar[float] = 0.1

    def __init__(self) -> None:
        self._hosted = Hosted(self._hosting)
        self._lock = threading.Lock()
        self._mailbox: Mailbox | None = None
        self._children: list[subprocess.Popen[bytes]] = []
        self._started = True  # a new object is asked only for runs whose hosts were started
        self._looked, self._ended = 0.0, dict[str, str]()

    def default_np(self) -> int:
        return 2

    def check(self, world_size: int, options: Any) -> list[str]:
        asked = TentsOptions(**options)
        if world_size > sum(host["slots"] for host in asked.hosts(world_size)):
            raise InputError(f"{world_size} workers are too many for the platform: raise --slots")
        return []

    def detect(self) -> dict[str, Any]:
        return {}

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        return {"hosts": TentsOptions(**job.options).hosts(job.world_size), "store": job.options["store"]}

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Any:
        self._started, self._ended = False, {}
        handle = {**self._hosted.submit(job, folder, attempt), "run": job.id}
        assert self._mailbox is not None
        with self._unreachable():
            self._mailbox.upload()
        asked = TentsOptions(**job.options)
        enter = json.loads(Path(asked.platform).read_text())
        there = {host for host, _ in _processes(job.id)}
        for number, host in enumerate(asked.hosts(job.world_size)):
            if host["name"] not in there:
                argv, env = self._mailbox.host_program(number, asked.python)
                env |= {name: os.environ[name] for name in _CREDENTIALS if name in os.environ}
                env |= {"TENT": host["name"], "PATH": "/usr/bin:/bin:/sbin", "HOME": "/home/jd"}
                self._children.append(
                    subprocess.Popen(
                        [*enter[host["name"]], *argv],
                        env=env,
                        stdin=subprocess.DEVNULL,
                        start_new_session=True,
                    )
                )
        self._started = True
        return handle

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Any:
        if not list(_processes(job.id)):
            return None
        return {**self._hosted.find(job, folder, attempt), "run": job.id}

    def poll(self, job: Job, folder: RunFolder, handle: Any, cursor: Any) -> Poll:
        for child in self._children:
            child.poll()  # no zombies
        return self._hosted.poll(job, folder, handle)

    def stop(self, job: Job, folder: RunFolder, handle: Any, *, kill: bool) -> None:
        self._hosted.stop(job, folder, handle, kill=kill)

    def ask(self, job: Job, folder: RunFolder, handle: Any, rank: int | None, verb: str) -> None:
        self._hosted.ask(job, folder, handle, rank, verb)

    def exchange(
        self, job: Job, folder: RunFolder, handle: Any, wishes: Any, wait_s: float
    ) -> dict[str, Any]:
        with self._hosted.session.hurry(wishes), self._lock:
            return self._hosted.exchange(job, folder, handle, wishes, wait_s)

    def release(self, job: Job, folder: RunFolder, handle: Any) -> None:
        self._hosted.release(job, folder, handle)
        for signum in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + _END_S
            for _, pid in _processes(handle["run"]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signum)
            while list(_processes(handle["run"])) and time.monotonic() < deadline:
                for child in self._children:
                    child.poll()
                time.sleep(0.05)

    def _hosting(self, job: Job, folder: RunFolder) -> Hosting:
        asked = TentsOptions(**job.options)
        self._mailbox = mailbox = Mailbox(asked.store, folder)
        return Hosting(
            asked.hosts(job.world_size),
            HostSettings(remote_dir="/tmp/tents", grace_s=asked.grace),
            mailbox.reach,
            trouble=lambda: mailbox.trouble,
            gone=lambda: self._gone(job),
            close=mailbox.close,
        )

    def _gone(self, job: Job) -> dict[str, str]:
        if self._started and time.monotonic() > self._looked + _LOOK_EVERY_S:
            self._looked = time.monotonic()
            there = {name for name, _ in _processes(job.id)}
            hosts = TentsOptions(**job.options).hosts(job.world_size)
            self._ended = {host["name"]: "its tent is gone" for host in hosts if host["name"] not in there}
        return self._ended

    @contextlib.contextmanager
    def _unreachable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Unreachable(str(error)) from error


def _processes(run: str) -> Iterator[tuple[str, int]]:
    """What runs on the platform under the name of a run: hosts and pids. A platform's own list of jobs."""
    marker = f"JUPYTER_DIST_MAILBOX_RUN={run}".encode()
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if not entry.isdigit():
                continue
            found = Path("/proc", entry, "environ").read_bytes().split(b"\0")
            if marker in found and b"JUPYTER_DIST_STAGE" not in b" ".join(found):
                tents = [name[5:].decode() for name in found if name.startswith(b"TENT=")]
                if tents:
                    yield tents[0], int(entry)

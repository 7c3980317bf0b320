"""Backends whose calls fail, block and break on demand, over a service that is a folder.

`far` lives apart and its ranks outlive the supervisor; `near` is in its process, and they do not. The service
is a thread of the test (tests/rigs/far_service.py), and its store the folder FAR_STORE: a job is a folder
there whose name follows from the run's id and the attempt.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from jupyter_dist.backends import Capabilities, Options
from jupyter_dist.errors import LaunchError, Unreachable
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job, Poll, RankState, State


class FarOptions(Options):
    grace: float = Field(default=60.0, title="Grace", description="For how long calls are tried again.")
    fails: float = Field(default=0.0, title="Fails", description="How many of its calls fail and may pass.")
    takes: float = Field(default=0.0, title="Takes", description="Seconds that each call takes.")
    breaks: str = Field(default="", title="Breaks", description="Calls that raise what does not pass.")
    hangs: str = Field(default="", title="Hangs", description="Calls that do not return.")
    away: str = Field(default="", title="Away", description="Calls that raise what may pass, always.")
    dies: float = Field(default=0.0, title="Dies", description="How many of its calls end its process.")
    refuses: bool = Field(default=False, title="Refuses", description="A submission is refused.")
    kills: str = Field(default="", title="Kills", description="Where the supervisor is killed, once.")


@functools.cache
def _dice() -> random.Random:
    """Chance that can be had again: by FAR_SEED, and by how many processes have called the service before."""
    with (Path(os.environ["FAR_STORE"]) / ".processes").open("ab") as counted:
        counted.write(b".")
        return random.Random(f"{os.environ['FAR_SEED']} {counted.tell()}")


class TooManyRequests(Exception):
    """As a client library's own."""

    status = 429


class Near:
    name: ClassVar[str] = "near"
    options: ClassVar[type[Options]] = FarOptions
    capabilities: ClassVar[Capabilities] = Capabilities()
    poll_interval_s: ClassVar[float] = 0.1

    def default_np(self) -> int:
        return 2

    def check(self, world_size: int, options: Any) -> list[str]:
        return []

    def detect(self) -> dict[str, Any]:
        return {}

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        return {"name": f"{job.id}-{attempt}", "np": job.world_size}

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> dict[str, Any]:
        asked = FarOptions(**job.options)
        self._mood("submit", asked)
        if asked.refuses:
            raise LaunchError("no such instance type: 'huge'. Nothing was started.")
        name = f"{job.id}-{attempt}"
        store = Path(os.environ["FAR_STORE"])
        self._stage("before", asked, store)
        job_folder = store / name
        if job_folder.exists():
            raise LaunchError(f"there is a job {name} already")
        made = store / f".{name}.{os.getpid()}"
        made.mkdir()
        env = {**os.environ, "JUPYTER_DIST_RUN": str(folder.path), "JUPYTER_DIST_RUN_ID": job.id}
        env |= {"JUPYTER_DIST_ATTEMPT": str(attempt), "JUPYTER_DIST_CWD": job.cwd}
        spec = {"python": job.python, "np": job.world_size, "env": env}
        (made / "spec.json").write_text(json.dumps(spec))
        (made / "options.json").write_text(json.dumps(dict(job.options)))
        made.rename(job_folder)
        self._stage("after", asked, store)
        if self.capabilities.apart or asked.breaks:  # what is in the supervisor's process has no `find`
            self._mood("submitted", asked)
        return {"name": name}

    def find(self, job: Job, folder: RunFolder, attempt: int) -> dict[str, Any] | None:
        self._mood("find", FarOptions(**job.options))
        name = f"{job.id}-{attempt}"
        return {"name": name} if (Path(os.environ["FAR_STORE"]) / name).exists() else None

    def poll(self, job: Job, folder: RunFolder, handle: Any, cursor: Any) -> Poll:
        place = self._place(handle)
        self._mood("poll", self._asked(place))
        if (place / "released").exists():
            lost = tuple(RankState(rank, State.LOST) for rank in (0, 1))
            return Poll(State.FAILED, lost, detail="no such job")
        try:
            found = json.loads((place / "status.json").read_bytes())
        except FileNotFoundError:
            return Poll(State.PENDING, detail="queue position 3")
        ranks = tuple(RankState.from_json(rank) for rank in found["ranks"])
        return Poll(State(found["state"]), ranks, cursor=(cursor or 0) + 1, detail=found.get("detail"))

    def stop(self, job: Job, folder: RunFolder, handle: Any, *, kill: bool) -> None:
        place = self._place(handle)
        self._mood("kill" if kill else "stop", self._asked(place))
        (place / ("kill" if kill else "stop")).touch()

    def ask(self, job: Job, folder: RunFolder, handle: Any, rank: int | None, verb: str) -> None:
        self._mood("ask", self._asked(self._place(handle)))

    def release(self, job: Job, folder: RunFolder, handle: Any) -> None:
        place = self._place(handle)
        self._mood("release", self._asked(place))
        (place / "released").touch()
        asked = self._asked(place)
        self._stage("released", asked, place.parent)

    def _place(self, handle: Any) -> Path:
        return Path(os.environ["FAR_STORE"]) / str(handle["name"])

    def _asked(self, place: Path) -> FarOptions:
        return FarOptions(**json.loads((place / "options.json").read_bytes()))

    def _mood(self, call: str, asked: FarOptions) -> None:
        if asked.takes and call != "submitted":
            time.sleep(asked.takes)
        if call in asked.hangs.split(","):
            time.sleep(600)
        if call in asked.breaks.split(","):
            raise KeyError(f"no field 'phase' in the answer to {call}")
        if call in asked.away.split(","):
            raise ConnectionError("503")
        dice = _dice()
        if dice.random() < asked.dies:
            os._exit(15)
        if dice.random() < asked.fails:
            raise dice.choice(
                [
                    ConnectionError("503"),
                    TimeoutError(),
                    Unreachable("no route"),
                    TooManyRequests("slow down"),
                ]
            )

    def _stage(self, stage: str, asked: FarOptions, store: Path) -> None:
        if stage == asked.kills and not (store / "killed").exists():
            (store / "killed").touch()
            os.kill(os.getppid() if self.capabilities.apart else os.getpid(), signal.SIGKILL)
            time.sleep(600 if self.capabilities.apart else 0)


class Far(Near):
    name: ClassVar[str] = "far"
    capabilities: ClassVar[Capabilities] = Capabilities(apart=True, outlives=True, submit_limit_s=1.0)

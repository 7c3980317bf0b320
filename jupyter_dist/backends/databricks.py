"""The backend `databricks`: ranks on the workers of a Databricks cluster, from a JupyterLab anywhere.

A one-time run of Jobs starts one barrier task per host (workspace/barrier_program.py), and each of them our
agent. All that passes between a host and this machine lies in a Unity Catalog Volume.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import urllib.parse
from collections.abc import Mapping
from importlib import metadata
from typing import Any, ClassVar

from ..errors import InputError, Unreachable
from ..folder import RunFolder
from ..hosts.volume_store import VolumeStore
from ..job import Job, Poll, State
from ._base import Capabilities, Handle, Options
from .hosted import Hosted, Hosting, Mailbox, Wanted
from .workspace.cluster_options import DatabricksOptions, check_cluster, host_list, job_request, spread
from .workspace.errands import Errands, program_path
from .workspace.job_runs import JobRun, Watch
from .workspace.signing_in import Workspace, profiles

__all__ = ["Databricks"]

_WHY_S = 15.0
"""For the workspace to say why a job run has ended."""


class Databricks:
    """One run's hosts are the barrier tasks of one job run, which serves all of the run's attempts."""

    name: ClassVar[str] = "databricks"
    options: ClassVar[type[Options]] = DatabricksOptions
    capabilities: ClassVar[Capabilities] = Capabilities(
        outlives=True, apart=True, visible=False, submit_limit_s=300.0
    )
    poll_interval_s: ClassVar[float] = 0.1

    def __init__(self) -> None:
        self._hosted = Hosted(self._hosting)
        self._workspace: Workspace | None = None
        self._errands: Errands | None = None
        self._mailbox: Mailbox | None = None
        self._seen: JobRun | None = None
        self._watch: Watch | None = None
        self._served = False
        """Whether its hosts were seen to be there."""

    def default_np(self) -> int:
        return 1

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        return check_cluster(world_size, DatabricksOptions(**options))

    def detect(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        with contextlib.suppress(metadata.PackageNotFoundError, InputError):
            found["databricks-sdk"] = metadata.version("databricks-sdk")
            found["profiles"] = ", ".join(profiles(os.environ)) or "none"
        return found

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        asked = DatabricksOptions(**job.options)
        slots = spread(job.world_size, asked.nodes)
        told: Any = host_list(slots) if asked.new_cluster else "as many as the cluster has workers"
        body = job_request(job.id, attempt, program_path("YOU", job.id, attempt), slots, asked)
        return {"hosts": told, "mailbox": asked.mailbox, "submit": body}

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        asked = DatabricksOptions(**job.options)
        errands, mailbox = self._open(asked, folder)
        seen = errands.find(attempt, job.created)
        if seen is not None and seen.life == "TERMINATING":
            raise Unreachable(f"job run {seen.number} is still ending")
        if seen is None:
            before = None if self._seen is None else self._seen.slots
            seen = errands.submit(attempt, job.world_size, mailbox, before)
            print(f"job run {seen.number} on {len(seen.slots)} hosts: {seen.page}", flush=True)
        self._follow(seen)
        return {**self._hosted.submit(job, folder, attempt), **self._known()}

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle | None:
        asked = DatabricksOptions(**job.options)
        errands, _ = self._open(asked, folder)
        seen = errands.find(attempt, job.created)
        if seen is None:
            if attempt == 0:  # no hosts have ever been there, and another submission uploads anew
                errands.tidy()
                self._mailbox = None
            return None
        self._follow(seen)
        return {**self._hosted.find(job, folder, attempt), **self._known()}

    def poll(self, handle: Handle, cursor: Any) -> Poll:
        self._adopt(handle)
        poll = self._hosted.poll(handle)
        if self._watch is None:
            return poll
        seen = self._watch.seen
        if poll.state is not State.PENDING:
            self._served = True
            return poll
        if seen.ended is not None:
            return dataclasses.replace(poll, state=State.FAILED, detail=seen.ended, final=seen.final)
        told = (f"job run {seen.number} {seen.waits_for}", poll.detail, f"see {seen.page}")
        return dataclasses.replace(poll, detail="; ".join(filter(None, told)))

    def stop(self, handle: Handle, *, kill: bool) -> None:
        self._adopt(handle)
        self._hosted.stop(handle, kill=kill)

    def ask(self, handle: Handle, rank: int | None, verb: str) -> None:
        self._adopt(handle)
        self._hosted.ask(handle, rank, verb)

    def release(self, handle: Handle) -> None:
        self._adopt(handle)
        self._hosted.release(handle)
        assert self._errands is not None
        assert self._seen is not None
        self._errands.end(self._seen, released=self._served)

    def _known(self) -> dict[str, Any]:
        assert self._seen is not None
        return {"job_run": dataclasses.asdict(self._seen)}

    def _adopt(self, handle: Handle) -> None:
        """Know of the job run what the handle tells, in a process that has not begun it."""
        if self._seen is None:
            told = handle["job_run"]
            self._seen = JobRun(**{**told, "slots": tuple(told["slots"])})

    def _follow(self, seen: JobRun) -> None:
        self._seen = seen
        if self._watch is not None:
            self._watch.close()
            assert self._workspace is not None
            self._watch = Watch(self._workspace, seen)

    def _open(self, asked: DatabricksOptions, folder: RunFolder) -> tuple[Errands, Mailbox]:
        if self._errands is None or self._mailbox is None:
            self._workspace = workspace = Workspace(asked.host, asked.profile)
            self._errands = Errands(workspace, asked, folder.id)
            # On the cluster, the Volume is a folder; here, the same is asked of the workspace.
            self._mailbox = Mailbox(
                f"file://{urllib.parse.quote(asked.mailbox)}",
                folder,
                # A cluster may be waited for as long as it takes: the workspace says what becomes of it.
                opening_s=math.inf,
                store=lambda: VolumeStore(workspace.asking, asked.mailbox),
            )
        return self._errands, self._mailbox

    def _hosting(self, job: Job, folder: RunFolder) -> Hosting:
        asked = DatabricksOptions(**job.options)
        _, mailbox = self._open(asked, folder)
        assert self._workspace is not None
        assert self._seen is not None
        self._watch = watch = Watch(self._workspace, self._seen)
        hosts = host_list(self._seen.slots)

        def gone() -> dict[str, str]:
            ended = None if self._watch is None else self._watch.seen.ended
            return {} if ended is None else {host["name"]: ended for host in hosts}

        def close() -> None:
            (self._watch or watch).close()
            mailbox.close()

        return Hosting(
            hosts,
            asked.agent_settings(),
            mailbox.reach,
            Wanted(asked.gpus_per_worker, asked.share_gpus, asked.wait_for_gpus),
            trouble=lambda: (None if self._watch is None else self._watch.trouble) or mailbox.trouble,
            gone=gone,
            why_s=_WHY_S,
            close=close,
        )

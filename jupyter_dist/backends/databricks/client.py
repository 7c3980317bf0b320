"""The platform client of a run on Databricks: it starts a job run, finds it again, and ends it."""

from __future__ import annotations

import contextlib
import io
import math
import shlex
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import DistError
from ...folder import RunFolder
from ...hosts.links.mailbox import Mailbox
from ...hosts.stores.databricks_volume import VolumeStore
from ...job import Job
from ..hosted import RankEnvironmentOptions
from ..job_watch import NotThere
from ..platform_job import leave_files
from .barrier_program import program_text
from .jobs import JobRun, active_run, end_run, look_at, remove_program, see, submit_run, upload_program
from .options import DatabricksOptions
from .request import cluster_hosts, host_list, job_request, run_name, spread
from .workspace import Workspace

__all__ = ["DatabricksClient", "program_path"]

_SLOTS_WAIT_S = 600.0


def program_path(user: str, run: str, attempt: int) -> str:
    """Return the path of a job run's program in the workspace."""
    return f"/Users/{user}/.jupyter-dist/{run}-{attempt}.py"


class DatabricksClient:
    """The `PlatformClient` of one run."""

    look_every_s = 2.0
    why_s = 15.0
    end_s = 15.0

    def __init__(self, workspace: Workspace, asked: DatabricksOptions, run: str) -> None:
        self._workspace, self._asked, self._run = workspace, asked, run
        self.settings, self.wanted = asked.agent_settings(), RankEnvironmentOptions.of(asked)

    def mailbox(self, folder: RunFolder) -> Mailbox:
        # On the cluster, the Volume is a folder. This machine uses the workspace's API for the same files.
        return Mailbox(
            f"file://{urllib.parse.quote(self._asked.mailbox)}",
            folder,
            # A cluster may take any time to start: the workspace reports what happens to it.
            opening_s=math.inf,
            store=self._store,
        )

    def _store(self) -> VolumeStore:
        return VolumeStore(self._workspace.asking, self._asked.mailbox)

    def hosts(self, job: Job, seen: JobRun) -> Sequence[Mapping[str, Any]]:
        return host_list(seen.slots)

    def submit(self, job: Job, attempt: int, mailbox: Mailbox, before: JobRun | None) -> JobRun:
        asked, asking = self._asked, self._workspace.asking
        slots = spread(job.world_size, asked.nodes) if before is None else before.slots
        if asked.cluster_id is not None and before is None:
            with asking(f"use the cluster {asked.cluster_id!r}") as client:
                slots = cluster_hosts(
                    client.clusters.get(asked.cluster_id).as_dict(), job.world_size, asked.other_python
                )
        own = f"{asked.mailbox}/{self._run}"
        with asking(f"write to the Volume {asked.volume!r}") as client:
            client.files.create_directory(own)
            client.files.upload(f"{own}/begun", io.BytesIO(b"1"), overwrite=True)
        leave_files(mailbox)
        argv, env = mailbox.host_program(None)
        settings = {"argv": argv, "env": env, "folder": own, "attempt": attempt, "hosts": len(slots)}
        with asking("write into your own folder of the workspace") as client:
            program = program_path(client.current_user.me().user_name, self._run, attempt)
            upload_program(client, program, program_text({**settings, "wait_s": _SLOTS_WAIT_S}))
        with asking("start a job run") as client:
            return see(client, submit_run(client, job_request(self._run, attempt, program, slots, asked)))

    def find(self, job: Job, attempt: int) -> JobRun | None:
        with self._workspace.asking("list your job runs") as client:
            seen = active_run(client, run_name(self._run), job.created - 3600)
            if seen is None:
                # Without the program, a submission that is still pending fails.
                remove_program(client, program_path(client.current_user.me().user_name, self._run, attempt))
            return seen

    def look(self, seen: JobRun) -> JobRun:
        return look_at(self._workspace, seen)

    def away(self, first: JobRun, seen: JobRun) -> str | None:
        return seen.ended

    def so_far(self, seen: JobRun) -> str | None:
        return None

    def tell_all(self, seen: JobRun) -> None:
        pass  # the workspace gets no metrics

    def end(self, seen: JobRun, folder: RunFolder, *, wait_s: float) -> str | None:
        with contextlib.suppress(NotThere):
            end_run(self._workspace, seen.number, wait_s=wait_s)
        return None

    def how_to_stop(self, seen: JobRun) -> str:
        host = [] if self._asked.host is None else ["env", f"DATABRICKS_HOST={self._asked.host}"]
        profile = [] if self._asked.profile is None else ["--profile", self._asked.profile]
        return shlex.join([*host, "databricks", "jobs", "cancel-run", str(seen.number), *profile])

    def tidy(self, seen: JobRun | None = None) -> None:
        try:
            if seen is not None:
                with self._workspace.asking(f"remove {seen.program!r}") as client:
                    remove_program(client, seen.program)
            self._store().remove_folder(self._run)
        except (DistError, OSError) as error:
            print(f"what the run has left in the workspace stays there: {error}", flush=True)

"""What a run asks of its workspace: to start a job run, to find it again, to end it with all that is left."""

from __future__ import annotations

import io

from ...errors import DistError, Unreachable
from ...hosts.mailbox import Mailbox
from ...hosts.volume_store import VolumeStore
from .barrier_program import program_text
from .cluster_options import DatabricksOptions, cluster_hosts, job_request, run_name, spread
from .job_runs import JobRun, active_run, end_run, remove_program, see, submit_run, upload_program
from .signing_in import NotThere, Workspace

__all__ = ["Errands", "program_path"]

_SLOTS_WAIT_S = 600.0


def program_path(user: str, run: str, attempt: int) -> str:
    """Where the program of a job run lies in the workspace."""
    return f"/Users/{user}/.jupyter-dist/{run}-{attempt}.py"


class Errands:
    """One run's. All of them wait for the workspace."""

    def __init__(self, workspace: Workspace, asked: DatabricksOptions, run: str) -> None:
        self._workspace, self._asked, self._run = workspace, asked, run

    def submit(
        self, attempt: int, world_size: int, mailbox: Mailbox, slots: tuple[int, ...] | None
    ) -> JobRun:
        """Leave on the Volume what the hosts need, and start a job run. `slots`: of an attempt before.

        Raises Unreachable where another try may help, and any other DistError with nothing left behind.
        """
        try:
            return self._submit(attempt, world_size, mailbox, slots)
        except Unreachable:
            raise
        except DistError:
            self.tidy()
            raise

    def _submit(
        self, attempt: int, world_size: int, mailbox: Mailbox, before: tuple[int, ...] | None
    ) -> JobRun:
        asked, asking = self._asked, self._workspace.asking
        slots = before or spread(world_size, asked.nodes)
        if asked.cluster_id is not None and before is None:
            with asking(f"use the cluster {asked.cluster_id!r}") as client:
                slots = cluster_hosts(client.clusters.get(asked.cluster_id).as_dict(), world_size)
        own = f"{asked.mailbox}/{self._run}"
        with asking(f"write to the Volume {asked.volume!r}") as client:
            client.files.create_directory(own)
            client.files.upload(f"{own}/begun", io.BytesIO(b"1"), overwrite=True)
        try:
            mailbox.upload()
        except OSError as error:
            raise Unreachable(str(error)) from error
        argv, env = mailbox.host_program(None)
        settings = {"argv": argv, "env": env, "folder": own, "attempt": attempt, "hosts": len(slots)}
        with asking("write into your own folder of the workspace") as client:
            program = program_path(client.current_user.me().user_name, self._run, attempt)
            upload_program(client, program, program_text({**settings, "wait_s": _SLOTS_WAIT_S}))
        with asking("start a job run") as client:
            return see(client, submit_run(client, job_request(self._run, attempt, program, slots, asked)))

    def find(self, attempt: int, created: float) -> JobRun | None:
        """The job run that has not ended. None: there is none, nor will a submission on its way become one.
        `created`: when the run began, in seconds since the epoch."""
        with self._workspace.asking("list your job runs") as client:
            seen = active_run(client, run_name(self._run), created - 3600)
            if seen is None:
                # A submission that is still on its way comes to nothing without it.
                remove_program(client, program_path(client.current_user.me().user_name, self._run, attempt))
            return seen

    def end(self, seen: JobRun, *, released: bool) -> None:
        """End a job run, whose hosts may have been `released`, with all that is left of the run. What cannot
        be ended or removed is told of; never raises."""
        try:
            with self._workspace.asking(f"end job run {seen.number}") as client:
                end_run(client, seen.number, released=released)
        except NotThere:
            pass
        except DistError as error:
            print(f"job run {seen.number} may go on: {error}", flush=True)
        self.tidy(seen.program)

    def tidy(self, program: str | None = None) -> None:
        """Remove what the run has left on the Volume, and its program. Never raises."""
        try:
            if program is not None:
                with self._workspace.asking(f"remove {program!r}") as client:
                    remove_program(client, program)
            VolumeStore(self._workspace.asking, self._asked.mailbox).remove_folder(self._run)
        except (DistError, OSError) as error:
            print(f"what the run has left in the workspace stays there: {error}", flush=True)

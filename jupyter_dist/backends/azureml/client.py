"""The platform client of a run on Azure ML: it starts a command job, finds it again, and ends it."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import shlex
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...agent.stores.blob_store import BlobStore
from ...agent.stores.store import StoreError
from ...errors import DistError, LaunchError, Unreachable
from ...folder import RunFolder
from ...hosts.bootstrap import courier_program
from ...hosts.links.mailbox import Mailbox
from ...job import Job
from ...search.spec import Search
from .. import platform_entrypoint
from ..job_watch import InUse, NotThere, first_active
from ..platform_job import leave_files
from ..platform_trial import take_key
from .environments import anonymous, environment_id, environment_of
from .jobs import CommandJob, end_job, look_again, look_at
from .mailbox_access import MailboxAccess
from .options import AzureMlOptions
from .request import command_job, job_name, longest_s
from .studio_metrics import StudioMetrics
from .sweep_request import sweep_job, sweep_name
from .workspace import MlWorkspace

__all__ = ["AzureMlClient", "code_id", "mailbox_of"]

_OURS = uuid.UUID("5f0e7a55-6f0b-4f5c-9c0e-6a1d3f2f7a11")


def _code(name: str) -> str:
    """Return the name of a job's code. The same job has the same name, so there is only one."""
    return str(uuid.uuid5(_OURS, name))


def code_id(workspace: str, name: str) -> str:
    """Return the id of a job's code in the workspace with that id."""
    return f"{workspace}/codes/{_code(name)}/versions/1"


def mailbox_of(asked: AzureMlOptions) -> str:
    """Return the mailbox's address in Azure ML's format for datastore folders."""
    return f"azureml://datastores/{asked.datastore}/paths/jupyter-dist"


class AzureMlClient:
    """The `PlatformClient` of one run."""

    look_every_s = 3.0
    why_s = 20.0
    end_s = 15.0

    def __init__(
        self, workspace: MlWorkspace, asked: AzureMlOptions, folder: RunFolder, adopted: str | None = None
    ) -> None:
        """`adopted`: the job, if a sweep has started it."""
        self._workspace, self._asked, self._run = workspace, asked, folder.id
        self._adopted = adopted
        self._metrics, self._telling = StudioMetrics(workspace, folder), threading.Lock()
        self._mail = MailboxAccess(workspace, asked.datastore)
        self.settings, self.wanted = asked.agent_settings(), asked.wanted()

    def mailbox(self, folder: RunFolder) -> Mailbox:
        if self._adopted is not None:
            take_key(folder)
        # Machines may take any time to start: the workspace reports what happens to the job.
        return Mailbox(
            mailbox_of(self._asked), folder, opening_s=math.inf, store=self._mail.store, run=self._adopted
        )

    def hosts(self, job: Job, seen: CommandJob) -> Sequence[Mapping[str, Any]]:
        return self._asked.host_list(job.world_size)

    def submit(self, job: Job, attempt: int, mailbox: Mailbox, before: CommandJob | None) -> CommandJob:
        if self._adopted is not None:
            return look_at(self._workspace, self._adopted)
        most_s = self._longest_s(job)
        name, asked, where = job_name(self._run, attempt), self._asked, self._workspace.where.id
        body = command_job(
            asked,
            name,
            job.world_size,
            where,
            code_id(where, name),
            version=self._version(),
            longest_s=most_s,
        )
        program = self._program(mailbox)  # first: it reports errors of the datastore
        leave_files(mailbox)
        self._make_environment()
        self._leave_code(name, program)
        with contextlib.suppress(InUse):
            self._workspace.jobs("PUT", name, "start a job", body, on_behalf=asked.identity == "user")
        return look_at(self._workspace, name)

    def _longest_s(self, job: Job) -> float | None:
        """Return `longest_s` of the job.

        Raises LaunchError if the run may outlast its hosts' access to the mailbox.
        """
        life_s = self._mail.life_s() if self._asked.identity is None else None
        most_s = longest_s(job, life_s)
        if life_s is None or most_s is None or 0 < most_s <= life_s:
            return most_s
        days = f"{life_s / 86400:.3g}"
        lasts = f"{days} {'day' if days == '1' else 'days'}" if life_s > 0 else "no time any more"
        cure = "Use --identity managed or user"
        if job.timeout_s is None:
            raise LaunchError(
                f"the datastore's own signature, with which a job writes, is valid for {lasts}. {cure}"
            )
        attempts = "an attempt" if not job.max_restarts else f"{job.max_restarts + 1} attempts"
        raise LaunchError(
            f"a job without --identity writes with a signature that is valid for {lasts}. But "
            f"{attempts} of --timeout {job.timeout_s:,.0f} s and the start of their hosts may "
            f"need {most_s:,.0f} s. {cure}, or a shorter --timeout"
        )

    def begin_sweep(self, search: Search, tuning: Job, trial: Job, mailbox: Mailbox) -> None:
        """Start the sweep job of a tuning run with trials like this one. Repeatable: there is only one job.

        Blocks. Raises what `submit` raises.
        """
        most_s = self._longest_s(tuning)
        name, asked, where = sweep_name(self._run), self._asked, self._workspace.where.id
        code, ranks = code_id(where, name), trial.world_size
        body = sweep_job(search, asked, name, ranks, where, code, version=self._version(), longest_s=most_s)
        # Each trial's job has its own folder in the mailbox, with the job's name.
        program = self._program(mailbox, "$AZUREML_RUN_ID")
        self._make_environment()
        self._leave_code(name, program)
        with contextlib.suppress(InUse):
            self._workspace.sweeps("PUT", name, "start a sweep", body, on_behalf=asked.identity == "user")

    def _version(self) -> str | None:
        """Return the newest version of an environment whose name contains no version."""
        if self._asked.makes_environment:
            return None
        name = (self._asked.environment or "").removeprefix("azureml:")
        if not environment_id(name, "").endswith("/versions/LATEST"):
            return None
        newest = "versions?$orderBy=createdtime%20desc&$top=1"
        told = self._workspace.other("GET", f"/environments/{name}/{newest}", f"use the environment {name!r}")
        if not told.get("value"):
            raise NotThere(f"the workspace {self._workspace.where.workspace!r} has no environment {name!r}")
        return str(told["value"][0]["name"])

    def _make_environment(self) -> None:
        """Create the environment of --pip, --conda-file and --image, unless it exists."""
        made = anonymous(self._asked)
        if made is None:
            return
        path = environment_of(self._asked, "")
        with contextlib.suppress(InUse):
            self._workspace.environments("PUT", path, "make an environment from packages", made[1])

    def _leave_code(self, name: str, program: Mapping[str, str]) -> None:
        """Store the program of the job's machines in the workspace.

        The program contains the run's key and the signature of its mailbox. Everyone who may see the job can
        read the job's environment, so neither is there.
        """
        code = f"{_code(name)}/versions/1"
        with contextlib.suppress(NotThere):
            self._workspace.codes("GET", code, "look for a job's code")
            return
        kind = {"pendingUploadType": "TemporaryBlobReference"}
        told = self._workspace.codes("POST", f"{code}/startPendingUpload", "upload a job's code", kind)
        place = told["blobReferenceForConsumption"]
        address, _, signature = str(place["credential"]["sasUri"]).partition("?")
        store = BlobStore(f"{address}/{name}", {"JUPYTER_DIST_MAILBOX_SAS": signature})
        try:
            for file, text in program.items():
                store.put(file, text.encode())
        except StoreError as error:
            raise Unreachable(f"cannot upload a job's code: {error}") from error
        about = {"codeUri": f"{place['blobUri']}/{name}", "isAnonymous": True, "properties": {}}
        with contextlib.suppress(InUse):
            self._workspace.codes("PUT", code, "upload a job's code", {"properties": about})

    def _program(self, mailbox: Mailbox, run: str | None = None) -> dict[str, str]:
        """Return the files of a job's code.

        `run`: its folder in the mailbox, if it differs from the run's id.
        """
        _, env = mailbox.host_program(None)
        env["JUPYTER_DIST_MAILBOX_RUN"] = run or env["JUPYTER_DIST_MAILBOX_RUN"]
        env |= {"JUPYTER_DIST_MAILBOX": self._mail.url(), "JUPYTER_DIST_MAILBOX_ECHO": "1"}
        del env["JUPYTER_DIST_MAILBOX_NODE"]
        if self._asked.identity is None:
            env["JUPYTER_DIST_MAILBOX_SAS"] = self._mail.signature()
        return {
            platform_entrypoint.PROGRAM: Path(platform_entrypoint.__file__).read_text("utf-8"),
            platform_entrypoint.COURIER: courier_program(),
            platform_entrypoint.MAILBOX: json.dumps(env),
        }

    def find(self, job: Job, attempt: int) -> CommandJob | None:
        ours = [job_name(self._run, number) for number in range(attempt, -1, -1)]
        names = ours if self._adopted is None else [self._adopted]
        return first_active(names, functools.partial(look_at, self._workspace))

    def look(self, seen: CommandJob) -> CommandJob:
        found = look_again(self._workspace, seen)
        with self._telling:
            self._metrics.tell(seen.name)
        return found

    def tell_all(self, seen: CommandJob) -> None:
        """Send all logged metrics to the workspace before the job ends: a sweep judges the job by them.

        Blocks. Never raises.
        """
        with self._telling:
            self._metrics.tell(seen.name, all_of_it=True)

    def away(self, first: CommandJob, seen: CommandJob) -> str | None:
        return seen.ended or seen.preempted

    def so_far(self, seen: CommandJob) -> str | None:
        return f"{seen.called} runs on {seen.machines}; see {seen.page}"

    def end(self, seen: CommandJob, folder: RunFolder, *, wait_s: float) -> str | None:
        try:
            found = end_job(self._workspace, seen.name, wait_s=wait_s)
        except NotThere:
            return None
        return f"{found.called} on {found.machines}: {found.status}; see {found.page}"

    def how_to_stop(self, seen: CommandJob) -> str:
        where = self._workspace.where
        within = ["--workspace-name", where.workspace, "--resource-group", where.resource_group]
        whose = ["--subscription", where.subscription]
        return shlex.join(["az", "ml", "job", "cancel", "--name", seen.name, *within, *whose])

    def tidy(self, seen: CommandJob | None = None) -> None:
        try:
            store = self._mail.store()
            store.remove(store.names(f"{self._adopted or self._run}/"))
        except (DistError, OSError) as error:
            print(f"what the run has left in the datastore stays there: {error}", flush=True)

"""The platform client of a run on SageMaker: it starts a training job, finds it again, and ends it."""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import io
import math
import shlex
import tarfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import DistError
from ...folder import RunFolder
from ...hosts.bootstrap import courier_program
from ...hosts.links.mailbox import Mailbox
from ...hosts.stores.s3_bucket import BucketStore
from ...job import Job
from ...record import reader
from ...search.spec import Search
from .. import platform_entrypoint
from ..hosted import RankEnvironmentOptions
from ..job_watch import InUse, NotThere, first_active
from ..platform_job import leave_files
from ..platform_trial import take_key
from .account import AwsAccount
from .billing import bill, so_far
from .experiments import begin_entry, end_entry, entry_name, trial_name
from .jobs import TrainingJob, describe, end_job, look_again, look_at
from .options import SageMakerOptions
from .request import CHECKPOINTS, Asked, default_bucket, job_names, mailbox_of, training_request
from .tuning.request import tuning_request

__all__ = ["SageMakerClient", "code_archive", "code_name", "job_env", "request_of", "tuning_of"]

_END_S = 15.0
_MPI_END_S = 40.0
"""Seconds until a job under mpirun has ended: the container's toolkit first waits for half a minute."""


@functools.cache
def code_archive() -> bytes:
    """Return the archive that SageMaker's toolkit unpacks and runs. The same code yields the same bytes."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, text in (
            (platform_entrypoint.PROGRAM, Path(platform_entrypoint.__file__).read_text("utf-8")),
            (platform_entrypoint.COURIER, courier_program()),
        ):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text.encode()), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    return gzip.compress(plain.getvalue(), mtime=0)


def code_name() -> str:
    """Return the archive's path below the mailbox."""
    return f"code/{hashlib.sha256(code_archive()).hexdigest()}/sourcedir.tar.gz"


def job_env(asked: SageMakerOptions, mailbox: dict[str, str]) -> dict[str, str]:
    """Return the container's environment, without values of --env: the agents pass these to the ranks."""
    env = {name: value for name, value in mailbox.items() if name != "JUPYTER_DIST_MAILBOX_NODE"}
    env["JUPYTER_DIST_MAILBOX_ECHO"] = "1"
    if asked.checkpoint_s3:
        env["JUPYTER_DIST_CHECKPOINTS"] = asked.checkpoint_local_path or CHECKPOINTS
    return env


def request_of(
    job: Job, name: str, asked: SageMakerOptions, region: str, mailbox: dict[str, str]
) -> dict[str, Any]:
    """Return the CreateTrainingJob request. `mailbox`: the mailbox's variables for a host's program. Pure."""
    sent = Asked(
        name,
        job.world_size,
        region,
        platform_entrypoint.PROGRAM,
        f"{mailbox_of(asked, region)}/{code_name()}",
        job_env(asked, mailbox),
        job.metrics,
        entry_name(asked, job.id),
        trial_name(asked) if asked.experiment else None,
    )
    return training_request(asked, sent)


def tuning_of(
    search: Search, trial: Job, name: str, asked: SageMakerOptions, region: str, mailbox: dict[str, str]
) -> dict[str, Any]:
    """Return the request of the tuning job of that name, with trials like this one. Pure."""
    # Each training job has its own folder in the mailbox, with the job's name.
    env = job_env(asked, {**mailbox, "JUPYTER_DIST_MAILBOX_RUN": "$TRAINING_JOB_NAME"})
    code = f"{mailbox_of(asked, region)}/{code_name()}"
    sent = Asked(name, trial.world_size, region, platform_entrypoint.PROGRAM, code, env, trial.metrics)
    return tuning_request(search, asked, sent)


class SageMakerClient:
    """The `PlatformClient` of one run."""

    look_every_s = 3.0
    why_s = 20.0

    def __init__(
        self, account: AwsAccount, asked: SageMakerOptions, run: str, adopted: str | None = None
    ) -> None:
        """`adopted`: the training job, if a tuning job has started it."""
        self._account, self._asked, self._run = account, asked, run
        self._adopted = adopted
        self.settings = asked.agent_settings()
        self.end_s = _MPI_END_S if asked.by_mpi else _END_S
        # Under mpirun, Horovod uses MPI.
        self.wanted = RankEnvironmentOptions(horovod=not asked.by_mpi, ps=asked.servers)

    def mailbox(self, folder: RunFolder) -> Mailbox:
        if self._adopted is not None:
            take_key(folder)
        return Mailbox(
            mailbox_of(self._asked, self._account.region),
            folder,
            # Instances may take any time to start: SageMaker reports what happens to the job.
            opening_s=math.inf,
            store=self.store,
            run=self._adopted,
        )

    def store(self) -> BucketStore:
        """Return the mailbox's store, as this machine uses it."""
        asking = functools.partial(self._account.asking, service="s3")
        return BucketStore(asking, mailbox_of(self._asked, self._account.region))

    def hosts(self, job: Job, seen: TrainingJob) -> Sequence[Mapping[str, Any]]:
        return self._asked.host_list(job.world_size)

    def submit(self, job: Job, attempt: int, mailbox: Mailbox, before: TrainingJob | None) -> TrainingJob:
        if self._adopted is not None:
            begin_entry(self._account, self._asked, job)
            return look_at(self._account, self._adopted)
        _, env = mailbox.host_program(None)
        self.upload_code(mailbox)
        leave_files(mailbox)
        begin_entry(self._account, self._asked, job)
        *exact, own = job_names(self._asked, job.id, attempt)
        for name in (*exact, own):
            request = request_of(job, name, self._asked, self._account.region, env)
            try:
                with self._account.asking("start a training job") as client:
                    client.create_training_job(**request)
            except InUse:
                if name != own and not self._is_own(name):
                    print(f"the account has another training job {name}, so this one is {own}", flush=True)
                    continue
            break
        return look_at(self._account, name)

    def _is_own(self, name: str) -> bool:
        """Return whether a job that has the exact name is this run's. Another run may have taken the name."""
        with contextlib.suppress(NotThere):
            env = describe(self._account, name).get("Environment") or {}
            return env.get("JUPYTER_DIST_MAILBOX_RUN") == self._run
        return False

    def tuning(self, search: Search, trial: Job, name: str, mailbox: Mailbox) -> dict[str, Any]:
        """Return the request of the tuning job of that name, with trials like this one."""
        _, env = mailbox.host_program(None)
        return tuning_of(search, trial, name, self._asked, self._account.region, env)

    def upload_code(self, mailbox: Mailbox) -> None:
        """Upload the containers' code to S3. Raises DistError."""
        self._have_bucket()
        # The mailbox's own store would not name the missing permission if S3 refuses.
        with self._account.asking(f"write to {mailbox.url}", "s3") as s3:
            bucket, _, prefix = mailbox.url.removeprefix("s3://").partition("/")
            key = "/".join(filter(None, (prefix, code_name())))
            s3.put_object(Bucket=bucket, Key=key, Body=code_archive())

    def _have_bucket(self) -> None:
        """Create the account's SageMaker bucket if it does not exist, as the SDK does."""
        asked, region = self._asked, self._account.region
        assert asked.role is not None
        if asked.code_location is not None:
            return
        bucket = default_bucket(asked.role, region)
        try:
            with self._account.asking(f"look for the bucket {bucket!r}", "s3") as s3:
                s3.head_bucket(Bucket=bucket)
        except NotThere:
            where = (
                {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
            )
            # Another run of the user may make it at the same time.
            with contextlib.suppress(InUse), self._account.asking(f"make the bucket {bucket!r}", "s3") as s3:
                s3.create_bucket(Bucket=bucket, **where)

    def find(self, job: Job, attempt: int) -> TrainingJob | None:
        names = self.names(range(attempt, -1, -1))
        seen = first_active(names, functools.partial(look_at, self._account))
        if seen is not None and self._adopted is not None:  # nobody submits it
            begin_entry(self._account, self._asked, job)
        return seen

    def look(self, seen: TrainingJob) -> TrainingJob:
        return look_again(self._account, seen)

    def away(self, first: TrainingJob, seen: TrainingJob) -> str | None:
        return seen.lost_since(first)

    def so_far(self, seen: TrainingJob) -> str | None:
        return so_far(seen, time.time()) if seen.secondary == "Training" else None

    def names(self, attempts: Iterable[int]) -> list[str]:
        """Return the names of these attempts' jobs. Blocks if --job-name is used."""
        if self._adopted is not None:
            return [self._adopted]
        found = [job_names(self._asked, self._run, number) for number in attempts]
        return [own for *exact, own in found for own in (*filter(self._is_own, exact), own)]

    def tell_all(self, seen: TrainingJob) -> None:
        pass  # the experiment gets the metrics at the end

    def end(self, seen: TrainingJob, folder: RunFolder, *, wait_s: float) -> str | None:
        try:
            found = end_job(self._account, seen.name, wait_s=wait_s)
        except NotThere:
            return None
        entry = end_entry(self._account, self._asked, reader.job(folder), folder, found.model)
        return "; ".join(filter(None, (bill(found), entry)))

    def how_to_stop(self, seen: TrainingJob) -> str:
        profile = [] if self._asked.profile is None else ["--profile", self._asked.profile]
        named = ["--training-job-name", seen.name, "--region", self._account.region, *profile]
        return shlex.join(["aws", "sagemaker", "stop-training-job", *named])

    def tidy(self, seen: TrainingJob | None = None) -> None:
        try:
            store = self.store()
            store.remove(store.names(f"{self._adopted or self._run}/"))
        except (DistError, OSError) as error:
            print(f"what the run has left in S3 stays there: {error}", flush=True)

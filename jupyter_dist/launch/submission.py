"""Submission of a run: writes its folder and starts its supervisor, warm or cold, all or nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import backends, folder
from ..capture.payload_builder import Payload
from ..errors import DistError, LaunchError
from ..folder import RunFolder
from ..job import Job, State
from ..options import RunOptions
from ..record import reader, run_labels
from ..search.spec import Search
from ..worker import keras
from ..worker.file_locks import locked
from ..worker.session import place as session_place
from . import template
from .session_link import Delivery

__all__ = ["Request", "dry_run", "launch", "launch_watch", "remove_on_failure", "resume", "start_supervisor"]

_RESUME_LIMIT_S = 15.0


@dataclass(frozen=True)
class Request:
    """The user's request for a run, after all checks. `options` is the backend's options model as JSON."""

    backend: str
    world_size: int
    source: str
    label: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    run: RunOptions = field(default_factory=RunOptions)
    """The options of all backends. `_job` copies those that a supervisor needs."""
    notebook: str | None = None
    line: str | None = None
    """For a cell: the flags as the user typed them, without possible secrets."""
    cluster: str | None = None
    """The saved cluster that the user chose."""
    purpose: Mapping[str, Any] | None = None
    session: Mapping[str, Any] | None = None
    """For a cell of a session (`Job.session`)."""
    search: Search | None = None
    """For a tuning run: its search. The other fields are then those of each trial."""


def dry_run(request: Request) -> dict[str, Any]:
    """Return the request that would start, as JSON. Creates nothing."""
    job = _job(request, "dry-run", payload=None)
    return dict(backends.load(job.backend).request(job))


def launch(
    request: Request,
    payload: Payload,
    delivery: Delivery | None = None,
) -> RunFolder:
    """Start a run. Returns as soon as its supervisor is starting.

    `delivery`: to the session whose cell this is. By default a new supervisor starts.

    Raises LaunchError if the disk is full or read-only, or if the supervisor does not start. The folder is
    removed then, and nothing is left running. An interrupt also removes the folder, unless the supervisor may
    have started. Then the run stays, and ends.
    """
    if delivery is None:
        place = _create(folder.runs_root(), request, payload, None)
    else:
        session = delivery.session.path
        of_all_ranks = request.session is not None and request.session["ranks"] is None
        prepared = session / session_place.NEXT if of_all_ranks else None
        place = _create(session_place.runs_root(session), request, payload, prepared)
    # If this process is killed while it writes, the lock is free, and `clean` removes the folder.
    with remove_on_failure(place, BaseException), locked(place.resume_lock):
        job = _write(place, request, payload)
        if delivery is None:
            # The job is written last, because a folder with a job counts as a run.
            folder.write_json(place.job, job)
    try:
        with remove_on_failure(place, DistError):
            if delivery is not None:
                delivery.send(place, job)
                return place
            # A tuning run's environment also has the secrets of its trials.
            inherited = backends.extensions_of(backends.declared(request.backend)).inherited
            secret = {} if inherited is None else inherited(request.options)
            env = {**os.environ, **request.run.env, **secret}
            why_cold = _start_warm(place, request, payload, env)
            if why_cold is not None:
                place.still_pending()
                _start_cold(place, env, why_cold)
    except LaunchError:
        raise
    except BaseException:
        # An interrupt. A kill would end the ranks of a session, with all that they have.
        place.request("kill" if delivery is None else "interrupt")
        raise
    return place


@contextlib.contextmanager
def remove_on_failure(
    place: RunFolder, also: type[BaseException] | tuple[type[BaseException], ...] = LaunchError
) -> Iterator[None]:
    """Remove a run's folder if a write or the supervisor's start fails in here. Raises LaunchError.

    `also`: the folder is also removed after these exceptions.
    """
    try:
        yield
    except OSError as error:
        shutil.rmtree(place.path, ignore_errors=True)
        raise folder.unwritable(place.path, error) from error
    except also:
        shutil.rmtree(place.path, ignore_errors=True)
        raise


def launch_watch(job: Job) -> RunFolder:
    """Start a run that only shows a job of somebody else. Returns as soon as its supervisor is starting.

    Raises LaunchError. Nothing is left then.
    """
    place = folder.create(folder.runs_root(), job.id, job.world_size)
    with remove_on_failure(place, BaseException):
        folder.write_json(place.job, job.to_json())
    with remove_on_failure(place):
        _start_cold(place, os.environ, "it shows what runs elsewhere")
    return place


def resume(place: RunFolder) -> bool:
    """Start a new supervisor for an UNWATCHED run. Returns whether it now has one. Raises LaunchError.

    A run is UNWATCHED if its supervisor died while its ranks ran, or during their submission. For any other
    run this returns False and changes nothing. The new supervisor uses the job's own Python, because the
    backend and its client library are installed there. Blocks until the supervisor has resumed the run.
    """
    status = reader.status(place)
    if status.state is not State.UNWATCHED:
        return False
    python = reader.job(place).python
    if not os.access(python, os.X_OK):
        raise LaunchError(
            f"Run {place.id} cannot get a new supervisor, because its Python {python!r} no longer "
            "exists. Its ranks may still be running. Restore that environment, then run `%dist "
            f"attach {place.id}`."
        )
    _start_cold(place, os.environ, "--resume", python)
    deadline = time.monotonic() + _RESUME_LIMIT_S
    while reader.status(place).state is State.UNWATCHED:
        if time.monotonic() > deadline:
            raise LaunchError(
                f"The new supervisor of run {place.id} did not start. See its log "
                f"{str(place.supervisor_log)!r}"
            )
        time.sleep(0.02)
    return True


def _create(root: Path, request: Request, payload: Payload, prepared: Path | None) -> RunFolder:
    """Create the run's folder. `prepared`: a folder of `folder.prepare`, which is moved if it exists."""
    existing = next(filter(os.path.exists, itertools.chain([root], root.parents)), root)
    free = shutil.disk_usage(existing).free
    # In addition to the payload, a run needs space for its state and for each rank's first lines.
    needed = payload.nbytes + 64_000 + 32_000 * request.world_size
    if needed > free:
        raise LaunchError(
            f"the run needs {needed / 1e6:,.1f} MB, but only {free / 1e6:,.1f} MB are free in "
            f"{str(root)!r}. Free some space or point JUPYTER_DIST_RUNS elsewhere. Nothing was started."
        )
    for _ in range(20):
        run_id = folder.new_id()
        path = root / run_id
        if not os.path.exists(path):
            if prepared is not None:
                with contextlib.suppress(OSError):
                    os.utime(prepared)  # `clean` removes an old folder without a job
                    os.rename(prepared, path)
                    return folder.RunFolder(path)
            return folder.create(root, run_id, 0 if request.search else request.world_size)
    raise LaunchError(f"no free run id in {str(root)!r}; try again.")


def _write(place: RunFolder, request: Request, payload: Payload) -> dict[str, Any]:
    """Write the files of a run without its job, which is returned as JSON."""
    run = request.run
    no_hint = run.no_hint.split(",") if run.no_hint else []
    header = {**payload.header, "no_hint": no_hint, "pdb": run.pdb, "debugpy": run.debugpy}
    dataclasses.replace(payload, header=header).write(place.payload)
    for shipped in payload.modules:
        target = place.modules / shipped.path
        folder.make_private(target.parent)
        folder.write_bytes(target, shipped.data)
    if run.name or run.run_tags or run.note:
        run_labels.change(place, run.name, run.run_tags, run.note)
    return _job(request, place.id, payload).to_json()


def _job(request: Request, run_id: str, payload: Payload | None) -> Job:
    job = _job_of_ranks(request, run_id, payload)
    if request.search is None:
        return job
    return dataclasses.replace(
        job,
        backend=backends.TRIALS,
        options={"backend": job.backend, "options": job.options},
        tuning={
            "search": request.search.to_json(),
            "trial": dataclasses.replace(job, timeout_s=None).to_json(),
            "imports": [] if payload is None else list(payload.imports),
            "cold": request.run.cold,
        },
        world_size=0,
        max_restarts=0,
        stall_timeout_s=None,
        metrics={},
    )


def _job_of_ranks(request: Request, run_id: str, payload: Payload | None) -> Job:
    return Job(
        id=run_id,
        backend=request.backend,
        world_size=request.world_size,
        created=time.time(),
        cwd=os.getcwd(),
        python=sys.executable,
        source=request.source,
        notebook=request.notebook,
        label=request.label,
        line=request.line,
        parameters={} if payload is None else _without_env(payload.parameters, request.run.env),
        cluster=request.cluster,
        options=request.options,
        env_names=tuple(request.run.env),
        metrics=request.run.metric,
        max_restarts=request.run.max_restarts,
        timeout_s=request.run.timeout,
        stop_grace_s=request.run.stop_grace,
        stall_timeout_s=request.run.stall_timeout or None,
        payload_bytes=0 if payload is None else payload.nbytes,
        kept_displays=request.run.kept_displays,
        notes=() if payload is None else payload.notes,
        purpose=request.purpose,
        session=request.session,
    )


def _without_env(parameters: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters without values of --env, because no file of a run may contain such a value."""
    secret = [value for value in env.values() if len(value) >= 6]
    return {name: value for name, value in parameters.items() if not any(one in str(value) for one in secret)}


def _start_warm(place: RunFolder, request: Request, payload: Payload, env: Mapping[str, str]) -> str | None:
    """Start a run warm. Returns None if it has started, else why it must start cold."""
    if request.run.cold:
        return "--cold"
    if not template.wanted():
        return "not in a notebook"
    backend = backends.TRIALS if request.search else request.backend
    return _fork(place, backend, request.world_size, payload.header, payload.imports, env)


def start_supervisor(
    place: RunFolder, job: Job, header: Mapping[str, Any], imports: Sequence[str], why_cold: str | None
) -> None:
    """Start the supervisor of a run whose folder is complete, with this process's environment.

    The start is warm if the backend supports it, from this process's template, which starts if necessary.
    Otherwise the start is cold. Raises LaunchError.

    `imports`: installed modules that the run's code uses. `why_cold`: start cold, for this reason.
    """
    if why_cold is None:
        why_cold = _fork(place, job.backend, job.world_size, header, imports, os.environ)
    if why_cold is not None:
        place.still_pending()
        _start_cold(place, os.environ, why_cold)


def _fork(
    place: RunFolder,
    backend: str,
    world_size: int,
    header: Mapping[str, Any],
    imports: Sequence[str],
    env: Mapping[str, str],
) -> str | None:
    """Let the template fork the supervisor. Returns None, or why the run must start cold."""
    able = backends.declared(backend).capabilities
    if not able.warm:
        # Only the supervisor is a fork. The fork saves the imports of the supervisor and the client library.
        why_cold = f"backend {backend!r} starts its own processes"
        return template.launch(place, env, (), why_cold=why_cold, client=able.client)
    why = header["legacy_keras"] or (world_size > 1 and header["legacy_keras_if_several"])
    if why and keras.swaps(why, env):
        return "the cell needs tf_keras in place of keras, which is arranged before any import"
    return template.launch(place, env, imports, ranks=world_size)


def _start_cold(place: RunFolder, env: Mapping[str, str], why: str, python: str | None = None) -> None:
    from ..processes.rank_processes import PACKAGE_ROOT

    done = subprocess.run(
        [python or sys.executable, "-m", "jupyter_dist.supervise.supervisor", str(place.path), why],
        env=env,
        cwd=PACKAGE_ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode:
        raise LaunchError(
            f"the supervisor did not start:\n{done.stderr.decode(errors='replace').strip()[-2000:]}"
        )

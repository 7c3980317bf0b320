"""Write a run's folder and start its supervisor, warm or cold; all or nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import backends, folder
from ..capture.capturing import Payload
from ..errors import LaunchError
from ..folder import RunFolder
from ..job import Job, State
from ..options import RunOptions
from ..record import reader
from ..worker import keras3
from . import template

__all__ = ["Request", "dry_run", "launch", "resume"]

_RESUME_LIMIT_S = 15.0


@dataclass(frozen=True)
class Request:
    """What the user asked for, checked. `options` is the backend's options model as JSON."""

    backend: str
    world_size: int
    source: str
    label: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    run: RunOptions = field(default_factory=RunOptions)
    """What holds for every backend. Which of it a supervisor needs is told in `_job`."""
    notebook: str | None = None


def dry_run(request: Request) -> dict[str, Any]:
    """What would be started, as JSON. Creates nothing."""
    job = _job(request, "dry-run", payload=None)
    return dict(backends.load(request.backend).request(job))


def launch(request: Request, payload: Payload) -> RunFolder:
    """Start a run; returns as soon as its supervisor is on its way.

    Raises LaunchError (a disk that is full or read-only, a supervisor that does not start)
    with the folder removed and nothing left running.
    """
    root = folder.runs_root()
    place = _create(root, request, payload)
    try:
        _write(place, request, payload)
        secret = backends.inherited(request.backend, request.options)
        env = {**os.environ, **request.run.env, **secret}
        why_cold = _start_warm(place, request, payload, env)
        if why_cold is not None:
            place.still_pending()
            _start_cold(place, env, why_cold)
    except OSError as error:
        shutil.rmtree(place.path, ignore_errors=True)
        raise folder.unwritable(place.path, error) from error
    except LaunchError:
        shutil.rmtree(place.path, ignore_errors=True)
        raise
    except BaseException:
        place.request("kill")  # interrupted: a supervisor may just have started
        raise
    return place


def resume(place: RunFolder) -> bool:
    """Start a new supervisor for a run whose own has died while the ranks go on, or while it submitted them;
    returns whether there is such a one by now. False for every other run, which is left as it is.

    The new supervisor is started with the job's own Python, whichever this is: the backend and its client are
    installed there. Raises LaunchError.
    """
    status = reader.status(place)
    if status.state is not State.UNWATCHED:
        return False
    python = reader.job(place).python
    if not os.access(python, os.X_OK):
        raise LaunchError(
            f"run {place.id} cannot be taken on: its Python is gone, {python!r}. Its ranks may go on; "
            "put that environment back where it was, and attach to the run again."
        )
    _start_cold(place, os.environ, "--resume", python)
    deadline = time.monotonic() + _RESUME_LIMIT_S
    while reader.status(place).state is State.UNWATCHED:
        if time.monotonic() > deadline:
            raise LaunchError(f"no new supervisor for run {place.id}: see {str(place.supervisor_log)!r}")
        time.sleep(0.02)
    return True


def _create(root: Any, request: Request, payload: Payload) -> RunFolder:
    existing = next((path for path in (root, *root.parents) if path.exists()), root)
    free = shutil.disk_usage(existing).free
    # Beside the payload, what a run cannot do without: its state, each rank's first lines.
    needed = payload.nbytes + 64_000 + 32_000 * request.world_size
    if needed > free:
        raise LaunchError(
            f"the run needs {needed / 1e6:,.1f} MB, but only {free / 1e6:,.1f} MB are free in "
            f"{str(root)!r}. Free some space or point JUPYTER_DIST_RUNS elsewhere. Nothing was started."
        )
    for _ in range(20):
        run_id = folder.new_id()
        if not (root / run_id).exists():
            return folder.create(root, run_id, request.world_size)
    raise LaunchError(f"no free run id in {str(root)!r}; try again.")


def _write(place: RunFolder, request: Request, payload: Payload) -> None:
    payload.write(place.payload)
    for shipped in payload.modules:
        target = place.modules / shipped.path
        folder.make_private(target.parent)
        folder.write_bytes(target, shipped.data)
    # Last: a folder is a run once it has a job.
    folder.write_json(place.job, _job(request, place.id, payload).to_json())


def _job(request: Request, run_id: str, payload: Payload | None) -> Job:
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
        options=request.options,
        env_names=tuple(request.run.env),
        metrics=request.run.metric,
        max_restarts=request.run.max_restarts,
        timeout_s=request.run.timeout,
        stall_timeout_s=request.run.stall_timeout or None,
        payload_bytes=0 if payload is None else payload.nbytes,
        notes=() if payload is None else payload.notes,
    )


def _start_warm(place: RunFolder, request: Request, payload: Payload, env: Mapping[str, str]) -> str | None:
    """Returns None when the run has started, else why it has to start cold."""
    if request.run.cold:
        return "--cold"
    if not template.wanted():
        return "not in a notebook"
    if not backends.declared(request.backend).capabilities.warm:
        # The supervisor alone: it saves its own imports.
        why_cold = f"backend {request.backend!r} starts its own processes"
        return template.launch(place, env, (), why_cold=why_cold)
    several = request.world_size > 1
    why = payload.header["legacy_keras"] or (several and payload.header["legacy_keras_if_several"])
    if why and keras3.swaps(why, env):
        return "the cell needs tf_keras in place of keras, which is arranged before any import"
    return template.launch(place, env, payload.imports)


def _start_cold(place: RunFolder, env: Mapping[str, str], why: str, python: str | None = None) -> None:
    from ..backends.ranks.processes import PACKAGE_ROOT

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

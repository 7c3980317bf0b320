"""The files in a run's folder. Only this module spells their names.

    RUNS/ID/job.json            the job, written once, before anything starts
    RUNS/ID/payload.pkl         header pickle, then the captured names (payload.py)
    RUNS/ID/payload.buffers     out-of-band buffers, mapped by the ranks
    RUNS/ID/modules/            the notebook's own .py files, first on the ranks' sys.path
    RUNS/ID/about.json          name, tags and note, by whoever names the run (record/run_labels.py)
    RUNS/ID/.about.lock         locked while somebody changes about.json
    RUNS/ID/environment.json    packages and git commit at the start (record/provenance.py)
    RUNS/ID/state.json          the state of the run, replaced atomically by the supervisor
    RUNS/ID/moment.idx          when new lines of the ranks were last noted, for all ranks (time_index.py)
    RUNS/ID/supervisor.log
    RUNS/ID/trials.jsonl        the trials of a tuning run (record/trials.py); trial N is run ID-tN
    RUNS/ID/requests/NAME       one file per request: stop, interrupt, kill, stacks; for ranks: trace, and
                                answer-R to the rank R that waits for its user (debugger/channel.py)
    RUNS/ID/checkpoints/        dist.checkpoint_dir(), shared by all attempts
    RUNS/ID/model/              the files of dist.model_dir(), if the platform keeps them; fetched from there
    RUNS/ID/.spare              reserved space for the last state, if the disk fills up meanwhile
    RUNS/ID/.key                the key that seals what hosts send through a store; made when it is needed
    RUNS/ID/resume.lock         locked by the run's launch, then by its only supervisor; resume.lock.N is the
                                same on a file system without locks (file_locks.py)
    RUNS/ID/files/              files for the user, such as a timeline of a launcher, or a trace of all ranks
    RUNS/ID/attempts/A/launcher.log, launcher-HOST.log
    RUNS/ID/attempts/A/curves.json   a digest of the ranks' metrics (record/metrics/digest_file.py)
    RUNS/ID/attempts/A/ranks/R/ output.log  times.idx  events.jsonl  media.bin  result.pkl  result.buffers
                                error.json  exit.json  stacks.txt  meeting.jsonl  usage.jsonl
                                sigterm.handler  trace.json.gz  prompts.jsonl
                                .main/          for processes that the rank spawns (rank/main_snapshot.py)

This module is in the worker, because ranks and agents write these files. Their machines may have no other
part of the package. On the driver, `folder.py` builds paths from the names.
"""

from __future__ import annotations

import os
import re

__all__ = ["answer", "attempt_path", "hidden", "launcher_log", "launcher_of", "rank_path"]

JOB = "job.json"
PAYLOAD = "payload.pkl"
MODULES = "modules"
ABOUT = "about.json"
ABOUT_LOCK = ".about.lock"
ENVIRONMENT = "environment.json"
STATE = "state.json"
MOMENT = "moment.idx"
SUPERVISOR_LOG = "supervisor.log"
REQUESTS = "requests"
CHECKPOINTS = "checkpoints"
MODEL = "model"
SPARE = ".spare"
KEY = ".key"
RESUME_LOCK = "resume.lock"
TRIALS = "trials.jsonl"
FILES = "files"
ATTEMPTS = "attempts"
RANKS = "ranks"
CURVES = "curves.json"
"""Per attempt with many metrics: the metrics that a page about the run shows."""

OUTPUT = "output.log"
"""Per rank: its standard output and error."""
TIMES = "times.idx"
"""Per rank: when each part of the output was written; see time_index.py."""
EVENTS = "events.jsonl"
"""Per rank: metrics, progress, notes, start and result, one line each (events.py)."""
MEDIA = "media.bin"
"""Per rank: the bytes of displayed and logged media. Events refer to them (media.py)."""
RESULT = "result.pkl"
RESULT_BUFFERS = "result.buffers"
ERROR = "error.json"
"""Per rank that an exception has ended: the traceback, for the views."""
EXIT = "exit.json"
"""Per rank that a launcher has started: how its process ended. The process beside it writes the file."""
STACKS = "stacks.txt"
"""Per rank: its stacks at each request."""
STACKS_END = "The rank was asked to end.\n"
"""A line in the stacks. The stacks below it do not show where the cell was."""

SIGTERM_HANDLER = "sigterm.handler"
"""Per rank: exists if the rank has set its own handler for SIGTERM, so it wants to save at a stop."""
USAGE = "usage.jsonl"
"""Per rank: its resource usage. One process per host notes it for all ranks there (usage.py)."""

TRACE_REQUEST = "trace"
"""In the requests: what a user wants to see of the training steps (steps/trace.py). Hosts have a copy."""
TRACE = "trace.json.gz"
"""Per rank: a trace of its training steps by torch's profiler, whole or not at all."""

PROMPTS = "prompts.jsonl"
"""Per rank that has asked its user: prompts, and what the debugger has printed (debugger/channel.py)."""
ANSWER = "answer-"
"""In the requests: the beginning of the name of an answer to a rank. Hosts have a copy."""

MEETING = "meeting.jsonl"
"""Per rank of an elastic run without a launcher: its requests for a rank number."""
NOTICE = ".meeting.json"
"""In an attempt's folder on a host: the notice to the ranks of such a run."""

MAIN = ".main"
"""Per rank: the snapshot of `__main__` for processes that it spawns.

Hidden, and removed at the rank's end.
"""

BUFFERS = ".buffers"
"""The suffix of the file beside a pickle that contains its out-of-band buffers."""

_LAUNCHER_LOG = re.compile(r"(launcher(?:-[A-Za-z0-9][A-Za-z0-9._-]{0,200})?)\.log")


def attempt_path(run: str | os.PathLike[str], attempt: int | str) -> str:
    """Return the folder of one attempt in the run folder `run`."""
    return os.path.join(run, ATTEMPTS, str(attempt))


def rank_path(run: str | os.PathLike[str], attempt: int | str, rank: int | str) -> str:
    """Return the folder of one rank in one attempt."""
    return os.path.join(run, ATTEMPTS, str(attempt), RANKS, str(rank))


def answer(rank: int | str) -> str:
    """Return the name of the request that answers a rank."""
    return f"{ANSWER}{rank}"


def hidden(name: str) -> str:
    """Return the name of a file until it is complete, or while it only reserves space.

    Readers skip such files.
    """
    return f".{name}"


def launcher_log(host: str | None = None) -> str:
    """Return the name of a launcher's log: of the only launcher, or of the launcher on `host`."""
    if host is None:
        return "launcher.log"
    return f"launcher-{re.sub('[^A-Za-z0-9_.-]', '-', host).strip('-')}.log"


def launcher_of(name: str) -> str | None:
    """Return the launcher of the log file `name`: `launcher`, `launcher-HOST`, or None for another file."""
    found = _LAUNCHER_LOG.fullmatch(name)
    return None if found is None else found[1]

"""What a run's folder holds and how each file in it is called: the one place that spells these names.

    RUNS/ID/job.json            the job, written once, before anything starts
    RUNS/ID/payload.pkl         header pickle, then the captured names (payload.py)
    RUNS/ID/payload.buffers     out-of-band buffers, mapped by the ranks
    RUNS/ID/modules/            the notebook's own .py files, first on the ranks' sys.path
    RUNS/ID/about.json          name, tags and note, by whoever names the run (record/run_labels.py)
    RUNS/ID/environment.json    packages and git commit at the start (record/provenance.py)
    RUNS/ID/state.json          how the run stands, replaced atomically by the supervisor
    RUNS/ID/moment.idx          when the ranks' new lines were noted last, for all of them (time_index.py)
    RUNS/ID/supervisor.log
    RUNS/ID/trials.jsonl        of a tuning run: what it has tried (record/trials.py); trial N is run ID-tN
    RUNS/ID/requests/NAME       one empty file per request to the supervisor: stop, kill, stacks
    RUNS/ID/checkpoints/        dist.checkpoint_dir(), shared by all attempts
    RUNS/ID/model/              what was in dist.model_dir(), where the platform keeps it and it was fetched
    RUNS/ID/.spare              room for the last state where the disk fills up meanwhile
    RUNS/ID/.key                the key that seals what hosts send through a store; made when it is needed
    RUNS/ID/resume.lock         held by the run's supervisor: there is one at a time
    RUNS/ID/files/              what a launcher has written for the user, such as a timeline
    RUNS/ID/attempts/A/launcher.log, launcher-HOST.log
    RUNS/ID/attempts/A/curves.json   a digest of the ranks' metrics (record/metrics/digest_file.py)
    RUNS/ID/attempts/A/ranks/R/ output.log  times.idx  events.jsonl  media.bin  result.pkl  result.buffers
                                error.json  exit.json  stacks.txt  meeting.jsonl  usage.jsonl
                                .main/          for processes that the rank spawns (rank/main_snapshot.py)

It lies with the worker because ranks and agents write these files on machines where nothing else of the
package is; on the driver's side `folder.py` makes paths of the names.
"""

from __future__ import annotations

import os
import re

__all__ = ["attempt_path", "hidden", "launcher_log", "launcher_of", "rank_path"]

JOB = "job.json"
PAYLOAD = "payload.pkl"
MODULES = "modules"
ABOUT = "about.json"
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
"""Of each attempt with many metrics: what a page about the run shows of them."""

OUTPUT = "output.log"
"""Of each rank: what it has written to its standard output and error."""
TIMES = "times.idx"
"""Of each rank: when which part of the output was there; see time_index.py."""
EVENTS = "events.jsonl"
"""Of each rank: metrics, progress, notes, start and result, a line each (events.py)."""
MEDIA = "media.bin"
"""Of each rank: the bytes of what it shows and logs besides text and numbers, named by events (media.py)."""
RESULT = "result.pkl"
RESULT_BUFFERS = "result.buffers"
ERROR = "error.json"
"""Of a rank that an exception has ended: the traceback, for the views."""
EXIT = "exit.json"
"""Of a rank that a launcher has started: how its process ended, told by the process beside it."""
STACKS = "stacks.txt"
"""Of each rank: where it was in its code whenever it was asked."""

USAGE = "usage.jsonl"
"""Of each rank: what it takes of its host, noted by one process there for all of them (usage.py)."""

MEETING = "meeting.jsonl"
"""Of each rank of an elastic run without a launcher: where it asked for its place among the others."""
NOTICE = ".meeting.json"
"""In an attempt's folder on a host: what the ranks of such a run are told there."""

MAIN = ".main"
"""Of each rank: what processes that it spawns find in `__main__`; hidden, and removed at the rank's end."""

BUFFERS = ".buffers"
"""Ends the name of the file beside a pickle that holds its out-of-band buffers."""

_LAUNCHER_LOG = re.compile(r"(launcher(?:-[A-Za-z0-9][A-Za-z0-9._-]{0,200})?)\.log")


def attempt_path(run: str | os.PathLike[str], attempt: int | str) -> str:
    """The folder of one attempt in the run folder `run`."""
    return os.path.join(run, ATTEMPTS, str(attempt))


def rank_path(run: str | os.PathLike[str], attempt: int | str, rank: int | str) -> str:
    """The folder of one rank in one attempt."""
    return os.path.join(run, ATTEMPTS, str(attempt), RANKS, str(rank))


def hidden(name: str) -> str:
    """The name that a file has until it is whole, or while only its room is taken. Readers pass it over."""
    return f".{name}"


def launcher_log(host: str | None = None) -> str:
    """The name of a launcher's log: of the only launcher, or of the one on a host."""
    if host is None:
        return "launcher.log"
    return f"launcher-{re.sub('[^A-Za-z0-9_.-]', '-', host).strip('-')}.log"


def launcher_of(name: str) -> str | None:
    """Which launcher writes the file of that name: `launcher`, `launcher-HOST`, or None for another file."""
    found = _LAUNCHER_LOG.fullmatch(name)
    return None if found is None else found[1]

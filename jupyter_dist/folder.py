"""The run folder: paths, ids, and atomic writes, of which a reader sees all or nothing.

worker/layout.py lists the files in the folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from .errors import LaunchError, RunNotFound, UntrustedFile
from .worker import layout, listing

__all__ = [
    "RankFolder",
    "RunFolder",
    "age_key",
    "check_owner",
    "create",
    "find",
    "find_exact",
    "make_attempt",
    "make_private",
    "new_id",
    "open_private",
    "prepare",
    "runs",
    "runs_root",
    "trial_id",
    "trials_of",
    "unfinished",
    "unwritable",
    "write_bytes",
    "write_json",
]

_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4,8}")
_TRIAL_ID = re.compile(rf"({_ID.pattern})-t([0-9]{{1,6}})")
_UTC_LENGTH = len("20261120-113455-3f2a91c4")
REQUESTS = ("stop", "interrupt", "kill", "stacks", layout.TRACE_REQUEST)


def runs_root() -> Path:
    """Return the folder of all runs: `$JUPYTER_DIST_RUNS`, else a folder in Jupyter's data directory."""
    override = os.environ.get("JUPYTER_DIST_RUNS")
    if override:
        return Path(override)
    from jupyter_core.paths import jupyter_data_dir

    return Path(jupyter_data_dir()) / "jupyter-dist" / "runs"


def new_id() -> str:
    """Return a new run id that sorts by time, such as `20261120-113455-3f2a91c4`.

    The parts are the date, the time, four digits of the second's fraction and four random digits. The time is
    in UTC, which has no change to summer time. Ids of an earlier version have fewer digits at their end, and
    the local time: see `runs`.
    """
    now = time.time()
    return f"{_moment(now)}{secrets.token_hex(2)}"


def trial_id(tuning_id: str, number: int) -> str:
    """Return the id of a tuning run's trial. It follows from the trial's number.

    A new supervisor of the tuning run thus finds the trial, even if the old one died while starting it.
    """
    return f"{tuning_id}-t{number}"


def _moment(when: float) -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(when))}-{int(when % 1 * 65536):04x}"


def _lazy(name: str) -> cached_property[Path]:
    # A run may have thousands of ranks, and a caller needs one or two files of each.
    return cached_property(lambda folder: folder.path / name)


class RankFolder:
    """The files of one rank in one attempt."""

    def __init__(self, path: Path) -> None:
        self.path = path

    output = _lazy(layout.OUTPUT)
    times = _lazy(layout.TIMES)
    events = _lazy(layout.EVENTS)
    media = _lazy(layout.MEDIA)
    result = _lazy(layout.RESULT)
    error = _lazy(layout.ERROR)
    exit = _lazy(layout.EXIT)
    stacks = _lazy(layout.STACKS)
    trace = _lazy(layout.TRACE)
    usage = _lazy(layout.USAGE)
    prompts = _lazy(layout.PROMPTS)
    sigterm_handler = _lazy(layout.SIGTERM_HANDLER)


class RunFolder:
    """The paths of one run's files. Creating the object does not touch the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name

    job = _lazy(layout.JOB)
    payload = _lazy(layout.PAYLOAD)
    modules = _lazy(layout.MODULES)
    about = _lazy(layout.ABOUT)
    about_lock = _lazy(layout.ABOUT_LOCK)
    environment = _lazy(layout.ENVIRONMENT)
    state = _lazy(layout.STATE)
    moment = _lazy(layout.MOMENT)
    supervisor_log = _lazy(layout.SUPERVISOR_LOG)
    resume_lock = _lazy(layout.RESUME_LOCK)
    trials = _lazy(layout.TRIALS)
    requests = _lazy(layout.REQUESTS)
    checkpoints = _lazy(layout.CHECKPOINTS)
    files = _lazy(layout.FILES)
    model = _lazy(layout.MODEL)
    spare = _lazy(layout.SPARE)

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    def forget_paths(self) -> None:
        """Free the paths, which are made again when they are needed: a notebook keeps all its runs."""
        for name in vars(self).keys() - {"path", "id"}:
            vars(self).pop(name, None)

    def attempt(self, attempt: int) -> Path:
        """Return the folder of an attempt, with the files of its ranks and launchers."""
        return Path(layout.attempt_path(self.path, attempt))

    def rank(self, attempt: int, rank: int | str) -> RankFolder:
        """Return the files of a rank. `rank` may be `*`, for a path in a message."""
        return RankFolder(Path(layout.rank_path(self.path, attempt, rank)))

    def launcher_logs(self, attempt: int) -> list[Path]:
        """Return the logs of an attempt's launchers, sorted by name. Most backends have no launchers."""
        place = self.attempt(attempt)
        return [place / name for name in sorted(listing.names(place)) if layout.launcher_of(name) is not None]

    def attempts(self) -> list[int]:
        """Return the attempts that were started, oldest first."""
        return listing.numbers(self.path / layout.ATTEMPTS)

    def ranks(self, attempt: int) -> list[int]:
        """Return the ranks that have a folder in an attempt."""
        return listing.numbers(self.attempt(attempt) / layout.RANKS)

    def still_pending(self) -> None:
        """Mark a run without a supervisor as just created, because another process is starting one."""
        with contextlib.suppress(OSError):  # the run may have been removed
            os.utime(self.job)

    def request(self, name: str, why: str = "") -> None:
        """Ask the supervisor for `stop`, `interrupt`, `kill` or `stacks`, or the ranks for `trace`.

        Repeatable. Returns at once. An answer to a waiting rank is a request, too (layout.answer).

        `why`: one line with the reason of the run's end, if the request is not the user's. For `trace`, it is
        what to trace (worker/steps/trace.py).
        """
        if name not in REQUESTS and not name.startswith(layout.ANSWER):
            raise ValueError(f"no such request: {name!r}")
        if why:
            write_bytes(self.requests / name, why.encode())  # atomic: file and reason together
            return
        fd = os.open(self.requests / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.utime(fd)
        finally:
            os.close(fd)


def make_private(path: Path) -> None:
    """Create a folder and its missing parents, each with mode 0700, independent of the umask."""
    try:
        try:
            os.mkdir(path, 0o700)
        except FileNotFoundError:
            make_private(path.parent)
            os.mkdir(path, 0o700)
    except FileExistsError:
        return
    os.chmod(path, 0o700)


def create(root: Path, run_id: str, world_size: int) -> RunFolder:
    """Create the folder of a new run.

    Raises LaunchError if the disk is full, read-only or not the user's.
    """
    folder = RunFolder(root / run_id)
    try:
        make_private(root)
        prepare(folder, world_size)
    except OSError as error:
        raise unwritable(folder.path, error) from error
    return folder


def prepare(folder: RunFolder, world_size: int) -> None:
    """Make the folders of a new run, or none of them. Raises OSError, also if the folder exists."""
    folder.path.mkdir(0o700)
    try:
        folder.path.chmod(0o700)
        make_private(folder.requests)
        make_attempt(folder, 0, world_size)
    except BaseException:
        shutil.rmtree(folder.path, ignore_errors=True)
        raise


def make_attempt(folder: RunFolder, attempt: int, world_size: int) -> None:
    if not world_size:
        return
    ranks = folder.rank(attempt, 0).path.parent
    for path in (ranks.parent.parent, ranks.parent, ranks):  # a search from below would fail three times
        make_private(path)
    for rank in range(world_size):
        make_private(folder.rank(attempt, rank).path)


def unwritable(path: Path, error: OSError) -> LaunchError:
    return LaunchError(
        f"cannot write the run folder {str(path)!r}: {error.strerror or error}. "
        "Free some space or point JUPYTER_DIST_RUNS at a folder you can write. Nothing was started."
    )


def open_private(path: Path, flags: int) -> int:
    """Open a file for writing with mode 0600, independent of the umask. Returns a descriptor."""
    fd = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.fchmod(fd, 0o600)
    return fd


def write_bytes(path: Path, data: bytes, *, prepared: bool = False) -> None:
    """Replace a file. Readers see the whole old or the whole new file. Does not sync it to the disk.

    `prepared`: write into the empty hidden file, if there is one. Only one process may do so. To make a file
    takes a multiple of the time of a write.
    """
    temporary, fd = path.with_name(layout.hidden(path.name)), None
    if prepared:
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(temporary, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    if fd is None:
        # Threads, processes and hosts may write at once, each into its own file. The last one wins.
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        fd = open_private(temporary, os.O_WRONLY | os.O_EXCL)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, data: Any, *, prepared: bool = False) -> None:
    write_bytes(path, json.dumps(data, ensure_ascii=True).encode(), prepared=prepared)


def check_owner(path: Path) -> None:
    """Check that nobody else owns a pickle or could have written it.

    Raises UntrustedFile or FileNotFoundError.
    """
    for place in (path, path.parent):
        info = place.lstat()
        if stat.S_ISLNK(info.st_mode):
            raise UntrustedFile(
                f"{str(place)!r} is a symbolic link. A run's own files are never links, so it was not loaded."
            )
        if info.st_uid != os.geteuid():
            raise UntrustedFile(
                f"{str(place)!r} belongs to user id {info.st_uid}, not to you ({os.geteuid()}). "
                "Loading it would run that user's code, so it was not loaded."
            )
        if info.st_mode & 0o022:
            raise UntrustedFile(
                f"{str(place)!r} can be written by others (mode {stat.S_IMODE(info.st_mode):04o}), so "
                f"it was not loaded. If you trust it, run `chmod go-w {str(place)!r}`"
            )


def runs(root: Path | None = None, *, trials: bool = False) -> Iterator[RunFolder]:
    """Yield every run on disk, newest first. `trials`: also yield the trials of tuning runs.

    The order is the order of creation, even if ids contain the time of another clock (`age_key`).
    """
    root = runs_root() if root is None else root
    names = listing.names(root)
    # The views call this every second for hundreds of runs, and pathlib would need seven times as long.
    own = [name for name in names if _ID.fullmatch(name) or (trials and _TRIAL_ID.fullmatch(name))]
    for name in sorted(own, key=lambda name: age_key(name, root), reverse=True):
        if os.path.isfile(f"{root}/{name}/{layout.JOB}"):
            yield _known(root, name)


def unfinished() -> list[RunFolder]:
    """Return the folders whose launch has not written the job. No supervisor has ever used them."""
    root = runs_root()
    made = [RunFolder(root / name) for name in listing.names(root) if _ID.fullmatch(name)]
    return [f for f in made if not f.job.exists() and not f.supervisor_log.exists()]


def trials_of(tuning: RunFolder) -> list[RunFolder]:
    """Return the trials of a tuning run, sorted by number; an empty list for any other run."""
    names = listing.names(tuning.path.parent)
    own = [match for name in names if (match := _TRIAL_ID.fullmatch(name)) and match[1] == tuning.id]
    return [RunFolder(tuning.path.parent / match[0]) for match in sorted(own, key=lambda m: int(m[2]))]


def _is_id(text: str) -> bool:
    return bool(_ID.fullmatch(text) or _TRIAL_ID.fullmatch(text))


def age_key(run_id: str, root: Path) -> str:
    """Return the sort key of a run: its id, or for an id of an earlier version, a key from its creation time.

    The earlier ids contain the local time. Its order is wrong after a change of the clock or the time zone.
    """
    if len(run_id) >= _UTC_LENGTH:
        return run_id
    try:
        return _translated(root, run_id)
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return run_id  # the run is damaged, or is being removed


@lru_cache(1 << 16)
def _translated(root: Path, run_id: str) -> str:
    # A job never changes, so one read per run and process is enough.
    created = json.loads((root / run_id / layout.JOB).read_bytes())["created"]
    return f"{_moment(float(created))} {run_id}"


@lru_cache(4096)
def _known(root: Path, name: str) -> RunFolder:
    return RunFolder(root / name)


def find(run_id: str, root: Path | None = None) -> RunFolder:
    """Return the run with that id, or the only run whose id starts or ends with it (at least 4 characters).

    Raises RunNotFound, which lists similar or new runs.
    """
    root = runs_root() if root is None else root
    if _is_id(run_id) and (root / run_id / layout.JOB).is_file():
        return RunFolder(root / run_id)
    # The search includes trials only if the text contains a trial's suffix.
    known = list(runs(root, trials="-t" in run_id))
    if len(run_id) >= 4:
        close = [f for f in known if f.id.startswith(run_id) or f.id.endswith(run_id)]
        if len(close) == 1:
            return close[0]
        if close:
            some = ", ".join(f.id for f in close[:5])
            raise RunNotFound(f"{run_id!r} matches {len(close)} runs: {some}. Write more of the id.")
    newest = ", ".join(f.id for f in known[:3])
    raise RunNotFound(
        f"no run {run_id!r} in {str(root)!r}. "
        + (f"The newest are: {newest}." if known else "There are no runs yet.")
    )


def find_exact(run_id: str) -> RunFolder:
    """Return the run with exactly that id. Use this function for ids from the network.

    A text that is no id is never used as a path. Raises RunNotFound, which names the searched folder.
    """
    root = runs_root()
    if _is_id(run_id):
        found = RunFolder(root / run_id)
        if found.job.is_file():
            return found
    raise RunNotFound(f"no run {run_id[:80]!r} in {str(root)!r} on {socket.gethostname()}")

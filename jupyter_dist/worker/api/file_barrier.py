"""A barrier for all ranks of a run. It uses files, for runs without an open torch.distributed group."""

from __future__ import annotations

import json
import os
import time

from .. import layout

__all__ = ["meet", "outlast", "renew"]

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.02
_LOOK_EVERY_S = 0.1
_QUICK_RANKS = 16
_ENDED = frozenset(("succeeded", "failed", "stopped", "lost"))

_meetings = 0


def meet(run: str, attempt: int, rank: int, world_size: int, timeout_s: float | None) -> None:
    """Wait until every rank has called this as often as this rank has.

    Raises RuntimeError when a rank has ended before the barrier or the ranks are on several hosts,
    TimeoutError after `timeout_s` seconds.
    """
    global _meetings
    if int(os.environ.get("LOCAL_WORLD_SIZE", world_size)) < world_size:
        raise RuntimeError(
            "dist.barrier() without a process group works only on one host, and these ranks are "
            "on several. Call dist.init() first (with NCCL, leave out timeout_s)"
        )
    place = os.path.join(layout.attempt_path(run, attempt), "barriers")
    here = os.path.join(place, str(_meetings))
    _make(place)
    _make(here)
    _touch(os.path.join(here, str(rank)))
    start = time.monotonic()
    # Every rank looks for every other rank. If 200 ranks looked as often as 2 do, they would do nothing else.
    calm = max(1.0, world_size / _QUICK_RANKS)
    next_look = start + _LOOK_EVERY_S * calm**2
    pause = _FIRST_PAUSE_S * calm
    while missing := _missing(here, world_size):
        now = time.monotonic()
        if timeout_s is not None and now - start >= timeout_s:
            raise TimeoutError(
                f"rank {rank} waited {timeout_s:g} s at a barrier, and {_ranks(missing)} did not arrive"
            )
        if now >= next_look:
            next_look = now + _LOOK_EVERY_S * calm**2
            ended = _ended(run, attempt, missing)
            # A rank that arrived and then ended between the two looks is not missing.
            gone = [r for r in _missing(here, world_size) if r in ended]
            if gone:
                verb = "has" if len(gone) == 1 else "have"
                raise RuntimeError(f"{_ranks(gone)} {verb} ended and cannot arrive at this barrier")
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE_S * calm)
    _meetings += 1
    if rank == 0 and _meetings > 1:
        # All ranks have arrived here, so no rank still looks at the previous barrier.
        _remove(os.path.join(place, str(_meetings - 2)))


def renew() -> None:
    """Count the meetings from the start, because another run begins in this process."""
    global _meetings
    _meetings = 0


def outlast(run: str, attempt: int, rank: int, world_size: int, timeout_s: float) -> None:
    """Wait until every other rank has finished its cell, at most `timeout_s` seconds.

    Returns at once if the ranks are on several hosts, because hosts cannot see each other's files.
    """
    if int(os.environ.get("LOCAL_WORLD_SIZE", world_size)) < world_size:
        return
    others = [other for other in range(world_size) if other != rank]
    deadline = time.monotonic() + timeout_s
    while others and time.monotonic() < deadline:
        ended = _ended(run, attempt, others)
        others = [other for other in others if other not in ended]
        if others:
            time.sleep(_LONGEST_PAUSE_S)


def _make(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    os.chmod(path, 0o700)


def _touch(path: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


def _remove(path: str) -> None:
    try:
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
        os.rmdir(path)
    except OSError:
        # Only a few empty files remain in the run's own folder.
        return


def _missing(here: str, world_size: int) -> list[int]:
    came = set(os.listdir(here))
    return [rank for rank in range(world_size) if str(rank) not in came]


def _ranks(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _ended(run: str, attempt: int, ranks: list[int]) -> set[int]:
    """Return the ranks that have ended, by the supervisor's state file or by the files of the ranks."""
    told = _told(run, attempt)
    return {rank for rank in ranks if rank in told or _left(run, attempt, rank)}


def _told(run: str, attempt: int) -> set[int]:
    try:
        with open(os.path.join(run, layout.STATE), "rb") as file:
            status = json.load(file)
        if status.get("attempt", 0) != attempt:
            return set()
        return {int(r["rank"]) for r in status.get("ranks", ()) if r.get("state") in _ENDED}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # The supervisor has not written the state yet.
        return set()


def _left(run: str, attempt: int, rank: int) -> bool:
    folder = layout.rank_path(run, attempt, rank)
    if any(os.path.exists(os.path.join(folder, name)) for name in (layout.RESULT, layout.ERROR)):
        return True
    try:
        with open(os.path.join(folder, layout.EVENTS), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 65536))
            # Within a string the quotes would be escaped. So this match is always the event's kind.
            return b'"kind": "result"' in file.read()
    except OSError:
        return False

"""One cell on a session's ranks, as a backend that the supervision of a run can poll and stop."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import select
import signal
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from ...errors import LaunchError
from ...job import Job, Poll, RankState, State
from ...worker import layout
from ..backend_calls import Call, failure_of
from ..status_writer import log
from .cell_request import Preparation, Request
from .ranks import KeptRank, Ranks

__all__ = ["CellCaller"]

_CLOSE_LIMIT_S = 30.0
_RANKS_FIRST_S = 0.002
"""How long the supervisor leaves the cores to the ranks when a cell begins, unless they have news."""


class CellCaller:
    """The caller of an attempt (see `backend_calls.Caller`), whose ranks are those of the session."""

    generation = 0
    pid: int | None = None

    def __init__(
        self,
        request: Request,
        ranks: Ranks,
        look: Callable[[], None],
        fileno: int,
        to_close: Callable[[Request], Collection[int]],
        prepare: Callable[[Request], Preparation],
    ) -> None:
        """`to_close`: returns the ranks that close their process groups first. `prepare`: see `Recovery`."""
        self.request, self._ranks = request, ranks
        self._look, self._fileno = look, fileno
        self._to_close, self._prepare = to_close, prepare
        self._closing: set[int] | None = None
        """Ranks that have not closed their process groups yet; None before they were asked."""
        self._close_by: float | None = None
        waits = [rank in request.ranks for rank in range(request.job.world_size)]
        self._states = [
            RankState(rank, State.PENDING if waits[rank] else State.SUCCEEDED, local_rank=rank)
            for rank in range(request.job.world_size)
        ]
        self._signalled: set[int] = set()
        self._checks: dict[int, list[str]] | None = None
        self._running = self._is_sent = False
        """`_running`: whether the ranks run the cell or have ended it. A cell may end before it is sent."""
        self._waits = "the session's ranks are starting"
        """What the cell waits for before it runs."""
        self.changed = False
        """Whether a rank has answered since the last look of the attempt."""

    @property
    def began(self) -> bool:
        """Whether the ranks have received the cell."""
        return self._is_sent

    @property
    def failed(self) -> bool:
        """Whether a rank has not succeeded, or had to leave its collectives, perhaps after its end.

        A cell that was never sent has left the ranks as they were.
        """
        ended_well = all(state.state is State.SUCCEEDED for state in self._states)
        return self._is_sent and (bool(self._signalled) or not ended_well)

    def begin(self, name: str, /, **arguments: Any) -> Call:
        call = Call(name)
        try:
            call.succeed(getattr(self, f"_{name}")(**arguments))
        except Exception as error:  # reported as any backend's failure
            call.fail(failure_of(error))
        return call

    def begin_at_once(self) -> None:
        """Send the cell to its ranks and leave the cores to them, if they are here and nothing is in the way.

        The attempt's `submit` and `poll` do the rest.
        """
        ranks = self._ranks
        if not ranks.processes.here or not ranks.ready(self.request.ranks):
            return
        with contextlib.suppress(LaunchError):  # the attempt meets and reports it again
            self._submit(0)
            self._try_to_begin()
        self.leave_cores()

    def leave_cores(self) -> None:
        """Leave the cores to the ranks, which have just received the cell: there may be too few for all."""
        if self._running:
            select.select([self._fileno], [], [], _RANKS_FIRST_S)

    def look(self) -> None:
        self._look()

    def fileno(self) -> int:
        return self._fileno

    def renew(self) -> None:
        pass  # no call is ever pending

    def close(self) -> None:
        pass  # the ranks stay

    def _submit(self, attempt: int) -> dict[str, Any]:
        if self._running:  # since `begin_at_once`: a rank that has died meanwhile has lost the cell
            return {"session": True}
        dead = self._ranks.dead(self.request.ranks)
        if dead and self.request.restart == "never":
            raise LaunchError(
                f"{_named(dead)} of the session {'has' if len(dead) == 1 else 'have'} ended. Run the cell "
                "with --session-restart rank to start a fresh rank in its place"
            )
        if dead:
            everyone = range(len(self._states))
            self._ranks.replace(everyone if self.request.restart == "all" else dead)
        self._check_needs()
        ranks = self.request.ranks
        self._ranks.processes.stage(self.request.folder, ranks, self._ranks.to_call_first(ranks))
        return {"session": True}

    def _check_needs(self) -> None:
        """Raise LaunchError if a rank has lost a name since the kernel chose what the payload contains."""
        for rank in self.request.ranks:
            kept = self._ranks.all[rank]
            lost = sorted(self.request.needs - (kept.names.keys() & (kept.sent.keys() | kept.assigned)))
            if lost:
                why = "was replaced" if kept.fresh else f"lost {', '.join(lost)}"
                raise LaunchError(
                    f"rank {rank} {why} while this cell waited. The cell was sent without "
                    f"{', '.join(lost)}, because the rank had {'it' if len(lost) == 1 else 'them'}. Run the "
                    "cell again"
                )

    def _poll(self, handle: Mapping[str, Any], cursor: Any) -> Poll:
        processes, why = self._ranks.processes, None
        if not self._running:
            try:
                self._try_to_begin()
                why = processes.failed
            except LaunchError as error:
                why = str(error)
        if why is not None:
            ranks = RankState.all(self.request.job.world_size, State.STOPPED)
            return Poll(State.FAILED, ranks, self._ranks.pids, detail=why, final=True)
        state = RankState.overall(self._states) if self._running else State.PENDING
        if not self._running and self._ranks.dead(self.request.ranks):
            self._running, state = True, State.FAILED
            for rank in self.request.ranks:
                ended = self._ranks.all[rank].state
                if ended.state.ended:
                    self._over(rank, State.FAILED, exit_code=ended.exit_code, signal=ended.signal)
                else:
                    self._over(rank, State.STOPPED)
            state = RankState.overall(self._states)
        detail = processes.detail or (None if self._running else self._waits)
        return Poll(state, tuple(self._states), self._ranks.pids, detail=detail)

    def _try_to_begin(self) -> None:
        if not self._ranks.ready(self.request.ranks):
            return
        if not self._ranks.processes.staged(self.request.folder):
            self._waits = "the cell's files are on their way to the hosts"
            return
        if not self._groups_are_closed():
            return
        if self._checks is None:
            self._checks = {}
            names = self._sent_again()
            for rank in self.request.ranks if names else ():
                self._ranks.send(rank, {"do": "check", "of": self.request.folder.id, "names": names})
            if not names:
                self._checks = {rank: [] for rank in self.request.ranks}
        if len(self._checks) == len(self.request.ranks):
            self._begin()

    def _groups_are_closed(self) -> bool:
        """Let ranks close broken process groups. Return whether they have.

        Otherwise the first collective of a faster rank could meet the old group of another one. A rank whose
        group does not close is killed, but not while its host is not connected.
        """
        if self._closing is None:
            self._closing = set(self._to_close(self.request))
            for rank in sorted(self._closing):
                self._ranks.send(rank, {"do": "close", "of": self.request.folder.id})
        if self._closing:
            self._waits = "the session's ranks are closing the process group that the last cell has broken"
            now = time.monotonic()
            if self._close_by is None or not all(map(self._ranks.processes.answers, self._closing)):
                self._close_by = now + _CLOSE_LIMIT_S
            elif now > self._close_by:
                self._close_by = math.inf
                log(f"the process groups of the ranks {sorted(self._closing)} do not close: they are killed")
                self._ranks.kill(self._closing)
        return not self._closing

    def _sent_again(self) -> list[str]:
        """Return the names of the payload that a rank has already, and that it gets anew."""
        own, ranks = self._ranks.owned(), [self._ranks.all[rank] for rank in self.request.ranks]
        stay = [self._has_already(kept) for kept in ranks]
        return [
            name
            for name in self.request.sent
            if name not in own
            and any(name in kept.sent and name not in same for kept, same in zip(ranks, stay, strict=True))
        ]

    def _has_already(self, kept: KeptRank) -> set[str]:
        """Return the names of the payload whose values the notebook has sent to this rank before.

        The rank keeps these values with what its cells have changed in them. Other ranks may lack the names.
        """
        sent = self.request.sent
        same = {name for name in kept.names.keys() & sent.keys() if kept.sent.get(name) == sent[name]}
        for group in self.request.together:
            if not same.issuperset(group):
                same -= set(group)
        return same

    def _begin(self) -> None:
        assert self._checks is not None
        mutated = {name for names in self._checks.values() for name in names}
        for group in self.request.together:
            if mutated & set(group):
                mutated |= set(group)
        for kept in self._ranks.all:
            kept.assigned |= mutated & kept.names.keys()
        first = self._prepare(self.request)
        own = self._ranks.owned()
        notes = [*first.notes, *(_both_changed(name, self.request.job) for name in sorted(mutated))]
        folder, began, processes = self.request.folder, time.time(), self._ranks.processes
        self._running = self._is_sent = True
        messages = {}
        for rank in self.request.ranks:
            on_start = [processes.path(rank, folder, Path(each)) for each in first.on_start]
            state = self._ranks.all[rank].state
            run = processes.path(rank, folder)
            self._states[rank] = RankState(
                rank, State.RUNNING, state.pid, state.host, state.local_rank, started=began
            )
            messages[rank] = {
                "do": "cell",
                "run": run,
                "folder": layout.rank_path(run, 0, rank),
                "env": {
                    **first.env,
                    "JUPYTER_DIST_RUN": run,
                    "JUPYTER_DIST_RUN_ID": folder.id,
                },
                "environ": self.request.environ,
                "cwd": self.request.job.cwd if processes.here else None,
                "keep": sorted(own | self._has_already(self._ranks.all[rank])),
                "reopen": first.reopen,
                "tells": rank == self.request.ranks[0],
                "notes": notes if rank == self.request.ranks[0] else (),
                "on_start": on_start if rank in first.fresh else (),
            }
        for rank, message in messages.items():
            self._ranks.send(rank, message)

    def _stop(self, handle: Mapping[str, Any], *, kill: bool) -> None:
        self._tell(signal.SIGKILL if kill else signal.SIGTERM)

    def _ask(self, handle: Mapping[str, Any], rank: int | None, verb: str) -> None:
        if verb == "interrupt":
            self._tell(signal.SIGINT)
        elif verb == "stacks":
            self._ranks.processes.stacks()

    def _release(self, handle: Mapping[str, Any]) -> None:
        return None

    def _tell(self, signum: int) -> None:
        """Signal the ranks that still run the cell. A rank that waits in a collective leaves it."""
        if not self._running:
            for rank in self.request.ranks:
                self._over(rank, State.STOPPED)
            self._running = True
            return
        running = [state.rank for state in self._states if state.state is State.RUNNING]
        self._signalled |= set(running)
        if signum == signal.SIGKILL:
            self._ranks.kill(running)
        for rank in running:  # a rank ignores a signal between cells, so it signals itself in its cell
            self._ranks.send(rank, {"do": "leave", "of": self.request.folder.id, "signal": signum})

    def answered(self, rank: int, message: Mapping[str, Any]) -> None:
        """Process a rank's answer."""
        if message.get("of") != self.request.folder.id:
            return
        self.changed = True
        if "closed" in message:
            if self._closing is not None:
                self._closing.discard(rank)
            return
        if "changed" in message:
            if self._checks is not None:
                self._checks[rank] = message["changed"]
            return
        if self._states[rank].state is not State.RUNNING:
            return
        code = int(message["done"])
        kept = self._ranks.all[rank]
        kept.names, kept.group = message["names"], message["group"]
        kept.gpu_memory, kept.uses = message["gpu_memory"], message["uses"]
        if message["prepared"]:
            kept.fresh = False
            self._ranks.lost.pop(rank, None)
        for name in message["installed"]:
            kept.assigned.discard(name)
            if name in self.request.sent:
                kept.sent[name] = self.request.sent[name]
        kept.assigned |= set(message["assigned"])
        kept.assigned &= kept.names.keys()
        state = State.SUCCEEDED if code == 0 else self._how_ended(rank)
        self._over(rank, state, exit_code=code)

    def died(self, rank: int) -> None:
        """Note the end of a rank's process."""
        self.changed = True
        if self._states[rank].state is not State.RUNNING:
            return
        now = self._ranks.all[rank].state
        state = State.LOST if now.state is State.LOST else self._how_ended(rank)
        self._over(rank, state, exit_code=now.exit_code, signal=now.signal)

    def _how_ended(self, rank: int) -> State:
        return State.STOPPED if rank in self._signalled else State.FAILED

    def _over(self, rank: int, state: State, **more: Any) -> None:
        self._states[rank] = dataclasses.replace(self._states[rank], state=state, ended=time.time(), **more)


def _both_changed(name: str, job: Job) -> str:
    session = (job.session or {}).get("name")
    return (
        f"{name}: the notebook has another value, but a cell of the session {session} has changed the one "
        "that was sent before. The cell uses the ranks' value. To send the notebook's: "
        f'jupyter_dist.session("{session}")["{name}"] = {name}'
    )


def _named(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))

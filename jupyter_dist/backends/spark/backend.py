"""The backend `spark`: ranks on the executors of a Spark cluster, in the slots of a barrier stage."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...folder import RunFolder
from ...hosts.openssh import LOCAL
from ...job import Job, Poll, RankState, State
from ..hosted import Hosted, Hosting, LinkError, Pipe, RankEnvironmentOptions, by_pipe, stage_program
from ..interface import Capabilities, Extensions, Handle, Options
from ..ranks.placement import environments, places
from . import notebook_session
from .checks import check_spark, found_here
from .driver_ranks import beside_us
from .options import SparkOptions
from .sessions import Session, SparkAddress, open_session
from .slots import Slots, Step, end_forgotten

__all__ = ["Spark"]

_WORD = "jupyter-dist"
_WHY_S = 5.0
"""Seconds between the end of a task and the end of the stage that Spark ends because of it."""


def _inherited(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the secret address of the notebook's session. No file and no argument contains it."""
    asked = SparkOptions(**options)
    return {} if asked.master is not None or asked.on_driver else notebook_session.inherited()


class Spark:
    """Ranks on executors.

    An agent on each machine starts them, while tasks of a barrier stage occupy the slots.
    """

    name: ClassVar[str] = "spark"
    options: ClassVar[type[Options]] = SparkOptions
    capabilities: ClassVar[Capabilities] = Capabilities(
        apart=True, visible=False, interrupts=True, sessions=True
    )
    extensions: ClassVar[Extensions] = Extensions(inherited=_inherited)
    poll_interval_s: ClassVar[float] = 0.05

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._slots: Slots | None = None
        self._hosted: Hosted | None = None
        self._submitted = False
        """Whether the ranks' machines are known. From then on, `_hosted` runs the attempt."""
        self._stopping = False
        self._session: Session | None = None
        self._times = 0

    def default_np(self) -> int:
        return 2

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        return check_spark(world_size, SparkOptions(**options))

    def detect(self) -> dict[str, Any]:
        return found_here()

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        asked = SparkOptions(**job.options)
        where = places(job.world_size, [{"name": "<a machine>", "slots": job.world_size}])
        envs = environments(job, attempt, RankEnvironmentOptions.of(asked), where, None, {})
        told: dict[str, Any] = {"master": asked.master, "conf": asked.conf, "tasks": job.world_size}
        if asked.on_driver:
            told = {"hosts": [{"name": LOCAL, "slots": job.world_size}]}
        return {
            **told,
            "argv": ["python", "-m", "jupyter_dist.worker"],
            "ranks": [
                {
                    "rank": place.rank,
                    "env": env | ({} if asked.on_driver else {"LOCAL_RANK": "<on its machine>"}),
                }
                for place, env in zip(where, envs, strict=True)
            ],
        }

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        with self._lock:
            self._stopping = False
            if self._hosted is not None and (self._slots is None or self._slots.look() is Step.HELD):
                return self._hand_over(job, folder, attempt)
            self._give_back(job, folder)
            asked = SparkOptions(**job.options)
            self._hosted = Hosted(self._hosting)
            if asked.on_driver:
                return self._hand_over(job, folder, attempt)
            self._slots = Slots(
                job.world_size,
                _stage_name(job.id, attempt),
                lambda: self._opened(job),
                driver_address=asked.driver_address,
                program=stage_program(),
                word=_WORD,
                grace_s=asked.grace,
                wait_s=asked.wait_for_slots,
            )
            self._times += 1
            self._slots.begin()
            return {"attempt": attempt}

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle | None:
        """End what another process has left of the attempt. Returns None: nothing of it runs afterwards."""
        _end_forgotten(job, attempt)
        return None

    def poll(self, job: Job, folder: RunFolder, handle: Handle, cursor: Any) -> Poll:
        with self._lock:
            if self._hosted is None:
                return self._forgotten(job, handle)
            if self._slots is not None and not self._submitted:
                step = self._slots.look()
                if self._stopping or step is Step.ENDED:
                    self._slots.end()
                    ended = State.STOPPED if self._stopping else State.FAILED
                    return _nothing_ran(job, ended, self._slots.ended, final=self._slots.final)
                if step is not Step.HELD:
                    ranks = RankState.all(job.world_size)
                    return Poll(State.PENDING, ranks, detail=self._slots.detail)
                self._hand_over(job, folder, int(handle["attempt"]))
            return self._hosted.poll(job, folder, handle, cursor, wait_s=self.poll_interval_s)

    def stop(self, job: Job, folder: RunFolder, handle: Handle, *, kill: bool) -> None:
        self._stopping = True
        if self._hosted is not None and self._submitted:
            self._hosted.stop(job, folder, handle, kill=kill)

    def ask(self, job: Job, folder: RunFolder, handle: Handle, rank: int | None, verb: str) -> None:
        if self._hosted is not None and self._submitted:
            self._hosted.ask(job, folder, handle, rank, verb)

    def exchange(
        self, job: Job, folder: RunFolder, handle: Handle, wishes: Sequence[Mapping[str, Any]], wait_s: float
    ) -> dict[str, Any]:
        """Exchange messages with the ranks of a session; see `Hosted.exchange`."""
        hosted = self._hosted
        if hosted is None or not self._submitted:
            time.sleep(min(wait_s, self.poll_interval_s))  # Spark starts its tasks meanwhile
            return {"poll": self.poll(job, folder, handle, None).to_json(), "started": False}
        with hosted.session.hurry(wishes), self._lock:
            news = hosted.exchange(job, folder, handle, wishes, wait_s)
            ended = None if self._slots is None or self._slots.look() is not Step.ENDED else self._slots.ended
        return {**news, "over": None if ended is None else f"Spark says: {ended}"}

    def release(self, job: Job, folder: RunFolder, handle: Handle) -> None:
        with self._lock:
            if self._hosted is None:
                _end_forgotten(job, int(handle["attempt"]))
                return
            self._give_back(job, folder)
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def _hand_over(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        """Submit the attempt to the known machines."""
        assert self._hosted is not None
        self._submitted = True
        return self._hosted.submit(job, folder, attempt)

    def _give_back(self, job: Job, folder: RunFolder) -> None:
        """Release the machines of the attempt, and their slots."""
        if self._hosted is not None and self._submitted:
            self._hosted.release(job, folder, {})
        if self._slots is not None:
            self._slots.end()
        self._hosted, self._slots, self._submitted = None, None, False

    def _hosting(self, job: Job, folder: RunFolder) -> Hosting:
        asked, slots = SparkOptions(**job.options), self._slots
        settings = asked.agent_settings()
        if slots is None:
            hosts = [{"name": LOCAL, "slots": job.world_size}]
            return Hosting(hosts, settings, by_pipe(beside_us(_WORD)), RankEnvironmentOptions.of(asked))
        found = [{"name": machine.name, "slots": len(machine.partitions)} for machine in slots.machines]
        # Agents of a previous attempt without slots may still be ending.
        if self._times > 1:
            settings = dataclasses.replace(settings, remote_dir=f"{settings.remote_dir}/{self._times}")

        def dialled(name: str) -> Pipe:
            connection = slots.take(name)
            if connection is None:
                raise LinkError("its Spark task has not dialled again", busy=True)
            return Pipe.of_socket(connection, _WORD)

        def gone() -> dict[str, str]:
            if slots.look() is not Step.ENDED:
                return {}
            return {machine.name: f"Spark says: {slots.ended}" for machine in slots.machines}

        return Hosting(
            found, settings, by_pipe(dialled), RankEnvironmentOptions.of(asked), gone=gone, why_s=_WHY_S
        )

    def _opened(self, job: Job) -> Session:
        """Return the run's session, which all its attempts share."""
        if self._session is None:
            self._session = open_session(_spark_address(job))
        return self._session

    def _forgotten(self, job: Job, handle: Handle) -> Poll:
        """Return the state after the death of the process that had the slots.

        Lifelines have ended the ranks, or Spark does.
        """
        _end_forgotten(job, int(handle["attempt"]))
        return _nothing_ran(
            job, State.FAILED, "the process that held its Spark tasks has ended, and the ranks with it"
        )


def _nothing_ran(job: Job, state: State, detail: str | None, *, final: bool = False) -> Poll:
    ranks = RankState.all(job.world_size, State.STOPPED)
    return Poll(state, ranks, detail=detail, final=final)


def _stage_name(run: str, attempt: int) -> str:
    return f"jupyter-dist-{run}-{attempt}"


def _spark_address(job: Job) -> SparkAddress:
    asked = SparkOptions(**job.options)
    return SparkAddress(job.id, asked.master, asked.conf, asked.python, job.world_size)


def _end_forgotten(job: Job, attempt: int) -> None:
    if not SparkOptions(**job.options).on_driver:
        end_forgotten(_spark_address(job), _stage_name(job.id, attempt))

"""The slots that a run has on a Spark cluster, from the wish for them to their end, watched by one thread."""

from __future__ import annotations

import enum
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import LaunchError
from .barrier_task import holder
from .options import host_and_port
from .sessions import Session, SparkAddress, is_final, open_session, why
from .task_connections import Listener

__all__ = ["Machine", "Slots", "Step", "end_forgotten", "machines"]

_LOOK_S = 0.5
_END_S = 3.0
"""From our word to the tasks' end; where one does not hear it, Spark is asked to end the stage."""
_CANCEL_S = 10.0


class Step(enum.Enum):
    """How far the slots of one attempt have come."""

    OPENING = enum.auto()
    WAITING = enum.auto()
    """There are too few slots, or other jobs have them."""
    HELD = enum.auto()
    ENDED = enum.auto()


@dataclass(frozen=True)
class Machine:
    """A machine with slots of ours: one of its tasks, the first, runs the stage program."""

    name: str
    partitions: tuple[int, ...]
    gpus: tuple[str, ...] = ()


def machines(tasks: Mapping[int, Mapping[str, Any]]) -> list[Machine]:
    """The tasks by machine, in the order of their partitions. Two machines of one name get numbers."""
    found: dict[str, list[int]] = {}
    for partition in sorted(tasks):
        found.setdefault(str(tasks[partition]["machine"]), []).append(partition)
    listed: list[Machine] = []
    for partitions in found.values():
        name = str(tasks[partitions[0]]["hostname"])
        same = sum(other.name.partition("#")[0] == name for other in listed)
        gpus = dict.fromkeys(str(gpu) for partition in partitions for gpu in tasks[partition]["gpus"])
        listed.append(Machine(name if not same else f"{name}#{same + 1}", tuple(partitions), tuple(gpus)))
    return listed


class Slots:
    """`np` tasks of one barrier stage. `begin` starts a thread; everything else returns at once but `end`."""

    def __init__(
        self,
        np: int,
        name: str,
        session: Callable[[], Session],
        *,
        driver_address: str | None,
        program: str,
        word: str,
        grace_s: float,
        wait_s: float,
    ) -> None:
        """`name`: by which Spark knows the stage. `session` may block. `driver_address`: how the executors
        reach this machine, if not as they reach Spark's driver. `program`: see `barrier_task`.
        `wait_s`: how long slots are waited for that are not there."""
        self._np, self._name = np, name
        self._session_of, self._driver_address = session, driver_address
        self._program, self._word, self._grace_s, self._wait_s = program, word, grace_s, wait_s
        self._session: Session | None = None
        self._listener: Listener | None = None
        self._ending = threading.Event()
        self._over = threading.Event()
        self.detail: str | None = None
        """What is waited for."""
        self.ended: str | None = None
        """Why there are no slots, or no more, in words for the user."""
        self.final = False
        """Whether the same would come of another try."""
        self.machines: Sequence[Machine] = ()

    def begin(self) -> None:
        threading.Thread(target=self._run, name="jupyter-dist-slots", daemon=True).start()

    def look(self) -> Step:
        """How far it is, after a look at what has come."""
        if self._over.is_set():
            return Step.ENDED
        if self._listener is None:
            return Step.OPENING
        if not self.machines and len(tasks := self._listener.tasks()) == self._np:
            self.machines, self.detail = machines(tasks), None
        return Step.HELD if self.machines else Step.WAITING

    def take(self, name: str) -> Any:
        """The connection of a machine's task, which runs the stage program on it; None: there is none."""
        assert self._listener is not None
        machine = next(machine for machine in self.machines if machine.name == name)
        return self._listener.take(machine.partitions[0])

    def end(self) -> None:
        """Give the slots back, and wait some seconds until Spark has them. Repeatable; never raises."""
        self._ending.set()
        listener, session = self._listener, self._session
        if listener is not None:
            listener.end()
        if not self._over.wait(_END_S if self.machines else 0.0) and session is not None:
            try:
                session.cancel(self._name)
            except Exception:
                traceback.print_exc()
            self._over.wait(_CANCEL_S)
        if listener is not None:
            listener.close()

    def _run(self) -> None:
        try:
            self.ended = self._hold()
        except BaseException as error:
            if not self._ending.is_set():
                traceback.print_exc()  # all that Spark says is in supervisor.log
            self.ended, self.final = why(error), is_final(error)
        finally:
            self._over.set()

    def _hold(self) -> str:
        self.detail = "Spark is being started or reached"
        self._session = session = self._session_of()
        self._listener = listener = self._listen(session)
        self._wait_for_slots(session)
        if self._ending.is_set():
            return "it was stopped before it had slots"
        slots = session.slots()
        has = "" if slots is None else f" ({session.where} has {slots}, and other jobs may use them)"
        self.detail = f"waits until {self._np} task slots are free at the same time{has}"
        task = holder(listener.address, listener.key, self._program, self._word, self._grace_s)
        session.hold(self._np, task, self._name)
        return "Spark has ended its tasks"

    def _listen(self, session: Session) -> Listener:
        if self._driver_address is None:
            return Listener(*session.address())
        host, port = host_and_port(self._driver_address)
        return Listener(host, host, port)

    def _wait_for_slots(self, session: Session) -> None:
        """Spark itself would say nothing for ten minutes, and then fail the stage. Raises LaunchError."""
        until = time.monotonic() + self._wait_s
        while not self._ending.is_set():
            slots = session.slots()
            if slots is None or slots >= self._np:
                return
            self.detail = f"waits for {self._np} task slots: {session.where} has {slots}"
            if time.monotonic() > until:
                raise LaunchError(
                    f"{self._np} workers need {self._np} task slots, and {session.where} had {slots} "
                    f"after {self._wait_s:g} s (--wait-for-slots). Use a smaller -np, or add cores to the "
                    "cluster"
                )
            self._ending.wait(_LOOK_S)


def end_forgotten(spark_address: SparkAddress, name: str) -> None:
    """End the stages of that name which a dead process has left in a session that did not end with it. One
    that cannot be reached is told of; never raises."""
    if spark_address.master is not None and not spark_address.master.startswith("sc://"):
        return  # the session was that process's own
    try:
        session = open_session(spark_address)
        session.cancel(name)
    except Exception as error:
        print(f"its Spark session cannot be asked to end the tasks: {why(error)}", flush=True)
    else:
        session.close()

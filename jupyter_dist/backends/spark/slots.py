"""The slots of a run on a Spark cluster, from the request to the release, watched by one thread."""

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
"""Seconds from the order to end until the tasks have ended. After that, Spark is asked to end the stage."""
_CANCEL_S = 10.0


class Step(enum.Enum):
    """The state of one attempt's slots."""

    OPENING = enum.auto()
    WAITING = enum.auto()
    """There are too few slots, or other jobs use them."""
    HELD = enum.auto()
    ENDED = enum.auto()


@dataclass(frozen=True)
class Machine:
    """A machine with slots of ours. The first of its tasks runs the stage program."""

    name: str
    partitions: tuple[int, ...]
    gpus: tuple[str, ...] = ()


def machines(tasks: Mapping[int, Mapping[str, Any]]) -> list[Machine]:
    """Group the tasks by machine, in the order of their partitions. Two machines of one name get numbers."""
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
    """The tasks of one barrier stage, `np` in number. `begin` starts a thread. Only `end` blocks."""

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
        """`name`: Spark's name of the stage. `session` may block. `driver_address`: this machine's address
        for the executors, if it differs from the address of Spark's driver. `program`: see `barrier_task`.
        `wait_s`: how long to wait for missing slots.
        """
        self._np, self._name = np, name
        self._session_of, self._driver_address = session, driver_address
        self._program, self._word, self._grace_s, self._wait_s = program, word, grace_s, wait_s
        self._session: Session | None = None
        self._listener: Listener | None = None
        self._ending = threading.Event()
        self._over = threading.Event()
        self.detail: str | None = None
        """What the attempt waits for."""
        self.ended: str | None = None
        """Why there are no slots, or no more, in words for the user."""
        self.final = False
        """Whether a retry would fail in the same way."""
        self.machines: Sequence[Machine] = ()

    def begin(self) -> None:
        threading.Thread(target=self._run, name="jupyter-dist-slots", daemon=True).start()

    def look(self) -> Step:
        """Read new messages, and return the state."""
        if self._over.is_set():
            return Step.ENDED
        if self._listener is None:
            return Step.OPENING
        if not self.machines and len(tasks := self._listener.tasks()) == self._np:
            self.machines, self.detail = machines(tasks), None
        return Step.HELD if self.machines else Step.WAITING

    def take(self, name: str) -> Any:
        """Return the connection of a machine's task, and start the stage program on it.

        None: no connection.
        """
        assert self._listener is not None
        machine = next(machine for machine in self.machines if machine.name == name)
        return self._listener.take(machine.partitions[0], machine.gpus)

    def end(self) -> None:
        """Release the slots, and wait some seconds until Spark has them. Repeatable. Never raises."""
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
                traceback.print_exc()  # supervisor.log gets Spark's complete error
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
        """Wait for free slots. Raises LaunchError.

        Spark would fail the stage after ten minutes of silence.
        """
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
    """End the stages of that name that a dead process has left in a session which survived it.

    An unreachable session is reported in a message. Never raises.
    """
    if spark_address.master is not None and not spark_address.master.startswith("sc://"):
        return  # the session belonged to that process
    try:
        session = open_session(spark_address)
        session.cancel(name)
    except Exception as error:
        print(f"its Spark session cannot be asked to end the tasks: {why(error)}", flush=True)
    else:
        session.close()

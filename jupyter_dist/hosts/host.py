"""One host of a run in its driver: its set-up, its connection, its loss, and its processes."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..job import Job
from ..worker.host.os_errors import reason
from ..worker.jitter import jitter
from . import rsync
from .arrivals import Arrivals
from .facts import HostFacts, HostProcess, host_facts
from .host_cells import HostCells
from .host_clock import HostClock
from .host_files import HostFiles
from .host_requests import HostRequests
from .links.link import Diagnosis, LinkError, Reach
from .openssh import LOCAL
from .settings import HostSettings
from .staged_files import Shipped, stage_wish

__all__ = ["Host", "HostFacts", "HostProcess"]

_SAMPLES = 3
_FIRST_BACKOFF_S, _MOST_BACKOFF_S = 0.2, 5.0
_BUSY_TRIES = 8
_LAST_WORDS_S = 5.0
"""How long the driver waits for the last frames of a host that has ended."""


class Host:
    """State of one host. Never blocks; the caller must call `advance` often."""

    def __init__(
        self,
        name: str,
        node: int,
        slots: int,
        job: Job,
        settings: HostSettings,
        reach: Reach,
        files: Sequence[Shipped],
        arrivals: Arrivals,
        cells: Mapping[str, Arrivals],
    ) -> None:
        """`cells`: the files of a session's cells, by the ids of their runs."""
        self.name, self.node, self.slots, self._settings = name, node, slots, settings
        self.link = reach(name, stage_wish(settings, job, node, name, files), files)
        self._arrivals = arrivals
        self._received = HostFiles(arrivals, cells, self.link)
        self.cells = HostCells(self.link, cells)
        self.facts: HostFacts | None = None
        self.failed: str | None = None
        """Why the set-up failed."""
        self.final = False
        """Whether another set-up would fail too."""
        self.lost: str | None = None
        """Why the driver gave the host up."""
        self.away: float | None = None
        """Since when the host does not answer (seconds since the epoch)."""
        self.why_away = ""
        self.hindered: str | None = None
        """Why the agent cannot read its ranks' files now."""
        self.released = self.has_sent = False
        self.heard = time.monotonic()
        """When the host last sent anything other than an answer to a ping."""
        self._unwritable = False
        """Whether the driver closed the link because this machine could not write the received files."""
        self.processes: dict[str, HostProcess] = {}
        self.ports: list[int] | None = None
        self.no_way: dict[str, str] = {}
        """The hosts to which this host cannot connect, and why. `find_ways` starts the test."""
        self._requests = HostRequests(self.link)
        self._wishes: dict[str, Mapping[str, Any]] = {}
        self._notices: dict[str, str] = {}
        self._signal: Mapping[str, Any] | None = None
        self._resumed = self._releasing = False
        self._retry_at, self._backoff, self._tries_left = 0.0, _FIRST_BACKOFF_S, _BUSY_TRIES
        self._gone: tuple[str, float] | None = None
        """Why the host ended, and when this was reported (monotonic clock)."""
        self._pinged = 0.0
        self._clock = HostClock()
        self.sync = rsync.Sync(name, settings)
        self.diagnosis: Diagnosis | None = None
        """Makes the reason of a failure more exact, while it is there."""

    def open(self, *, resume: bool) -> None:
        """Begin the set-up. `resume`: connect to the agent that another supervisor has set up.

        The next `advance` that may connect opens the connection.
        """
        self._resumed = resume
        if resume:
            self.away = time.time()

    @property
    def _is_new(self) -> bool:
        """Return whether the host was never set up."""
        return self.facts is None and not self._resumed

    @property
    def settled(self) -> bool:
        """Return whether the host can start processes now."""
        return (
            self.link.up
            and self.facts is not None
            and self._clock.known
            and self.sync.done
            and not self._requests.open
        )

    @property
    def not_kept(self) -> str | None:
        """Return which files the driver could not fetch in the end, why, and where they are."""
        return self._received.not_kept

    @property
    def _offset_s(self) -> float:
        return 0.0 if self.facts is None else self.facts.clock_offset_s

    def ask_for_ports(self, count: int) -> None:
        """Ask the host for new free TCP ports."""
        self.ports = None
        self._ask(do="ports", count=count)

    def lease(self, wish: Mapping[str, Any] | None) -> None:
        """Lease GPUs on the host, or release them (None). The result is in `facts`."""
        if self.facts is not None:
            self.facts = dataclasses.replace(self.facts, leased=None)
        self._ask(do="lease", wish=wish)

    def find_ways(self, places: Mapping[str, tuple[str, int]]) -> None:
        """Let the host try to connect to other hosts. `places`: host name → address and port."""
        self._ask(do="reach", places={name: list(place) for name, place in places.items()})

    def prepare(self, env: Mapping[str, str]) -> None:
        """Ask the agent to write the script with which launchers start ranks on the host."""
        self._ask(do="prepare", env=dict(env))

    def _ask(self, **request: Any) -> None:
        self._requests.ask(None if self.facts is None else self.facts.python, request)

    def start(self, processes: Sequence[HostProcess], wishes: Sequence[Mapping[str, Any]]) -> None:
        """Start processes now, or when the host is connected again."""
        self._signal = None
        for process, wish in zip(processes, wishes, strict=True):
            self.processes[process.id] = process
            self._wishes[process.id] = wish
        self.link.send({"do": "start", "processes": list(wishes)})

    def expect(self, process: HostProcess, wish: Mapping[str, Any] | None) -> None:
        """Register a process that an earlier supervisor was about to start. `wish`: its request, if known."""
        self.processes[process.id] = process
        if wish is not None:
            self._wishes[process.id] = wish

    def signal(self, *, kill: bool, interrupt: bool = False) -> None:
        """Signal all processes of the host now, or when the host is connected again."""
        self._signal = {"do": "signal", "kill": kill, "interrupt": interrupt}
        self.link.send(self._signal)

    def end(self, ids: Sequence[str], *, kill: bool) -> None:
        """Signal some of the host's processes. The request is lost if the connection is down."""
        self.link.send({"do": "signal", "kill": kill, "only": list(ids)})

    def forget(self, id_: str) -> None:
        """Forget a process that another one replaces."""
        self.processes.pop(id_, None)
        self._wishes.pop(id_, None)

    def tell(self, path: str, text: str) -> None:
        """Replace a small file on the host. `path`: relative to the run's folder."""
        self._notices[path] = text
        self.link.send({"do": "tell", "path": path, "text": text})

    def stacks(self) -> None:
        self.link.send({"do": "stacks"})

    def release(self) -> None:
        """Ask the agent to end the processes, send the checkpoints (`has_sent`) and go (`released`)."""
        self._releasing, self.heard = True, time.monotonic()
        if self.link.up:
            self.link.send({"do": "release"})
        elif self._unwritable:
            # The driver itself closed this link, so it connects again now to send the release.
            self.away, self._retry_at = time.time(), 0.0
        else:
            self.released = True

    def close(self) -> None:
        self.link.close()
        self.sync.close()
        self.cells.close()
        if self.diagnosis is not None:
            self.diagnosis.close()

    def advance(self, *, may_connect: bool = True) -> None:
        """Send, receive and, if allowed, connect as far as possible now."""
        self._look_at_diagnosis()
        if self.lost or self.released or (self.failed and not self._releasing):
            return
        now = time.monotonic()
        if not self.link.opened:
            if may_connect and now >= self._retry_at:
                try:
                    self.link.open("stage" if self._is_new else "resume")
                except LinkError as error:
                    self._on_loss(error)
        else:
            try:
                for header, body in self.link.pump():
                    self._take(header, body)
            except LinkError as error:
                self._on_loss(error)
            except OSError as error:
                self.link.close()
                self._unwritable = True
                why = f"the run's folder here cannot be written: {reason(error)}"
                self._on_loss(LinkError(why))
            else:
                self.cells.advance()
                if self.link.up and now - self._pinged > self.link.ping_every_s:
                    self._ping()
        self.failed = self.sync.look() or self.failed
        self._look_at_clock()

    def _take(self, header: Mapping[str, Any], body: bytes) -> None:
        kind = header["is"]
        if kind != "pong":
            self.heard = time.monotonic()
        self._requests.answered(kind)
        if kind in ("chunk", "whole", "checkpoint"):
            self._received.take(header, body, self._offset_s, is_last=self._releasing)
        elif kind == "connected":
            # The pings precede all else: the next frames contain times, which need the clock offset.
            for _ in range(_SAMPLES):
                self._ping()
            self.link.send({"do": "hello", "have": self._arrivals.have(), **self.cells.hello()})
        elif kind in ("message", "got", "ready"):
            self.cells.take(header)
        elif kind == "pong":
            self.cells.memory = header.get("memory", {})
            if self._clock.pong(header) and self.facts is not None:
                self.facts = dataclasses.replace(self.facts, clock_offset_s=self._clock_offset())
        elif kind == "facts":
            self._on_facts(header)
        elif kind == "ports":
            self.ports = [int(port) for port in header["ports"]]
        elif kind == "leased" and self.facts is not None:
            self.facts = dataclasses.replace(self.facts, leased=header)
        elif kind == "reached":
            self.no_way = {str(name): str(why) for name, why in header["why"].items()}
        elif kind == "hindered":
            self.hindered = None if header["why"] is None else str(header["why"])
        elif kind == "trouble":
            self.failed = str(header["why"])
        elif kind in ("started", "ended"):
            self._on_process(header)
        elif kind == "sent":
            self.has_sent = True
            self.link.send({"do": "remove", "keep_run": self.not_kept is not None})
        elif kind == "released":
            self.released = True

    def _ping(self) -> None:
        self._pinged = time.monotonic()
        self.link.send({"do": "ping", "ping": self._clock.ping()})

    def _clock_offset(self) -> float:
        # On this machine both clocks are the same, and a measured offset would only be noise.
        return 0.0 if self.name == LOCAL else self._clock.offset_s(exact=self.link.exact_clock)

    def _on_facts(self, told: Mapping[str, Any]) -> None:
        try:
            facts = host_facts(self.name, self.node, self.slots, told, self._settings.interface)
        except LookupError as error:
            self.failed = str(error.args[0])
            return
        leased = None if self.facts is None else self.facts.leased
        self.facts = facts = dataclasses.replace(facts, clock_offset_s=self._clock_offset(), leased=leased)
        self.away, self._unwritable, self._backoff = None, False, _FIRST_BACKOFF_S
        self._resend(set(told["known"]))
        self.cells.connected(told)
        self.sync.begin(os.path.join(facts.stage, "work"))

    def _resend(self, known: set[str]) -> None:
        """Repeat the requests that the agent may have missed. Processes that it does not know are lost."""
        for path, text in self._notices.items():
            self.tell(path, text)
        missed = []
        for process in list(self.processes.values()):
            if process.id in known or process.over:
                continue
            if process.pid is None and process.id in self._wishes:
                missed.append(self._wishes[process.id])
            else:
                why = f"the agent on host {self.name} was ended, and its processes with it"
                if process.pid is None and self._resumed:
                    why = f"it was never started on host {self.name}: the supervisor died before that"
                self._lose(process, why)
        if missed:
            self.link.send({"do": "start", "processes": missed})
        if self._signal is not None:
            self.link.send(self._signal)
        if self.facts is not None:
            self._requests.repeat(self.facts.python)
        if self._releasing:
            self.link.send({"do": "release"})

    def _on_process(self, told: Mapping[str, Any]) -> None:
        known = self.processes.get(told["id"])
        if known is None or known.over:
            return
        self.processes[known.id] = known.as_told(told, self._offset_s)

    def _on_loss(self, error: LinkError) -> None:
        if self.released:
            return
        self.diagnosis = self.diagnosis or error.diagnosis
        if self._releasing and self.is_gone:
            self.released = True  # another agent there would end at once, as this one did
            return
        if self._is_new and not (error.busy and self._tries_left):
            self.failed, self.final = str(error), error.final
            return
        if error.final and (self.processes or self._resumed):
            self._give_up(str(error))
            return
        if error.final:
            self._forget()
        if self._is_new:
            self._tries_left -= 1
        else:
            self.away = self.away or time.time() - self.link.silent_s
            self.why_away = str(error)
        # The jitter spreads the hosts' retries: too many connections at once may be the cause.
        self._retry_at = time.monotonic() + self._backoff * jitter(1, 2)
        self._backoff = min(self._backoff * 2, _MOST_BACKOFF_S)

    def _forget(self) -> None:
        """Set the host up again: an agent without processes ends soon if the connection is lost."""
        self.facts, self.ports, self._clock = None, None, HostClock()
        self._requests.reopen()
        self.sync.close()
        self.sync = rsync.Sync(self.name, self._settings)

    def _look_at_clock(self) -> None:
        if self._gone is not None and time.monotonic() - max(self._gone[1], self.heard) > _LAST_WORDS_S:
            self._give_up(self._gone[0])
            return
        if self.away is not None and time.time() - self.away > self._settings.grace_s:
            self._give_up(f"it did not answer for {self._settings.grace_s:g} s (--grace): {self.why_away}")

    @property
    def is_gone(self) -> bool:
        """Return whether the host or its reservation has ended. Only its last frames may arrive."""
        return self._gone is not None or any(process.place_gone for process in self.processes.values())

    def give_up(self, why: str) -> None:
        """Record that the scheduler reports the host's end. The last frames may still arrive."""
        if self._gone is None:
            self._gone = why, time.monotonic()

    def settle(self) -> None:
        """Stop waiting for the last frames of a host that has ended."""
        if self.is_gone and not self.lost:
            self._give_up("it has ended" if self._gone is None else self._gone[0])

    def _give_up(self, why: str) -> None:
        self.lost = why
        if self._is_new:
            self.failed = why
        self.link.close()
        try:
            missing = self._arrivals.tear(self.link.rest(), self._offset_s)
        except OSError:
            missing = 0  # a full disk here must not hide the loss of the host
        if missing:
            print(f"host {self.name}: {missing:,} bytes of its ranks' files were lost on the way", flush=True)
        for process in list(self.processes.values()):
            if not process.over:
                self._lose(process, f"host {self.name} was lost: {why}")

    def _lose(self, process: HostProcess, why: str) -> None:
        self.processes[process.id] = dataclasses.replace(process, lost=why, ended=time.time())

    def _look_at_diagnosis(self) -> None:
        if self.diagnosis is None:
            return
        before, done = self.diagnosis.text, self.diagnosis.look()
        if self.failed == before:
            self.failed = self.diagnosis.text
        if self.why_away == before:
            self.why_away = self.diagnosis.text
        if done:
            self.diagnosis = None

"""One host of a run as its driver sees it: set up, up, away, or lost, and the processes it was given."""

from __future__ import annotations

import dataclasses
import os
import select
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..worker.jitter import jitter
from . import rsync
from .arrivals import Arrivals
from .facts import HostFacts, HostProcess, host_facts
from .host_clock import HostClock
from .links.link import LinkError, Reach
from .openssh import LOCAL, own_version
from .settings import HostSettings
from .staged_files import Shipped

__all__ = ["Host", "HostFacts", "HostProcess"]

_SAMPLES = 3
_FIRST_BACKOFF_S, _MOST_BACKOFF_S = 0.2, 5.0
_BUSY_TRIES = 8
_LAST_WORDS_S = 5.0
"""Without a word of a host that has ended, before nothing more is expected of it."""


class Host:
    """Everything about one host. Never blocks; `advance` has to be called often."""

    def __init__(
        self,
        name: str,
        node: int,
        slots: int,
        run: str,
        settings: HostSettings,
        reach: Reach,
        files: Sequence[Shipped],
        arrivals: Arrivals,
    ) -> None:
        self.name, self.node, self.slots = name, node, slots
        self._settings = settings
        wish = {"dir": settings.remote_dir, "run": run, "node": node, "name": name}
        kept = {file.path: file.modified for file in files if file.modified is not None}
        wish |= {"grace_s": settings.grace_s, "version": own_version(), "kept": kept}
        self.link = reach(name, wish, files)
        self._arrivals = arrivals
        self.facts: HostFacts | None = None
        self.failed: str | None = None
        """Why it could not be set up."""
        self.final = False
        """Whether it would not help to set it up again."""
        self.lost: str | None = None
        """Why it was given up."""
        self.away: float | None = None
        """Since when it does not answer (seconds since the epoch)."""
        self.why_away = ""
        self.released = False
        self.heard = time.monotonic()
        """When it last sent anything but an answer to a ping."""
        self.not_kept: str | None = None
        """What could not be fetched from it in the end, why, and where it is."""
        self._unwritable = False
        """Whether its link was given up because this machine cannot write what comes."""
        self.processes: dict[str, HostProcess] = {}
        self.ports: list[int] | None = None
        self.no_way: dict[str, str] = {}
        """The hosts that it cannot connect to, and why, once `find_ways` was called."""
        self._way: Mapping[str, Any] | None = None
        self._wishes: dict[str, Mapping[str, Any]] = {}
        self._ports_wanted = 0
        self._lease: Mapping[str, Any] | None = None
        self._environment: Mapping[str, str] | None = None
        self._prepared = True
        self._kill: bool | None = None
        self._resumed = self._releasing = False
        self._retry_at, self._backoff = 0.0, _FIRST_BACKOFF_S
        self._tries_left = _BUSY_TRIES
        self._gone: tuple[str, float] | None = None
        """What it ended of, and when that was told."""
        self._pinged = 0.0
        self._clock = HostClock()
        self._sync = rsync.Sync(name, settings)

    def open(self, *, resume: bool) -> None:
        """Begin to set it up; `resume`: to find the agent that another supervisor set up."""
        self._resumed = resume
        if resume:
            self.away = time.time()
        self._open("resume" if resume else "stage")

    def _open(self, mode: str) -> None:
        try:
            self.link.open(mode)
        except LinkError as error:
            self._on_loss(error)

    @property
    def _is_new(self) -> bool:
        """Whether it was never set up."""
        return self.facts is None and not self._resumed

    @property
    def settled(self) -> bool:
        """Whether nothing more is to come before processes can be started there."""
        return (
            self.link.up
            and self.facts is not None
            and self._clock.known
            and self._sync.done
            and self._prepared
            and self._way is None
            and (self.ports is not None or not self._ports_wanted)
            and (self._lease is None or self.facts.leased is not None)
        )

    @property
    def syncing(self) -> bool:
        """Whether the user's own files are on their way to it."""
        return self._sync.under_way

    def ask_for_ports(self, count: int) -> None:
        """Have free TCP ports looked up there, anew."""
        self.ports, self._ports_wanted = None, count
        self.link.send({"do": "ports", "count": count})

    def lease(self, wish: Mapping[str, Any] | None) -> None:
        """Have GPUs taken there, or given back; what came of it is in the facts."""
        self._lease = {"do": "lease", "wish": wish}
        if self.facts is not None:
            self.facts = dataclasses.replace(self.facts, leased=None)
        self.link.send(self._lease)

    def find_ways(self, places: Mapping[str, tuple[str, int]]) -> None:
        """Have connections to other hosts tried from there: by name, an address and a port."""
        self._way = {"do": "reach", "places": {name: list(place) for name, place in places.items()}}
        self.link.send(self._way)

    def prepare(self, env: Mapping[str, str]) -> None:
        """Have the script written with which launchers start ranks there."""
        self._environment, self._prepared = dict(env), False
        self._send_environment()

    def start(self, processes: Sequence[HostProcess], wishes: Sequence[Mapping[str, Any]]) -> None:
        """Start processes, now or when the host is there again."""
        self._kill = None
        for process, wish in zip(processes, wishes, strict=True):
            self.processes[process.id] = process
            self._wishes[process.id] = wish
        self.link.send({"do": "start", "processes": list(wishes)})

    def expect(self, process: HostProcess, wish: Mapping[str, Any] | None) -> None:
        """Know of a process that an earlier supervisor was about to start. `wish`: how, if that is known."""
        self.processes[process.id] = process
        if wish is not None:
            self._wishes[process.id] = wish

    def signal(self, *, kill: bool) -> None:
        """Ask its processes to end, now or when it is there again."""
        self._kill = kill
        self.link.send({"do": "signal", "kill": kill})

    def stacks(self) -> None:
        self.link.send({"do": "stacks"})

    def release(self) -> None:
        """Have the agent end everything, send the checkpoints and remove the stage; `released` tells when
        it has."""
        self._releasing, self.heard = True, time.monotonic()
        if self.link.up:
            self.link.send({"do": "release"})
        elif self._unwritable:
            # It was not told to wait for us, and hears of its end as soon as it is there again.
            self.away, self._retry_at = time.time(), 0.0
        else:
            self.released = True

    def close(self) -> None:
        self.link.close()
        self._sync.close()

    def register(self, poll: select.poll) -> None:
        self.link.register(poll)

    def advance(self) -> None:
        """Do what can be done now."""
        if self.lost or self.released or (self.failed and not self._releasing):
            return
        now = time.monotonic()
        if not self.link.opened:
            if now >= self._retry_at:
                self._open("stage" if self._is_new else "resume")
        else:
            try:
                for header, body in self.link.pump():
                    self._take_or_leave(header, body)
            except LinkError as error:
                self._on_loss(error)
            except OSError as error:
                self.link.close()
                self._unwritable = True
                why = f"the run's folder here cannot be written: {error.strerror or error}"
                self._on_loss(LinkError(why))
            else:
                if self.link.up and now - self._pinged > self.link.ping_every_s:
                    self._ping()
        self._look_at_sync()
        self._look_at_clock()

    def _take_or_leave(self, header: Mapping[str, Any], body: bytes) -> None:
        """In the end, what cannot be written here stays there. An OSError passes through before that."""
        try:
            self._take(header, body)
        except OSError as error:
            if not self._releasing:
                raise
            self._leave("what its ranks wrote last", error)

    def _leave(self, what: str, error: OSError) -> None:
        assert self.facts is not None
        place = os.path.join(self.facts.stage, "run")
        why = f"cannot be written here ({error.strerror or error})"
        self.not_kept = f"{what} on host {self.name} {why}: it stays there in {place!r}"

    def _take(self, header: Mapping[str, Any], body: bytes) -> None:
        kind = header["is"]
        if kind != "pong":
            self.heard = time.monotonic()
        if kind in ("chunk", "whole"):
            self._arrivals.take(header, body, 0.0 if self.facts is None else self.facts.clock_offset_s)
        elif kind == "connected":
            # First of all the clock: what is told next are times.
            for _ in range(_SAMPLES):
                self._ping()
            self.link.send({"do": "hello", "have": self._arrivals.have()})
        elif kind == "pong":
            if self._clock.pong(header) and self.facts is not None:
                self.facts = dataclasses.replace(self.facts, clock_offset_s=self._clock_offset())
        elif kind == "facts":
            self._on_facts(header)
        elif kind == "ports":
            self.ports = [int(port) for port in header["ports"]]
        elif kind == "leased" and self.facts is not None:
            self.facts = dataclasses.replace(self.facts, leased=header)
        elif kind == "reached":
            self._way, self.no_way = None, {str(name): str(why) for name, why in header["why"].items()}
        elif kind == "prepared":
            self._prepared = True
        elif kind == "trouble":
            self.failed = str(header["why"])
        elif kind in ("started", "ended"):
            self._on_process(header)
        elif kind == "checkpoint":
            try:
                self._arrivals.keep(header, body, self.name)
            except OSError as error:
                self._leave("a checkpoint", error)
        elif kind == "sent":
            self.link.send({"do": "remove", "keep_run": self.not_kept is not None})
        elif kind == "released":
            self.released = True

    def _ping(self) -> None:
        self._pinged = time.monotonic()
        self.link.send({"do": "ping", "ping": self._clock.ping()})

    def _clock_offset(self) -> float:
        # This machine's clock is this machine's clock: measuring it would only add noise.
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
        self._sync.begin(os.path.join(facts.stage, "work"))

    def _resend(self, known: set[str]) -> None:
        """Say again what the agent may have missed; give up what it has forgotten."""
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
        if self._kill is not None:
            self.link.send({"do": "signal", "kill": self._kill})
        if self.ports is None and self._ports_wanted:
            self.link.send({"do": "ports", "count": self._ports_wanted})
        if self._way is not None:
            self.link.send(self._way)
        if self._lease is not None and self.facts is not None and self.facts.leased is None:
            self.link.send(self._lease)
        if not self._prepared:
            self._send_environment()
        if self._releasing:
            self.link.send({"do": "release"})

    def _send_environment(self) -> None:
        if self.facts is not None and self._environment is not None:
            self.link.send({"do": "prepare", "env": self._environment, "python": self.facts.python})

    def _on_process(self, told: Mapping[str, Any]) -> None:
        known = self.processes.get(told["id"])
        if known is None or known.over:
            return
        offset = 0.0 if self.facts is None else self.facts.clock_offset_s
        self.processes[known.id] = known.as_told(told, offset)

    def _on_loss(self, error: LinkError) -> None:
        if self.released:
            return
        if self._releasing and self.is_gone:
            self.released = True  # an agent that is begun anew there would end at once, as this one has
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
        # Not all hosts of a run at the same moment: it may be their number that is too much.
        self._retry_at = time.monotonic() + self._backoff * jitter(1, 2)
        self._backoff = min(self._backoff * 2, _MOST_BACKOFF_S)

    def _forget(self) -> None:
        """Its agent has not waited for us, as nothing was ever given to it: set it up once more."""
        self.facts, self.ports, self._clock = None, None, HostClock()
        self._prepared = self._environment is None
        self._sync.close()
        self._sync = rsync.Sync(self.name, self._settings)

    def _look_at_clock(self) -> None:
        if self._gone is not None and time.monotonic() - max(self._gone[1], self.heard) > _LAST_WORDS_S:
            self._give_up(self._gone[0])
            return
        if self.away is not None and time.time() - self.away > self._settings.grace_s:
            self._give_up(f"it did not answer for {self._settings.grace_s:g} s (--grace): {self.why_away}")

    @property
    def is_gone(self) -> bool:
        """Whether it is known to have ended, or our place on it: only its last words are waited for."""
        return self._gone is not None or any(process.place_gone for process in self.processes.values())

    def give_up(self, why: str) -> None:
        """Whoever gave the host says that it has ended. What it sent last may still be on its way."""
        if self._gone is None:
            self._gone = why, time.monotonic()

    def settle(self) -> None:
        """Wait no longer for last words: what has come of them is what there is."""
        if self.is_gone and not self.lost:
            self._give_up("it has ended" if self._gone is None else self._gone[0])

    def _give_up(self, why: str) -> None:
        self.lost = why
        if self._is_new:
            self.failed = why
        self.link.close()
        try:
            offset_s = 0.0 if self.facts is None else self.facts.clock_offset_s
            missing = self._arrivals.tear(self.link.rest(), offset_s)
        except OSError:
            missing = 0  # a full disk here: the loss of the host is told all the same
        if missing:
            print(f"host {self.name}: {missing:,} bytes of its ranks' files were lost on the way", flush=True)
        for process in list(self.processes.values()):
            if not process.over:
                self._lose(process, f"host {self.name} was lost: {why}")

    def _lose(self, process: HostProcess, why: str) -> None:
        self.processes[process.id] = dataclasses.replace(process, lost=why, ended=time.time())

    def _look_at_sync(self) -> None:
        why = self._sync.look()
        if why is not None:
            self.failed = why

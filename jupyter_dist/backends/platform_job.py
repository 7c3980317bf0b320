"""Run ranks on the hosts of one platform job, such as a job of SageMaker or Databricks.

The job runs our host program on its machines. Host and driver exchange frames through a mailbox in a store.
A `PlatformClient` submits, finds, reads and ends the job. This module maps jobs to attempts and states.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ..errors import DistError, LaunchError, Unreachable
from ..folder import RunFolder
from ..job import Job, Poll, State
from .hosted import Hosted, Hosting, HostSettings, Mailbox, RankEnvironmentOptions
from .interface import Handle
from .job_watch import CredentialsExpired, JobView, JobWatch, StopAccepted

__all__ = ["PlatformClient", "PlatformJob", "leave_files"]


_View = TypeVar("_View", bound=JobView)
_HOSTS_S, _STOP_S, _TRIES_S, _RELEASE_S = 20.0, 44.0, 50.0, 56.0
"""Limits of a release, in seconds since its begin. A supervisor waits a minute for a release.

They limit: waiting for the hosts; waiting for the job to end by itself, before it is stopped; repeated
attempts to stop it; the release.
"""


class PlatformClient(Protocol[_View]):
    """The requests of one run to its platform.

    A method that may block says so. It raises Unreachable if a retry may help, CredentialsExpired if the user
    has to log in, and other DistErrors.
    """

    look_every_s: float
    why_s: float
    """Seconds until the platform knows why a job has ended."""
    end_s: float
    """Seconds for a job to end by itself after its hosts were released. The cell waits for it."""

    @property
    def settings(self) -> HostSettings: ...

    @property
    def wanted(self) -> RankEnvironmentOptions: ...

    def mailbox(self, folder: RunFolder) -> Mailbox:
        """Return the run's mailbox, in a store that the job's hosts can use."""
        ...

    def submit(self, job: Job, attempt: int, mailbox: Mailbox, before: _View | None) -> _View:
        """Write the hosts' files to the mailbox, and start a job. Repeatable: there is only one job.

        `before`: the job of an earlier attempt. Blocks.
        """
        ...

    def find(self, job: Job, attempt: int) -> _View | None:
        """Return the newest job of the run that serves this attempt and has not ended.

        None: there is no such job, and no pending submission will start one. Blocks.
        """
        ...

    def look(self, seen: _View) -> _View:
        """Return the job's current state. A deleted job has `ended`. Blocks."""
        ...

    def tell_all(self, seen: _View) -> None:
        """Send the platform the last facts of the run, before the hosts are released and the job ends.

        Blocks. Never raises.
        """
        ...

    def end(self, seen: _View, folder: RunFolder, *, wait_s: float) -> str | None:
        """Wait for a job to end by itself, and stop it if it does not. Returns a line on the ended job.

        The caller repeats the call, with less time, after Unreachable or CredentialsExpired. Blocks. Raises
        what `wait_or_stop` raises.
        """
        ...

    def how_to_stop(self, seen: _View) -> str:
        """Return the command with which the user can stop the job in a terminal."""
        ...

    def tidy(self, seen: _View | None = None) -> None:
        """Remove the run's files from the platform, and those of the job. Prints what it cannot remove.

        Blocks. Never raises.
        """
        ...

    def hosts(self, job: Job, seen: _View) -> Sequence[Mapping[str, Any]]:
        """Return the hosts, as in `Hosting`."""
        ...

    def away(self, first: _View, seen: _View) -> str | None:
        """Return why the hosts of the state `first` are lost, for the user. None while they may run."""
        ...

    def so_far(self, seen: _View) -> str | None:
        """Return a line on what a running job has cost so far. None: the platform does not report it."""
        ...


def leave_files(mailbox: Mailbox) -> None:
    """Upload the hosts' files to the store. Raises Unreachable."""
    try:
        mailbox.upload()
    except OSError as error:
        raise Unreachable(str(error)) from error


def _in_thread(what: Callable[[], None]) -> threading.Thread:
    """Run something that may hang in a daemon thread."""
    thread = threading.Thread(target=what, name="jupyter-dist release", daemon=True)
    thread.start()
    return thread


class PlatformJob(Generic[_View]):
    """The run of this process on a platform. It implements `Backend` with a `PlatformClient`."""

    poll_interval_s: ClassVar[float] = 0.1

    def __init__(
        self, view: type[_View], known_as: str, client: Callable[[Job, RunFolder], PlatformClient[_View]]
    ) -> None:
        """`known_as` is the job's key in the handle. `client` must not block."""
        self._type, self._known_as, self._client_of = view, known_as, client
        self._hosted = Hosted(self._hosting)
        self._client: PlatformClient[_View] | None = None
        self._mailbox: Mailbox | None = None
        self._seen: _View | None = None
        self._watch: JobWatch[_View] | None = None
        self._served = False
        """Whether hosts of this attempt have answered."""

    def default_np(self) -> int:
        return 1

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        client, mailbox = self._open(job, folder)
        seen = client.find(job, attempt)
        if seen is not None and seen.ending:
            raise Unreachable(f"{seen.called} is still ending")
        if seen is None:
            try:
                seen = client.submit(job, attempt, mailbox, self._seen)
            except Unreachable:
                raise
            except DistError:
                client.tidy()
                raise
            if seen.ended is not None:
                raise LaunchError(seen.ended)
            print(f"{seen.called}: {seen.page}", flush=True)
        self._follow(seen)
        self._served = False
        return {**self._hosted.submit(job, folder, attempt), **self._known(seen)}

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle | None:
        client, _ = self._open(job, folder)
        try:
            seen = client.find(job, attempt)
        except CredentialsExpired as error:  # the job continues, and the user may log in meanwhile
            raise Unreachable(str(error)) from error
        if seen is None:
            if attempt == 0:  # no host has ever run, and another submission uploads the files again
                client.tidy()
                self._mailbox = None
            return None
        self._follow(seen)
        return {**self._hosted.find(job, folder, attempt), **self._known(seen)}

    def poll(self, job: Job, folder: RunFolder, handle: Handle, cursor: Any = None) -> Poll:
        self._adopt(handle)
        poll = self._hosted.poll(job, folder, handle, cursor)
        watch = self._watch
        if watch is not None and watch.signed_out and not poll.state.ended:
            raise Unreachable(f"{watch.trouble} The job continues")
        return self._as_seen(poll)

    def exchange(
        self, job: Job, folder: RunFolder, handle: Handle, wishes: Sequence[Mapping[str, Any]], wait_s: float
    ) -> dict[str, Any]:
        """Exchange messages with the ranks of a session; see `Hosted.exchange`."""
        self._adopt(handle)
        news = self._hosted.exchange(job, folder, handle, wishes, wait_s)
        poll = self._as_seen(Poll.from_json(news["poll"]))
        return {**news, "poll": poll.to_json(), "over": self._watch and self._watch.seen.ended}

    def _as_seen(self, poll: Poll) -> Poll:
        """Return the state of the ranks with what the platform reports of the job."""
        watch = self._watch
        if watch is None:
            return poll
        seen = watch.seen
        if poll.state is State.FAILED and seen.stopped:
            return dataclasses.replace(poll, state=State.STOPPED, final=True)
        if poll.state is not State.PENDING:
            self._served = True
            assert self._client is not None
            cost = self._client.so_far(seen) if poll.state is State.RUNNING else None
            return poll if cost is None else _telling(poll, poll.detail, cost)
        if seen.ended is not None:
            # A job that somebody has stopped before its hosts ran must not be followed by another one.
            state = State.STOPPED if seen.stopped else State.FAILED
            return dataclasses.replace(poll, state=state, detail=seen.ended, final=seen.final or seen.stopped)
        return _telling(poll, f"{seen.called} {seen.waits_for}", poll.detail, f"see {seen.page}")

    def stop(self, job: Job, folder: RunFolder, handle: Handle, *, kill: bool) -> None:
        self._adopt(handle)
        self._hosted.stop(job, folder, handle, kill=kill)

    def ask(self, job: Job, folder: RunFolder, handle: Handle, rank: int | None, verb: str) -> None:
        self._adopt(handle)
        self._hosted.ask(job, folder, handle, rank, verb)

    def release(self, job: Job, folder: RunFolder, handle: Handle) -> str | None:
        """End the job. Returns a line on how it ended, or how the user can stop it.

        A forgotten job costs money. Therefore neither slow hosts nor a platform that refuses delay the stop.
        """
        begun = time.monotonic()
        seen = self._adopt(handle)
        client, _ = self._open(job, folder)

        def left_s(limit_s: float) -> float:
            return max(0.0, begun + limit_s - time.monotonic())

        def part() -> None:
            client.tell_all(seen)
            self._hosted.release(job, folder, handle)

        parting = _in_thread(part)
        parting.join(_HOSTS_S)
        stop_s = left_s(_STOP_S)
        if not self._served:
            stop_s = 0.0
        elif not parting.is_alive():  # else the hosts are still sending files
            stop_s = min(client.end_s, stop_s)
        stop_at = time.monotonic() + stop_s
        told: list[str | None] = []
        trouble = "it does not answer"

        def end() -> None:
            nonlocal trouble
            while True:
                try:
                    told.append(client.end(seen, folder, wait_s=max(0.0, stop_at - time.monotonic())))
                    return
                except StopAccepted as error:
                    told.append(f"{seen.called} was asked to end; {error}; see {seen.page}")
                    return
                # The platform is busy, or the user may log in meanwhile.
                except (Unreachable, CredentialsExpired) as error:
                    trouble = str(error)
                    if not left_s(_TRIES_S):
                        return
                except DistError as error:
                    trouble = str(error)
                    return
                time.sleep(1.0)

        _in_thread(end).join(left_s(_RELEASE_S))
        if not told:
            why = trouble.rstrip(".")
            how = f"To end it, in a terminal: {client.how_to_stop(seen)}"
            told.append(f"{seen.called} may still be running and cost money: {why}. {how}; see {seen.page}")
        if told[0] is not None:
            print(told[0], flush=True)
        _in_thread(lambda: client.tidy(seen)).join(left_s(_RELEASE_S))
        return told[0]

    def _known(self, seen: _View) -> dict[str, Any]:
        return {self._known_as: dataclasses.asdict(seen)}

    def _adopt(self, handle: Handle) -> _View:
        """Return the job. A process that has not started it reads it from the handle."""
        if self._seen is None:
            self._seen = self._type(**handle[self._known_as])
        return self._seen

    def _follow(self, seen: _View) -> None:
        self._seen = seen
        if self._watch is not None:
            self._watch.close()
            self._watch = self._watching(seen)

    def _watching(self, seen: _View) -> JobWatch[_View]:
        assert self._client is not None
        return JobWatch(self._client.look, seen, self._client.look_every_s)

    def _open(self, job: Job, folder: RunFolder) -> tuple[PlatformClient[_View], Mailbox]:
        if self._client is None or self._mailbox is None:
            self._client = self._client_of(job, folder)
            self._mailbox = self._client.mailbox(folder)
        return self._client, self._mailbox

    def _hosting(self, job: Job, folder: RunFolder) -> Hosting:
        client, mailbox = self._open(job, folder)
        assert self._seen is not None
        self._watch = begun = self._watching(self._seen)
        hosts = client.hosts(job, self._seen)

        def gone() -> dict[str, str]:
            watch = self._watch or begun
            # Before the first answer, a host that replaces a lost one reads the same mailbox.
            why = client.away(watch.first, watch.seen) if self._served else watch.seen.ended
            return {} if why is None else {str(host["name"]): why for host in hosts}

        def close() -> None:
            (self._watch or begun).close()
            mailbox.close()

        return Hosting(
            hosts,
            client.settings,
            mailbox.reach,
            client.wanted,
            trouble=lambda: (self._watch or begun).trouble or mailbox.trouble,
            gone=gone,
            why_s=client.why_s,
            close=close,
        )


def _telling(poll: Poll, *parts: str | None) -> Poll:
    return dataclasses.replace(poll, detail="; ".join(filter(None, parts)))

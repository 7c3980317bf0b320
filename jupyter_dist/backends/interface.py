"""What every backend is: a few blocking calls over JSON, and what it declares about itself.

Any of the calls may raise. What may pass (`errors.Unreachable`, a lost connection, a timeout, HTTP 408, 429
and 5xx: supervise/backend_calls.py) is tried again for as long as the options' field `grace` says, else for
300 s, and is shown under the cell meanwhile. Anything else ends the attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict

from ..cluster_form import Form
from ..folder import RunFolder
from ..job import Job, Poll

__all__ = ["Backend", "Capabilities", "Form", "Handle", "Options"]

Handle = Mapping[str, Any]
"""JSON with which a run is found again."""


class Options(BaseModel):
    """Base of every backend's options: the one source of its flags, form and checks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    form: ClassVar[Form] = Form()
    """Which fields stand open in the form of a cluster, and under which titles the others are folded."""

    @property
    def ranks(self) -> int | None:
        """How many ranks these options ask for, where nobody says -np. None: they do not say."""
        return None

    @classmethod
    def instead_of(cls, flag: str) -> str | None:
        """What to do where somebody gives a flag that the launcher has and these options do not: a sentence
        that goes on from the flag's name. None: nothing is known of it."""
        return None

    @classmethod
    def meant_by(cls, np: int) -> dict[str, Any] | None:
        """What a number of ranks below 1 means: a value of `np`, and values of options. None: nothing."""
        return None


@dataclass(frozen=True)
class Capabilities:
    """What only some backends can. The views hide what one cannot."""

    hosts: bool = False
    """Takes -H and --hostfile."""
    restarts: bool = True
    """Can start all ranks again as a new attempt."""
    own_restarts: bool = False
    """--max-restarts is its launcher's business, which starts the ranks again by itself."""
    outlives: bool = False
    """Its ranks go on without a supervisor for a while. A new one finds them again."""
    apart: bool = False
    """Its calls may block, or its client library brings threads, signals or seconds of imports: it lives in a
    child process of the supervisor, which may die and is started again; a new object then has to answer with
    handle and cursor alone. Its calls come from several threads, `stop` also while a `poll` takes its time.
    The supervisor imports its class as well: the client library is to be imported by the calls."""
    client: tuple[str, ...] = ()
    """Where it lives `apart`: the modules of its client library, whose import starts no thread. The template
    imports them, and that child process is a fork where it can be one."""
    visible: bool = True
    """The ranks' processes are seen in this machine's /proc, by the pids that `poll` tells."""
    stacks: bool = True
    """Running ranks can be asked for their stacks."""
    warm: bool = False
    """Its supervisor and ranks can be forked from the template process."""
    sites: bool = False
    """Its `detect` tells under "sites" what there is to run on, such as clusters that are up, each with the
    options that lead there (queries/answers/forms.py: Site); under "no_site" it says why there is none."""
    settle_s: float = 0.3
    """After a failure, the other ranks get that long to say what they saw."""
    failure_grace_s: float = 1.0
    """From SIGTERM to SIGKILL when another rank has failed: they may wait in a collective for ever."""
    stop_grace_s: float = 5.0
    """From SIGTERM to SIGKILL when the user stops the run: time for a checkpoint."""
    submit_limit_s: float = 120.0
    """Where it lives `apart`: a submission that is called off is waited for that long before its process is
    ended and `find` is asked."""


class Backend(Protocol):
    """Where and how a run is launched. Holds no state of a run beyond what `submit` returns,
    except what only the parent of a process can know."""

    name: ClassVar[str]
    options: ClassVar[type[Options]]
    capabilities: ClassVar[Capabilities]
    poll_interval_s: ClassVar[float]
    """How often `poll` is worth calling; process backends are also polled when a child ends."""

    def default_np(self) -> int:
        """The number of ranks when the user names none."""
        ...

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        """Warnings about what was asked for. Raises InputError when it cannot work."""
        ...

    def detect(self) -> dict[str, Any]:
        """What is there to run on, for people: versions, GPUs, addresses. Never raises."""
        ...

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        """What `submit` would start, as JSON. Pure: starts, reserves and writes nothing."""
        ...

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        """Start all ranks of an attempt; returns as soon as they are on their way.

        Raises DistError, with nothing left running, when they cannot be started.
        """
        ...

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle | None:
        """The handle of an attempt whose `submit` was begun and of whose end nothing is known.

        None proves that nothing of the attempt runs, nor will. Asked only of a backend that `outlives`, and
        of one that lives `apart`: its process may die in the midst of a submission. Hence what `submit`
        starts has a name that follows from the run's id and the attempt. Repeatable.
        """
        ...

    def poll(self, handle: Handle, cursor: Any) -> Poll:
        """How the attempt stands. Does not block on local processes. Repeatable.

        Of a backend that `outlives`, a new object has to answer with the handle alone.
        """
        ...

    def stop(self, handle: Handle, *, kill: bool) -> None:
        """Ask all ranks to end (`kill`: end them now). Repeatable; a gone rank is no error."""
        ...

    def ask(self, handle: Handle, rank: int | None, verb: str) -> None:
        """Ask a rank, or every one that runs (`rank` None), for something that it writes into its folder.

        The verbs: `stacks` has it append its stacks to `stacks.txt`; asked only where `capabilities.stacks`.
        Does not wait for the answer. A rank that is gone is no error; a verb that is not known is ignored.
        """
        ...

    def release(self, handle: Handle) -> str | None:
        """The attempt has ended and no other follows from it: give back what is held for it, on
        other hosts too. Repeatable; never raises.

        Returns what the run has come to beside its ranks' results, such as what is billed for it, in a line
        for the user, which stands in its view from then on; None: nothing.
        """
        ...

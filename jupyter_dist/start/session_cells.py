"""Start of a cell or a call in a session, and of the session with its first cell."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import backends
from ..backends import Options
from ..capture import source as _source
from ..capture.session import environment
from ..capture.session import names as session_names
from ..capture.session.choice import Choice
from ..errors import InputError, LaunchError
from ..launch import session_link
from ..plan.run_plan import Plan
from ..record.sessions import StoredSession, find_session, known_names, take_end
from ..showing import display
from . import session_default, session_plan
from .origin import Origin
from .run_start import (
    describe,
    is_here,
    launch_payload,
    payload_facts,
    payload_of_call,
    payload_of_cell,
    warn_of_variables,
)

if TYPE_CHECKING:
    from ..showing.run import Run

__all__ = ["call_in_session", "cell_in_session", "check_session", "describe_in_session"]

_IDLE_S, _IDLE_ON_CLUSTER_S = 86_400.0, 3_600.0
_LARGE = 1_000_000
"""A payload of more bytes takes longer to write than a question to the supervisor."""
_TRIES = 5
_EMPTY: Mapping[str, Any] = {"owned": (), "sent": {}, "seen": {}, "names": {}, "uses": {}}


def check_session(plan: Plan, given: Mapping[str, Any]) -> StoredSession | None:
    """Return the plan's session, or None if its cell starts it. Raises InputError."""
    run = plan.run
    assert run.session is not None
    found = find_session(run.session)
    if found is None:
        if not plan.backend.capabilities.sessions:
            raise InputError(
                f"--session does not work with the backend {plan.backend.name!r} yet. Its ranks cannot stay "
                "between cells. Use --backend local, or remove --session" + _or_off(run.session)
            )
        refused = plan.options.no_session if isinstance(plan.options, Options) else None
        if refused is not None:
            raise InputError(f"{refused}. Change or remove the flag, or remove --session")
        if run.ranks is not None:
            _check_ranks(run.ranks, plan.world_size, run.session)
        return None
    for name in ("cluster", "backend"):
        if given.get(name) is not None and plan.backend.name != found.about["backend"]:
            raise InputError(
                f"The session {found.name!r} uses the backend {found.about['backend']!r}, not "
                f"{plan.backend.name!r}. Remove --{name}, or name another session" + _or_off(found.name)
            )
    if run.np is not None and "np" in given and run.np != found.world_size:
        raise InputError(
            f"The session {found.name!r} has {found.world_size} ranks, not {run.np}. Remove -np {run.np}, or "
            f"close the session with `%dist close {found.name}`" + _or_off(found.name)
        )
    if given.get("env"):
        raise InputError(
            f"--env sets variables when the session {found.name!r} starts, and the session runs already. Set "
            "os.environ in the cell, or close the session first" + _or_off(found.name)
        )
    fields = plan.backend.options.model_fields.keys() | {"hosts", "hostfile", "idle_timeout", "cold"}
    for name in sorted(given.keys() & fields):
        flag = "--" + name.replace("_", "-")
        raise InputError(
            f"{flag} counts when the session {found.name!r} starts, and the session runs already. Remove "
            f"{flag}, or close the session with `%dist close {found.name}`" + _or_off(found.name)
        )
    if run.ranks is not None:
        _check_ranks(run.ranks, found.world_size, found.name)
    return found


def _or_off(name: str) -> str:
    """Return the advice for a notebook whose plain cells go to this session."""
    return (
        ", or send plain cells to new ranks with `%dist session off`" if session_default.get() == name else ""
    )


def _check_ranks(ranks: str, world_size: int, name: str) -> None:
    wrong = [rank for rank in ranks.split(",") if int(rank) >= world_size]
    if wrong:
        raise InputError(
            f"--ranks {wrong[0]}: the session {name!r} has the ranks 0 to {world_size - 1}. "
            "Choose among these"
        )


def cell_in_session(
    source: str,
    namespace: dict[str, Any],
    plan: Plan,
    origin: Origin,
    given: Mapping[str, Any],
    found: StoredSession | None = None,
) -> Run:
    """Start a cell in the plan's session. Does not wait for it. Raises DistError with nothing started.

    `found`: the session, if it runs and `given` was checked for it.
    """
    if found is None:
        found = check_session(plan, given)
        if found is not None and origin.line is not None and not origin.argv:
            checked = session_plan.CheckedPlan(_plan_of(found, plan), given, found)
            session_plan.keep(origin.line, checked)
    code = _of_cell(source, namespace, origin)
    if found is None:
        return _start(plan, given, origin, source.removeprefix("\n"), code, None)
    with _no_collection():
        session_link.wake(found, (source, f"<{origin.label}>", _source.cell_flags(origin.flags)))
        return _start(plan, given, origin, source.removeprefix("\n"), code, found)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python's garbage collector off. A collection takes as long as the capture of a small cell."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclasses.dataclass(frozen=True)
class _Code:
    """The code of a cell or a call. Both functions get the plan of the session, whose ranks run the code."""

    choose: Callable[[Plan, Mapping[str, Any]], Choice]
    """Return what to send, from what the session's supervisor says of itself."""
    capture: Callable[[Plan, Choice], Any]
    namespace: Mapping[str, Any]
    prepare: Callable[[], object] | None = None
    """Does what needs no answer of the supervisor. Raises CaptureError."""


def _of_cell(source: str, namespace: dict[str, Any], origin: Origin) -> _Code:
    def choose(plan: Plan, about: Mapping[str, Any]) -> Choice:
        where = session_names.Where(plan.run.session or "", about, is_here(plan), origin.notebook)
        return session_names.choose(source, origin.label, origin.flags, namespace, where)

    def capture(plan: Plan, choice: Choice) -> Any:
        return payload_of_cell(source, namespace, plan, origin, choice)

    return _Code(choose, capture, namespace, lambda: _source.parse(source, origin.label, origin.flags))


def describe_in_session(
    source: str, namespace: dict[str, Any], plan: Plan, origin: Origin, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return as JSON what `cell_in_session` would start. Starts and writes nothing. Raises DistError."""
    found = check_session(plan, given)
    if found is None:
        return {
            "session": {"name": plan.run.session, "runs": False},
            **describe(source, namespace, plan, origin),
        }
    code = _of_cell(source, namespace, origin)
    plan, ranks = _plan_of(found, plan), _ranks(plan)
    payload = code.capture(plan, code.choose(plan, _ask_about(found, plan)))
    return {
        "session": {"name": found.name, "runs": True},
        "backend": plan.backend.name,
        "np": plan.world_size,
        "ranks": list(range(plan.world_size)) if ranks is None else ranks,
        "payload": payload_facts(payload),
    }


def call_in_session(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    plan: Plan,
    origin: Origin,
    given: Mapping[str, Any],
    assigned: str | None = None,
) -> Run:
    """Start `fn(*args, **kwargs)` in the plan's session. Does not wait for it. Raises DistError.

    `assigned`: a name that the call assigns in place of the notebook's present value.
    """
    import sys

    main = sys.modules["__main__"].__dict__

    def choose(plan: Plan, about: Mapping[str, Any]) -> Choice:
        where = session_names.Where(plan.run.session or "", about, is_here(plan), origin.notebook)
        choice = session_names.choose_for_call((fn, args, dict(kwargs)), main, where)
        if assigned is not None:
            choice.seen.update(session_names.seen_value(assigned, main, where))
        return choice

    def capture(plan: Plan, choice: Choice) -> Any:
        return payload_of_call(fn, args, kwargs, plan, origin, choice)

    name = getattr(fn, "__qualname__", repr(fn))
    return _start(plan, given, origin, name, _Code(choose, capture, main), check_session(plan, given))


def _start(
    plan: Plan,
    given: Mapping[str, Any],
    origin: Origin,
    source: str,
    code: _Code,
    found: StoredSession | None,
) -> Run:
    assert plan.run.session is not None
    if found is None:
        with session_link.starting(plan.run.session):
            found = check_session(plan, given)  # another kernel may have started it meanwhile
            if found is None:
                choice = code.choose(plan, _EMPTY)
                payload = code.capture(plan, choice)
                warn_of_variables(code.namespace, plan)
                _tell_of_end(plan.run.session)
                run = launch_payload(payload, plan, source, origin, _facts(plan, choice), None)
                session_link.wait_until_open(plan.run.session, run.folder)
                return run
    plan = _plan_of(found, plan)
    known = None if plan.run.ranks or plan.run.session_restart == "all" else known_names(found)
    if known is not None:
        with contextlib.suppress(session_link.NamesChanged):
            return _send(plan, origin, source, code, found, known)
    for _ in range(_TRIES):
        known = _ask_about(found, plan, code.prepare)
        with contextlib.suppress(session_link.NamesChanged):
            return _send(plan, origin, source, code, found, known)
    raise LaunchError(
        f"The names of the session {found.name!r} have changed {_TRIES} times while this cell was prepared, "
        "because other cells have run. Run the cell again"
    )


def _send(
    plan: Plan, origin: Origin, source: str, code: _Code, found: StoredSession, about: Mapping[str, Any]
) -> Run:
    """Send a cell to a session. `about`: what is known of the names of its ranks. Raises NamesChanged."""
    choice = code.choose(plan, about)
    payload = code.capture(plan, choice)
    if payload.nbytes > _LARGE and about.get("number") != _ask_about(found, plan).get("number"):
        raise session_link.NamesChanged  # before the payload is written
    more = {
        "sent": choice.sent,
        "seen": choice.seen,
        "together": choice.together,
        "needs": choice.needs,
        "environ": environment.changed() if is_here(plan) else {},  # in no file: a value can be secret
        "number": about.get("number"),
    }
    delivery = session_link.Delivery(found, more)
    facts = {**_facts(plan, None), "owned": sorted(payload.words.intersection(about["owned"]))}
    run = launch_payload(payload, plan, source, origin, facts, delivery)
    for note in choice.notes:  # not those of a cell that is chosen anew, because the names have changed
        display.tell(f"note: {note}")
    return run


def _tell_of_end(name: str) -> None:
    ended = take_end(name)
    if ended is not None:
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(ended[0]))
        display.tell(
            f"note: the earlier session {name} ended at {at}: {ended[1]}. This cell starts a new session, "
            "without the names of the earlier one."
        )


def _plan_of(found: StoredSession, plan: Plan) -> Plan:
    """Return the plan with the backend and the size of the session. The notebook may use another cluster.

    Ranks on hosts may have another Python: the options say so. The first cell's --session-restart counts
    for a cell that has none.
    """
    restart = plan.run.session_restart or found.about.get("restart")
    if restart != plan.run.session_restart:
        plan = dataclasses.replace(plan, run=plan.run.model_copy(update={"session_restart": restart}))
    own = plan.backend
    if not own.capabilities.exchanges and own.name == found.about["backend"]:
        fits = plan.world_size == found.world_size
        return plan if fits else dataclasses.replace(plan, world_size=found.world_size)
    backend = backends.load(found.about["backend"])
    if backend.capabilities.exchanges:
        options = backend.options(**found.about["options"])
        plan = dataclasses.replace(plan, backend=backend, options=options, cluster=None)
    elif plan.backend.name != backend.name:
        plan = dataclasses.replace(plan, backend=backend, options=backend.options(), cluster=None)
    return dataclasses.replace(plan, world_size=found.world_size)


def _ask_about(
    found: StoredSession, plan: Plan, meanwhile: Callable[[], object] | None = None
) -> dict[str, Any]:
    message = {"ask": "about", "ranks": _ranks(plan), "restart": plan.run.session_restart}
    return session_link.ask(found, message, meanwhile)


def _ranks(plan: Plan) -> list[int] | None:
    return None if plan.run.ranks is None else [int(rank) for rank in plan.run.ranks.split(",")]


def _facts(plan: Plan, choice: Choice | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": plan.run.session,
        "ranks": _ranks(plan),
        "restart": plan.run.session_restart or "rank",
    }
    if choice is not None:  # the first cell, which starts the session
        usual_s = _IDLE_ON_CLUSTER_S if plan.backend.capabilities.apart else _IDLE_S
        facts |= {"idle_timeout_s": plan.run.idle_timeout or usual_s}
        facts |= {"sent": choice.sent, "seen": choice.seen}
    return facts

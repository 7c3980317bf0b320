"""`jupyter_dist.session`: ranks that stay, used from Python."""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from .. import backends
from ..capture import payload_builder
from ..errors import DistError, InputError, RunFailed
from ..flags import shown
from ..launch import session_link
from ..plan.run_plan import make_plan
from ..record.sessions import find_session
from ..showing import display
from ..worker.session import calls, place
from ..worker.session.content import digest
from . import session_end
from .follow import finish
from .origin import origin_of_call
from .run_start import warn
from .session_cells import call_in_session, check_session

if TYPE_CHECKING:
    from ..showing.run import Run

__all__ = ["Session", "session"]

_MOST_NAMES = 20
_OF_EACH_CALL = {"session", "np", "backend", "session_restart"}
F = TypeVar("F", bound=Callable[..., Any])


class Session:
    """Ranks that stay between calls. `with` closes the session at its end."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = dict(given)
        self.name: str = given["session"]
        self._last: Run | None = None
        self._closed = False
        plan = make_plan(self._given, spelled_as_flags=False)
        warn(plan)
        check_session(plan, self._given)

    def __repr__(self) -> str:
        found = find_session(self.name)
        if found is None:
            return f"Session({self.name!r}, not running)"
        return f"Session({self.name!r}, {found.world_size} ranks on {found.about['backend']})"

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Run:
        """Call `fn(*args, **kwargs)` on every rank, and show the output until the call has ended.

        The first call starts the session. Raises RunFailed, RunStopped, and other DistErrors.
        """
        if not callable(fn):
            raise InputError(f"run needs a function to call, got {type(fn).__name__}")
        self._last = self._start(fn, args, kwargs)
        return finish(self._last)

    @property
    def results(self) -> Any:
        """The results of the last `run`, by rank. Raises DistError before the first one."""
        if self._last is None:
            raise DistError(f"The session {self.name!r} has run nothing from here. Call run() first")
        return self._last.results

    def __getitem__(self, name: str) -> list[Any]:
        """Return the values of a name by rank. Raises KeyError if a rank lacks it."""
        self._check_running(name)
        run = self._quietly(calls.value, name)
        try:
            run.raise_for_state()
        except RunFailed:
            lacking = [str(error.rank) for error in run.errors if error.type == "KeyError"]
            if not lacking:
                raise
            if len(lacking) == len(run.status.ranks):
                raise self._no_name(name) from None
            where = f"rank {lacking[0]}" if len(lacking) == 1 else f"the ranks {', '.join(lacking)}"
            has = "has" if len(lacking) == 1 else "have"
            raise KeyError(f"{where} of the session {self.name!r} {has} no name {name!r}") from None
        return list(run.results)

    def __setitem__(self, name: str, value: Any) -> None:
        """Assign a name on every rank. The name then belongs to the ranks."""
        _check_name(name)
        self._quietly(calls.assign, {name: value}, assigned=name).raise_for_state()

    def __delitem__(self, name: str) -> None:
        """Delete a name on every rank. Raises KeyError if no rank has it."""
        self._check_running(name)
        run = self._quietly(calls.remove, name.encode())
        run.raise_for_state()
        if not any(run.results):
            raise self._no_name(name)

    def _check_running(self, name: object) -> None:
        """Raise InputError if no rank can have the name, because there are no ranks. Starts no session."""
        _check_name(name)
        self._check_open()
        if find_session(self.name) is None:
            raise InputError(
                f"The session {self.name!r} does not run, so it has no name {name!r}. Its first call starts "
                f"it, for example: session.run(fn)"
            )

    def _check_open(self) -> None:
        if self._closed:
            given = [f"{key}={self._given[key]!r}" for key in ("np", "backend") if key in self._given]
            raise InputError(
                f"This session ({self.name!r}) is closed. Make a new session: "
                f"jupyter_dist.session({', '.join([repr(self.name), *given])})"
            )

    def _no_name(self, name: str) -> KeyError:
        found = find_session(self.name)
        names = sorted(() if found is None else found.about["names"])
        more = ", …" if len(names) > _MOST_NAMES else ""
        has = f"Rank 0 has: {', '.join(names[:_MOST_NAMES])}{more}" if names else "Rank 0 has no names"
        return KeyError(f"no rank of the session {self.name!r} has the name {name!r}. {has}")

    def scatter(self, name: str, parts: Sequence[Any]) -> None:
        """Assign a name on every rank: `parts[0]` on rank 0, and so on.

        Raises InputError if there is not one part for each rank.
        """
        _check_name(name)
        self._check_open()
        try:
            number = len(parts)
        except TypeError:
            raise InputError(
                f"scatter needs a list with one part for each rank, got {type(parts).__name__}"
            ) from None
        found = find_session(self.name)
        plan = make_plan(self._now(), spelled_as_flags=False)
        size = plan.world_size if found is None else found.world_size
        if number != size:
            raise InputError(
                f"scatter needs one part for each of the {size} ranks, and got {number}. Split the value "
                f"into {size} parts"
            )
        self._quietly(calls.assign_part, name, list(parts)).raise_for_state()

    def gather(self, name: str) -> Any:
        """Return the values of a name, joined in the order of ranks: lists, tuples, arrays or tensors.

        Raises KeyError if a rank lacks the name, and InputError for values that cannot be joined.
        """
        values = self[name]
        first = values[0]
        home = type(first).__module__.partition(".")[0]
        if isinstance(first, list | tuple) and all(isinstance(one, type(first)) for one in values):
            return type(first)(item for one in values for item in one)
        if home in ("numpy", "torch") and hasattr(first, "shape") and first.shape:
            library: Any = sys.modules[home]
            return library.concatenate(values)
        raise InputError(
            f"gather joins lists, tuples, arrays and tensors, and {name!r} is a {type(first).__name__}. Use "
            f"the list of values: session[{name!r}]"
        )

    def on_start(self, fn: F) -> F:
        """Call a function on every rank now, and later first on each fresh rank. A decorator."""
        self.run(fn)
        origin = origin_of_call(fn)
        found = session_link.existing(self.name)
        here = not backends.declared(found.about["backend"]).capabilities.exchanges
        payload = payload_builder.capture_call(fn, (), {}, here=here, **origin.for_capture())
        path = found.path / f"{place.ON_START}-{_identity(fn)}.pkl"
        if path.exists():
            display.tell(f"note: {fn.__name__} replaces the earlier function of the same name")
        payload.write(path)
        session_link.ask(found, {"ask": "on_start", "path": str(path)})
        return fn

    def close(self) -> None:
        """End the session and its ranks. Prints its bill, if the backend reports one. Repeatable.

        Later calls of this object raise InputError.
        """
        self._closed = True
        found = find_session(self.name)
        if found is None:
            return
        with contextlib.suppress(DistError):  # it has just ended
            _, more = session_end.close(found)
            if more is not None:
                display.tell(more)

    def _now(self) -> dict[str, Any]:
        """Return the options of a call. The session's own options count only for the call that starts it."""
        if find_session(self.name) is None:
            return self._given
        return {name: self._given[name] for name in self._given.keys() & _OF_EACH_CALL}

    def _start(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        assigned: str | None = None,
    ) -> Run:
        self._check_open()
        given = self._now()
        plan = make_plan(given, spelled_as_flags=False)
        return call_in_session(fn, args, kwargs, plan, origin_of_call(fn), given, assigned)

    def _quietly(self, fn: Callable[..., Any], *args: Any, assigned: str | None = None) -> Run:
        run = self._start(fn, args, {}, assigned)
        try:
            return run.wait()
        except KeyboardInterrupt:
            run.folder.request("interrupt")
            raise


def session(
    name: str = place.DEFAULT,
    *,
    np: int | None = None,
    backend: str | None = None,
    idle_timeout: float | str | None = None,
    restart: str | None = None,
    env: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Session:
    """Return the session with this name. Its first call starts it, if no such session runs.

    Args:
        np: the number of ranks, as `-np`.
        backend: the name of a backend whose ranks can stay.
        idle_timeout: how long the session waits for a call before it ends. Default: a day
            with local and ssh, else an hour.
        restart: what replaces a rank that has ended: "never", "rank" or "all".
        env: environment variables of the ranks.
        options: the backend's own options.

    Raises InputError if the session has other ranks, or the backend has no sessions.
    """
    given = {
        "session": name,
        "np": np,
        "backend": backend,
        "idle_timeout": idle_timeout,
        "session_restart": restart,
        "env": dict(env) if env else None,
        **(options or {}),
    }
    return Session({key: value for key, value in given.items() if value is not None})


def _identity(fn: Callable[..., Any]) -> str:
    """Return a text for a file name: the same for a function that the notebook defines again.

    A name such as `_` or `<lambda>`, or of a function in a function, does not identify a function. The
    function's own values then do.
    """
    module, name = getattr(fn, "__module__", ""), getattr(fn, "__qualname__", "")
    if isinstance(fn, FunctionType) and name.strip("_") and "<" not in name:
        text = f"{module}.{name}"
    else:
        text = f"{module}.{name} {digest(fn, sys.modules['__main__'].__dict__)}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise InputError(f"a session has names such as 'lr', got {shown(name)}")

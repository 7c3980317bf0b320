"""Start runs: a cell, a script or a call, from a plan to a `Run`. What magics, terminal and Python share."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .capture import capturing
from .errors import InputError
from .launch import submission
from .manage import choose
from .options import RunOptions
from .plan.planning import Plan, make_plan
from .text.format import size

if TYPE_CHECKING:
    from .showing.run import Run

__all__ = [
    "Origin",
    "attach",
    "current_shell",
    "describe",
    "finish",
    "last_run_id",
    "origin_in",
    "run",
    "start_call",
    "start_cell",
    "warn",
]

_WORTH_SAYING = 1_000_000
_last_run_id: str | None = None


@dataclass(frozen=True)
class Origin:
    """Where code comes from: how tracebacks call it, and the folder whose modules go along."""

    label: str
    directory: Path
    notebook: str | None = None
    labels: Mapping[str, str] | None = None
    flags: int = 0
    """Compiler flags that are in force, such as those of an earlier `from __future__ import`."""
    argv: tuple[str, ...] = ()
    """A script and its arguments, for the ranks' `sys.argv`."""

    def for_capture(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "labels": self.labels,
            "directory": self.directory,
        }


def last_run_id() -> str | None:
    """The run this process started or attached to last."""
    return _last_run_id


def start_cell(source: str, namespace: dict[str, Any], plan: Plan, origin: Origin) -> Run:
    """Start a run of a cell; returns at once. Raises DistError with nothing started."""
    payload = _capture_cell(source, namespace, plan, origin)
    return _launch(payload, _request(plan, source.removeprefix("\n"), origin))


def start_call(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], plan: Plan, origin: Origin
) -> Run:
    """Start a run of `fn(*args, **kwargs)`; returns at once. Raises DistError with nothing started."""
    payload = capturing.capture_call(
        fn, tuple(args), dict(kwargs), ship_modules=plan.run.ship_modules, **origin.for_capture()
    )
    return _launch(payload, _request(plan, getattr(fn, "__qualname__", repr(fn)), origin))


def _capture_cell(source: str, namespace: dict[str, Any], plan: Plan, origin: Origin) -> capturing.Payload:
    return capturing.capture_cell(
        source,
        namespace,
        flags=origin.flags,
        argv=origin.argv,
        ship_modules=plan.run.ship_modules,
        **origin.for_capture(),
    )


def describe(source: str, namespace: dict[str, Any], plan: Plan, origin: Origin) -> dict[str, Any]:
    """What `start_cell` would start, as JSON; the cell is checked as well. Starts and writes nothing."""
    payload = _capture_cell(source, namespace, plan, origin)
    return {
        "backend": plan.backend.name,
        "np": plan.world_size,
        "options": plan.options.model_dump(mode="json"),
        "payload": {
            "names": list(payload.header["names"]),
            "bytes": payload.nbytes,
            "modules": [shipped.path for shipped in payload.modules],
            "notes": list(payload.notes),
        },
        "request": submission.dry_run(_request(plan, source, origin)),
    }


def _request(plan: Plan, source: str, origin: Origin) -> submission.Request:
    return submission.Request(
        backend=plan.backend.name,
        world_size=plan.world_size,
        source=source,
        label=origin.label,
        options=plan.options.model_dump(mode="json"),
        env=plan.run.env,
        metrics=plan.run.metric,
        max_restarts=plan.run.max_restarts,
        timeout_s=plan.run.timeout,
        stall_timeout_s=plan.run.stall_timeout or None,
        cold=plan.run.cold,
        notebook=origin.notebook,
    )


def _launch(payload: capturing.Payload, request: submission.Request) -> Run:
    from .showing.run import Run

    notes = payload.notes
    if payload.nbytes >= _WORTH_SAYING:
        notes = (f"{size(payload.nbytes)} travel with the cell", *notes)
    # Before the start, which for a large payload takes a while.
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return _remember(Run(submission.launch(request, payload)))


def _remember(run: Run) -> Run:
    global _last_run_id
    _last_run_id = run.id
    return run


def warn(plan: Plan) -> None:
    """Tell the user what the plan's check had to say."""
    for warning in plan.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def finish(run: Run) -> Run:
    """Show a run's output until its end and return it. Interrupting stops it, twice kills it.

    Raises RunFailed, RunStopped."""
    from .showing import live

    live.follow(run, result=True)
    run.raise_for_state()
    return run


def current_shell() -> Any:
    """The IPython shell this runs in; None in a plain interpreter. Never imports IPython."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def run(
    fn: Callable[..., Any],
    *args: Any,
    backend: str | None = None,
    cluster: str | None = None,
    np: int | None = None,
    detach: bool = False,
    env: Mapping[str, str] | None = None,
    metrics: Mapping[str, str] | None = None,
    max_restarts: int = 0,
    timeout: float | str | None = None,
    stall_timeout: float | str = 300.0,
    ship_modules: str = "auto",
    cold: bool = False,
    hosts: str | None = None,
    options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Run:
    """Call `fn(*args, **kwargs)` on every rank; `run.results` holds what each returned.

    The named parameters are the flags of `%%distribute`; `options` holds the backend's own, such as
    `{"gpus_per_worker": 1}`; every other keyword goes to `fn`. Shows the output until the run has
    ended, or returns at once with `detach=True`.

    Raises RunFailed, RunStopped, and other DistErrors with nothing started.
    """
    if not callable(fn):
        raise InputError(f"run needs a function to call, got {type(fn).__name__}")
    _check_arguments(fn, args, kwargs)
    named = {
        "backend": backend,
        "cluster": cluster,
        "np": np,
        "detach": detach,
        "env": None if env is None else dict(env),
        "metric": None if metrics is None else dict(metrics),
        "max_restarts": max_restarts,
        "timeout": timeout,
        "stall_timeout": stall_timeout,
        "ship_modules": ship_modules,
        "cold": cold,
        "hosts": hosts,
    }
    # What stands at its default was not asked for: a cluster may set it.
    defaults = {
        name: info.get_default(call_default_factory=True) for name, info in RunOptions.model_fields.items()
    }
    given = {name: value for name, value in named.items() if value is not None and value != defaults[name]}
    clash = sorted(set(options or ()) & RunOptions.model_fields.keys())
    if clash:
        raise InputError(f"{clash[0]!r} is no option of a backend: give it as a keyword of run()")
    plan = make_plan({**given, **(options or {})}, spelled_as_flags=False)
    warn(plan)
    started = start_call(fn, args, kwargs, plan, _call_origin(fn))
    return started if plan.run.detach else finish(started)


def _check_arguments(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse in the notebook what the call would refuse on every rank, a misspelt name of ours as well."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return  # a builtin that does not tell
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InputError(f"{getattr(fn, '__name__', type(fn).__name__)}(): {error}") from None


def _call_origin(fn: Callable[..., Any]) -> Origin:
    shell = current_shell()
    if shell is not None:
        return origin_in(shell)
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    directory = Path(file).absolute().parent if file else Path.cwd()
    return Origin(getattr(fn, "__name__", "call"), directory)


def origin_in(shell: Any) -> Origin:
    """Where the cell that runs now stands."""
    notebook = _notebook(shell)
    directory = Path.cwd()
    if notebook is not None and os.path.isfile(notebook):
        directory = Path(notebook).absolute().parent
    numbers = getattr(shell.compile, "_filename_map", {})
    labels = {filename: f"In[{number}]" for filename, number in numbers.items()}
    # IPython 9 counts up before it runs a cell, earlier ones after it.
    number = shell.execution_count
    if number not in numbers.values():
        number = max(1, number - 1)
    return Origin(f"In[{number}]", directory, notebook, labels, shell.compile.flags)


def _notebook(shell: Any) -> str | None:
    """The notebook's path as the front-end tells it: Jupyter's server by a variable, VS Code by a name."""
    for told in (shell.user_ns.get("__vsc_ipynb_file__"), os.environ.get("JPY_SESSION_NAME")):
        if isinstance(told, str) and told:
            return told
    return None


def attach(run_id: str | None = None, *, follow: bool = False) -> Run:
    """The run with that id (its beginning or end will do), also one that another kernel started.

    Without an id: the newest one. With `follow` its output is shown until it ends; interrupting
    leaves the run alone. Raises RunNotFound.
    """
    from .showing import live
    from .showing.run import Run

    folder = choose(run_id)
    # Where the ranks have outlived their supervisor, the run gets another one.
    submission.resume(folder)
    found = _remember(Run(folder))
    if follow:
        live.follow(found, interrupt="leave", result=True)
    return found

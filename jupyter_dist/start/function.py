"""`jupyter_dist.run`: a function that Python code calls on every rank."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import backends
from ..errors import DistError, InputError
from ..options import OF_NAMES, OF_TUNING, RunOptions
from ..plan.run_plan import make_plan
from ..worker.pickling.annotation_values import signature
from .follow import finish
from .origin import origin_of_call
from .run_start import start_call, warn

if TYPE_CHECKING:
    from ..showing.run import Run

__all__ = ["run", "start_function"]


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
    stop_grace: float | str | None = None,
    stall_timeout: float | str = 300.0,
    ship_modules: str = "auto",
    kept_displays: str = "first",
    no_hint: str | None = None,
    cold: bool = False,
    pdb: bool = False,
    debugpy: bool = False,
    hosts: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    run_tags: str | Sequence[str] | None = None,
    note: str | None = None,
    tune: Mapping[str, Any] | None = None,
    objective: str | None = None,
    max_jobs: int | None = None,
    parallel: int | None = None,
    strategy: str | None = None,
    early_stopping: bool | str | None = None,
    scheduler: str | None = None,
    stop_when: str | None = None,
    warm_start: str | None = None,
    seed: int | None = None,
    scaling: str | Sequence[int] | None = None,
    steps: int | None = None,
    **kwargs: Any,
) -> Run:
    """Call `fn(*args, **kwargs)` on every rank. The run's `results` are what the ranks returned.

    Shows the output until the run has ended, or returns without waiting with `detach=True`.

    The named parameters are the flags of `%%distribute`. Every other keyword is passed to `fn`.

    Args:
        options: the backend's own options, such as `{"gpus_per_worker": 1}`.
        tune: values to try for arguments of `fn`, as in `{"lr": "loguniform(1e-5,1e-1)", "batch": [32, 64]}`.
            Each trial is a run of its own. The parameters after `tune` set how to search. Without `tune` they
            are passed to `fn` as well.
        scaling: numbers of ranks, as in `[1, 2, 4]`. The run measures `fn` with each of them.
        steps: with `scaling`, the training steps after which each size ends.
        name, run_tags, note: labels of the run. If `fn` itself takes one of these names, it is passed to
            `fn`.
            `Run.name = …` sets the label later.

    Raises RunFailed, RunStopped, and other DistErrors with nothing started.
    """
    keywords = _for_function(fn, locals())
    given = _run_options(keywords)
    clash = sorted(set(options or ()) & RunOptions.model_fields.keys())
    if clash:
        raise InputError(
            f"{clash[0]!r} is not an option of a backend. Pass it to run() as a keyword: {clash[0]}=…"
        )
    started = start_function(fn, args, keywords["kwargs"], {**given, **(options or {})})
    return started if detach else finish(started)


def start_function(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], given: Mapping[str, Any]
) -> Run:
    """Start a run of `fn(*args, **kwargs)`. Does not wait for the run. `given`: as for `make_plan`.

    Raises DistError with nothing started.
    """
    if not callable(fn):
        raise InputError(f"run needs a function to call, got {type(fn).__name__}")
    _check_arguments(fn, args, {**kwargs, **given.get("tune", {})}, given.get("backend"))
    plan = make_plan(given, spelled_as_flags=False)
    warn(plan)
    return start_call(fn, args, kwargs, plan, origin_of_call(fn))


def _for_function(fn: Callable[..., Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of `run`, after moving those meant for `fn` into `kwargs`.

    If nothing is tuned and `fn` takes a keyword with the name of a tuning option, it is meant for `fn`.
    Raises InputError if the keyword could mean either.
    """
    takes, anything = _named(fn)
    theirs = {
        name: keywords[name]
        for name in (*OF_NAMES, "scaling")
        if name in takes and keywords[name] is not None
    }
    if theirs:
        keywords = {**keywords, **dict.fromkeys(theirs), "kwargs": {**keywords["kwargs"], **theirs}}
    for about, word, names in (("tune", "tuning", OF_TUNING), ("scaling", "scaling", ("steps",))):
        given = {name: keywords[name] for name in names if keywords[name] is not None}
        if not keywords[about]:
            own = {name: value for name, value in given.items() if anything or name in takes}
            keywords = {**keywords, **dict.fromkeys(own), "kwargs": {**keywords["kwargs"], **own}}
            continue
        for name in given:
            if name in takes:
                raise InputError(
                    f"{name!r} is an option of {word}, but {_called(fn)}() has an argument with the same "
                    f"name. Set the function's argument with functools.partial({_called(fn)}, {name}=…)"
                )
    return dict(keywords)


def _named(fn: Callable[..., Any]) -> tuple[set[str], bool]:
    """Return the names that a function still takes as keywords, and whether it takes any keyword."""
    try:
        known = signature(fn).parameters.values()
    except (TypeError, ValueError):
        return set(), False
    bound = getattr(fn, "keywords", {}) if isinstance(fn, functools.partial) else {}
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = {one.name for one in known if one.kind in by_name and one.name not in bound}
    return names, any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known)


def _called(fn: Callable[..., Any]) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__))


def _run_options(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a run among the keywords of `run`.

    A test checks that they match the model's fields.

    A keyword with its default value was not given by the user, so a cluster may set it.
    """
    found = {}
    for name, field in RunOptions.model_fields.items():
        value = keywords.get("metrics" if name == "metric" else name)
        value = dict(value) if isinstance(value, Mapping) else value
        if value is not None and value != field.get_default(call_default_factory=True):
            found[name] = value
    return found


def _check_arguments(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], backend: str | None
) -> None:
    """Refuse in the notebook what the call would refuse on every rank, also a misspelt option."""
    try:
        takes = signature(fn)
    except (TypeError, ValueError):
        return  # a builtin without a signature
    try:
        takes.bind(*args, **kwargs)
    except TypeError as error:
        raise InputError(f"{_called(fn)}(): {error}{_meant(kwargs, backend)}") from None


def _meant(kwargs: Mapping[str, Any], backend: str | None) -> str:
    """Return advice on a keyword that is an option of the backend."""
    try:
        known = backends.declared(backend).options.model_fields if backend else {}
    except DistError:
        return ""
    found = next((name for name in kwargs if name in known), None)
    return (
        (f". {found!r} is an option of the backend {backend!r}. Write options={{{found!r}: …}}")
        if found
        else ""
    )

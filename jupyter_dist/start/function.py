"""`jupyter_dist.run`: a function that Python code calls on every rank."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..options import RunOptions
from ..plan.planning import make_plan
from .cell_or_call import start_call, warn
from .origin import origin_of_call
from .until_end import finish

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
    given = _run_options(locals())
    clash = sorted(set(options or ()) & RunOptions.model_fields.keys())
    if clash:
        raise InputError(f"{clash[0]!r} is no option of a backend: give it as a keyword of run()")
    started = start_function(fn, args, kwargs, {**given, **(options or {})})
    return started if detach else finish(started)


def start_function(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], given: Mapping[str, Any]
) -> Run:
    """Start a run of `fn(*args, **kwargs)`; returns at once. `given`: as for `make_plan`.

    Raises DistError with nothing started.
    """
    if not callable(fn):
        raise InputError(f"run needs a function to call, got {type(fn).__name__}")
    _check_arguments(fn, args, kwargs)
    plan = make_plan(given, spelled_as_flags=False)
    warn(plan)
    return start_call(fn, args, kwargs, plan, origin_of_call(fn))


def _run_options(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run among the keywords of `run`, which a test keeps the same as the model's fields.

    What stands at its default was not asked for: a cluster may set it.
    """
    found = {}
    for name, field in RunOptions.model_fields.items():
        value = keywords.get("metrics" if name == "metric" else name)
        value = dict(value) if isinstance(value, Mapping) else value
        if value is not None and value != field.get_default(call_default_factory=True):
            found[name] = value
    return found


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

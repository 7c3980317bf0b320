"""A plan and a cell, a script or a call, to a run that has started."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..capture import capturing, executed
from ..launch import submission
from ..plan.planning import Plan
from ..text.format import size
from .last_run import remember
from .origin import Origin

if TYPE_CHECKING:
    from ..showing.run import Run

__all__ = ["describe", "start_call", "start_cell", "warn"]

_WORTH_SAYING = 1_000_000
"""The size in bytes from which the user is told how much travels with the cell."""


def start_cell(source: str, namespace: dict[str, Any], plan: Plan, origin: Origin) -> Run:
    """Start a run of a cell; returns at once. Raises DistError with nothing started."""
    payload = _capture_cell(source, namespace, plan, origin)
    _warn_of_variables(namespace, plan)
    return _launch(payload, _request(plan, source.removeprefix("\n"), origin))


def start_call(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], plan: Plan, origin: Origin
) -> Run:
    """Start a run of `fn(*args, **kwargs)`; returns at once. Raises DistError with nothing started."""
    payload = capturing.capture_call(
        fn, tuple(args), dict(kwargs), ship_modules=plan.run.ship_modules, **origin.for_capture()
    )
    _warn_of_variables(sys.modules["__main__"].__dict__, plan)
    return _launch(payload, _request(plan, getattr(fn, "__qualname__", repr(fn)), origin))


def _warn_of_variables(namespace: Mapping[str, Any], plan: Plan) -> None:
    """Ranks of this machine have the notebook's environment. Other hosts have their own, and no value of
    ours is written down for them unasked: it may be a secret."""
    if plan.run.hosts is None and plan.run.hostfile is None:
        return
    missing = [name for name in executed.variables(namespace) if name not in plan.run.env]
    if missing:
        names, flags = ", ".join(missing), " ".join(f"--env {name}=…" for name in missing)
        print(f"note: {names}: set in the notebook, not on other hosts. Give {flags}", file=sys.stderr)


def _capture_cell(source: str, namespace: dict[str, Any], plan: Plan, origin: Origin) -> capturing.Payload:
    return capturing.capture_cell(
        source,
        namespace,
        flags=origin.flags,
        argv=origin.argv,
        ship_modules=plan.run.ship_modules,
        **origin.for_capture(),
    )


def _request(plan: Plan, source: str, origin: Origin) -> submission.Request:
    return submission.Request(
        backend=plan.backend.name,
        world_size=plan.world_size,
        source=source,
        label=origin.label,
        options=plan.options.model_dump(mode="json"),
        run=plan.run,
        notebook=origin.notebook,
    )


def _launch(payload: capturing.Payload, request: submission.Request) -> Run:
    from ..showing.run import Run

    notes = payload.notes
    if payload.nbytes >= _WORTH_SAYING:
        notes = (f"{size(payload.nbytes)} travel with the cell", *notes)
    # Before the start, which for a large payload takes a while.
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return remember(Run(submission.launch(request, payload)))


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


def warn(plan: Plan) -> None:
    """Tell the user what the plan's check had to say."""
    for warning in plan.warnings:
        print(f"warning: {warning}", file=sys.stderr)

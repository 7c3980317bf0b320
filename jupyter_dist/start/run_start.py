"""Start of a run from a plan and a cell, a script or a call."""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..backends import extensions_of
from ..capture import notebook_history, payload_builder, payload_size
from ..capture.session.choice import Choice
from ..errors import InputError
from ..launch import provenance, submission
from ..launch.session_link import Delivery
from ..plan.rerun_flags import flags_to_keep
from ..plan.run_plan import Plan
from ..showing import display
from ..text.format import size
from ..worker.pickling.reducers import spark_frames
from .interrupts import interrupt_stops
from .last_run import remember
from .origin import Origin

if TYPE_CHECKING:
    from ..showing.run import Run

__all__ = [
    "describe",
    "is_here",
    "launch_payload",
    "payload_facts",
    "payload_of_call",
    "payload_of_cell",
    "start_call",
    "start_cell",
    "warn",
    "warn_of_variables",
]

_ALL_PARAMETERS = re.compile(r"\b(dist|jupyter_dist)\.parameters\(|\bimport .*\bparameters\b")
"""Pattern of a cell that asks for all tuned parameters. Such a cell need not name them."""
_WORTH_SAYING = 1_000_000
"""Payload size in bytes from which the user sees a note on it."""


def start_cell(source: str, namespace: dict[str, Any], plan: Plan, origin: Origin) -> Run:
    """Start a run of a cell. Does not wait for the run. Raises DistError with nothing started."""
    payload = payload_of_cell(source, namespace, plan, origin)
    plan = _for_trials(plan, payload)
    warn_of_variables(namespace, plan)
    return _launch(payload, _request(plan, source.removeprefix("\n"), origin), origin.directory)


def start_call(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], plan: Plan, origin: Origin
) -> Run:
    """Start a run of `fn(*args, **kwargs)`.

    Does not wait for the run. Raises DistError with nothing started.
    """
    payload = payload_of_call(fn, args, kwargs, plan, origin)
    plan = _for_trials(plan)
    warn_of_variables(sys.modules["__main__"].__dict__, plan)
    return _launch(payload, _request(plan, getattr(fn, "__qualname__", repr(fn)), origin), origin.directory)


def launch_payload(
    payload: payload_builder.Payload,
    plan: Plan,
    source: str,
    origin: Origin,
    session: Mapping[str, Any],
    delivery: Delivery | None,
) -> Run:
    """Start the run of a session's cell. For `session` see `Job`, for `delivery` see `submission.launch`."""
    request = dataclasses.replace(_request(plan, source, origin), session=session)
    return _launch(payload, request, origin.directory, delivery)


def _for_trials(plan: Plan, payload: payload_builder.Payload | None = None) -> Plan:
    """Return the plan after checking its search against its parents and, with a payload, the cell's names.

    Blocks if a platform has the parents. Raises DistError.
    """
    if plan.search is None or plan.search.sizes:
        return plan
    from ..tuning import warm_start

    if payload is not None and not any(map(_ALL_PARAMETERS.search, payload.header["sources"].values())):
        for name in plan.search.space:
            # With a misspelt name, every trial would be the same.
            if name not in payload.words:
                raise InputError(
                    f"--tune {name}: neither the cell nor the code that it calls uses {name}, so every "
                    f"trial would be the same. Use {name} in the cell, or correct the name"
                )
        _refuse_overwritten(payload.header["source"], plan.search.space)
    options = plan.options.model_dump(mode="json")
    search = warm_start.check(plan.search, plan.backend, options, plan.world_size)
    return dataclasses.replace(plan, search=search)


def _refuse_overwritten(source: str, names: Collection[str]) -> None:
    """Raise InputError if the cell assigns to a tuned name. Every trial would then be the same."""
    try:
        lines = ast.parse(source).body
    except SyntaxError:
        return  # the ranks report the error with its line
    for line in lines:
        if not isinstance(line, ast.Assign | ast.AnnAssign) or line.value is None:
            continue
        used = {node.id for node in ast.walk(line.value) if isinstance(node, ast.Name)}
        for target in line.targets if isinstance(line, ast.Assign) else [line.target]:
            for node in ast.walk(target):
                if isinstance(node, ast.Name) and node.id in names and node.id not in used:
                    raise InputError(
                        f"--tune {node.id}: line {line.lineno} of the cell sets {node.id} itself, so every "
                        f"trial would be the same. Remove that line. jupyter-dist sets {node.id} before the "
                        "cell runs"
                    )


def warn_of_variables(namespace: Mapping[str, Any], plan: Plan) -> None:
    """Warn of environment variables that the notebook has set and other hosts lack.

    Ranks of this machine inherit the notebook's environment. Other hosts have their own: pods, nodes of a
    cluster and machines of a platform, too. jupyter-dist never writes a value down for them without a flag,
    because it may be a secret.
    """
    if not _has_other_hosts(plan):
        return
    missing = [name for name in notebook_history.variables(namespace) if name not in plan.run.env]
    if missing:
        names, flags = ", ".join(missing), " ".join(f"--env {name}=…" for name in missing)
        display.tell(
            f"note: {names}: set in the notebook, but not on the other hosts. To set them there, add {flags}"
        )


def _has_other_hosts(plan: Plan) -> bool:
    """Return whether ranks run on other hosts, as far as the flags say. A Ray or a Spark may be here."""
    if plan.run.hosts is not None or plan.run.hostfile is not None:
        return True
    if plan.backend.capabilities.visible:
        return False
    named = [getattr(plan.options, name) for name in ("address", "master") if hasattr(plan.options, name)]
    return all(place is not None and not place.startswith("local") for place in named)


def payload_of_call(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    plan: Plan,
    origin: Origin,
    choice: Choice | None = None,
) -> payload_builder.Payload:
    """Capture a call. `choice`: see `capture_cell`. Raises CaptureError."""
    with spark_frames.ranks_run(_place(plan)):
        return payload_builder.capture_call(
            fn,
            tuple(args),
            dict(kwargs),
            choice=choice,
            **_for_capture(plan, origin),
        )


def payload_of_cell(
    source: str,
    namespace: dict[str, Any],
    plan: Plan,
    origin: Origin,
    choice: Choice | None = None,
) -> payload_builder.Payload:
    """Capture a cell. `choice`: see `capture_cell`. Raises CaptureError."""
    with spark_frames.ranks_run(_place(plan)):
        return payload_builder.capture_cell(
            source,
            namespace,
            flags=origin.flags,
            module=origin.module,
            choice=choice,
            **_for_capture(plan, origin),
        )


def _for_capture(plan: Plan, origin: Origin) -> dict[str, Any]:
    """Return the arguments that the capture of a cell and of a call have in common."""
    return {
        "argv": _argv(plan, origin),
        "ship_modules": plan.run.ship_modules,
        "here": is_here(plan),
        "other_python": _is_other_python(plan),
        "file": origin.file,
        **origin.for_capture(),
    }


def is_here(plan: Plan) -> bool:
    """Return whether all ranks surely run on this machine."""
    if plan.run.session is not None and plan.backend.capabilities.exchanges:
        return False  # later cells of a session do not name its hosts
    return plan.backend.capabilities.visible and plan.run.hosts is None and plan.run.hostfile is None


def _place(plan: Plan) -> spark_frames.Place:
    """Return where the ranks run, for the rows of Spark DataFrames."""
    if plan.backend.name == "spark":
        from ..backends.spark import notebook_session

        if getattr(plan.options, "on_driver", False):
            return spark_frames.Place.HERE
        master = getattr(plan.options, "master", None)
        own = (None, notebook_session.master_here(), notebook_session.connected_here())
        return spark_frames.Place.ON_SPARK if master in own else spark_frames.Place.ELSEWHERE
    if plan.backend.name == "databricks":
        return spark_frames.Place.ON_DATABRICKS
    return spark_frames.Place.HERE if is_here(plan) else spark_frames.Place.ELSEWHERE


def _is_other_python(plan: Plan) -> bool:
    """Return whether ranks may have another version of Python. Those of this machine have the notebook's."""
    return not is_here(plan) and getattr(plan.options, "other_python", False)


def _argv(plan: Plan, origin: Origin) -> tuple[str, ...]:
    """Return the ranks' `sys.argv`: a script, the arguments of the platform, then those of the script."""
    arguments = extensions_of(plan.backend).arguments
    given = () if arguments is None else tuple(arguments(plan.options.model_dump(mode="json")))
    if not given:
        return origin.argv
    script, *own = origin.argv or (f"<{origin.label}>",)
    return (script, *given, *own)


def _request(plan: Plan, source: str, origin: Origin) -> submission.Request:
    return submission.Request(
        backend=plan.backend.name,
        world_size=plan.world_size,
        source=source,
        label=origin.label,
        options=plan.options.model_dump(mode="json"),
        run=plan.run,
        notebook=origin.notebook,
        line=None if origin.line is None else flags_to_keep(origin.line),
        cluster=plan.cluster,
        search=plan.search,
        purpose=origin.purpose,
    )


def _launch(
    payload: payload_builder.Payload,
    request: submission.Request,
    directory: Path,
    delivery: Delivery | None = None,
) -> Run:
    from ..showing.run import Run

    if notebook_history.OLD_CLASS in (request.run.no_hint or "").split(","):
        kept = [note for note in payload.notes if not note.endswith(notebook_history.OLD_CLASS)]
        payload = dataclasses.replace(payload, notes=tuple(kept))
    notes = payload.notes
    # The note on a large payload also names the largest values.
    if payload.nbytes >= _WORTH_SAYING and not any(note.startswith(payload_size.SENDS) for note in notes):
        notes = (f"{payload_size.SENDS} {size(payload.nbytes)} with the cell", *notes)
    # Printed before the start, because a large payload takes a while.
    for note in notes:
        display.tell(f"note: {note}")
    place = submission.launch(request, payload, delivery)
    with interrupt_stops(place):
        provenance.note_down(place, directory, payload.imports)
        return remember(Run(place))


def describe(source: str, namespace: dict[str, Any], plan: Plan, origin: Origin) -> dict[str, Any]:
    """Return as JSON what `start_cell` would start.

    The cell and the parents of a search are checked as well. Starts and writes nothing.
    """
    payload = payload_of_cell(source, namespace, plan, origin)
    plan = _for_trials(plan, payload)
    return {
        "backend": plan.backend.name,
        "np": plan.world_size,
        "options": plan.options.model_dump(mode="json"),
        "payload": payload_facts(payload),
        "request": submission.dry_run(_request(plan, source, origin)),
    }


def payload_facts(payload: payload_builder.Payload) -> dict[str, Any]:
    """Return as JSON what is sent with a cell."""
    return {
        "names": list(payload.header["names"]),
        "bytes": payload.nbytes,
        "modules": [shipped.path for shipped in payload.modules],
        "notes": list(payload.notes),
    }


def warn(plan: Plan) -> None:
    """Print the warnings of the plan's check for the user."""
    for warning in plan.warnings:
        display.tell(f"warning: {warning}")

"""Text and HTML of a failed run: the card first, the longer texts below it."""

from __future__ import annotations

import html
from collections.abc import Sequence

from ..folder import RunFolder
from ..job import State, Status
from ..record import reader
from ..record.failures.card import Card, card
from ..record.failures.failures import RankError, root_cause
from ..record.failures.finding import Part
from ..record.failures.wording import what
from ..text.safe import one_line, preformatted
from . import display

__all__ = ["card_html", "cure", "failure", "headline", "report", "stopped", "unwatched"]

_IN_TEXT = ("traceback", "log", "stacks", "launcher")
"""The parts below a card in a text. `run.errors` has the others."""
_MOST_HTML = 16_000
_PRE = "max-height:30em;overflow:auto;white-space:pre-wrap;margin:0.2em 0"
_BAR = "border-left:3px solid var(--jp-error-color1,#c4453c);margin:0.5em 0;padding:0.5em"


def failure(
    folder: RunFolder, status: Status | None = None, errors: Sequence[RankError] | None = None
) -> str:
    """Return the whole report of a run that failed or was lost. Empty for any other run."""
    status = reader.status(folder) if status is None else status
    if status.state not in (State.FAILED, State.LOST):
        return ""
    found = card(folder, status, errors)
    return "" if found is None else report(found, folder.id)


def report(found: Card, id: str) -> str:
    """Return the card of a run as text, with its longer texts below it."""
    below = [_part(part) for part in found.parts if part.kind in _IN_TEXT]
    if any(part.kind == "rank" for part in found.parts):
        below.append(f"The tracebacks of the other ranks: `{display.command()} logs {id}`")
    return "\n\n".join(["\n".join(found.lines()), *below])


def _part(part: Part) -> str:
    return part.text if part.kind == "traceback" else f"{part.title}:\n{part.text}"


def card_html(found: Card) -> str:
    """Return a card as static HTML of limited size, with its longer texts folded below it."""
    head = f'<div style="font-weight:600">{html.escape(found.headline)}</div>'
    lines = "".join(f"<div>{html.escape(line)}</div>" for line in found.lines()[1:])
    room = _MOST_HTML
    parts = []
    for part in found.parts:
        text = (
            part.text if len(part.text) <= room else f"{part.text[: room // 2]}\n…\n{part.text[-room // 2 :]}"
        )
        room = max(1000, room - len(text))
        title = html.escape(part.title)
        parts.append(f"<details><summary>{title}</summary>{preformatted(text, _PRE)}</details>")
    return f'<div style="{_BAR}">{head}{lines}{"".join(parts)}</div>'


def headline(status: Status, errors: Sequence[RankError]) -> str:
    """Return one line with the cause: `rank 1 failed: ValueError: bad`. Empty for a run that succeeded."""
    root = root_cause(errors)
    if status.state is State.FAILED and root is not None:
        return f"rank {root.rank} failed: {what(root)}"
    says = status.state.ended or status.state is State.UNWATCHED
    return one_line(status.reason, 200) if status.reason and says else ""


def stopped(folder: RunFolder, status: Status) -> str:
    """Return the card of a run that was stopped, as text: one line, or where the ranks were as well."""
    found = card(folder, status)
    return "" if found is None else "\n".join(found.lines())


def unwatched(status: Status) -> str:
    """Return what is known of an unwatched run, and what to do about it."""
    why = f": {one_line(status.reason, 400)}" if status.reason else ""
    return f"run {status.id} is unwatched{why}\n{cure(status)}"


def cure(status: Status) -> str:
    """Return one line on what to do about an unwatched run."""
    command = display.command()
    return (
        f"its ranks may go on, and nobody reads what they write: `{command} attach {status.id}` takes it on, "
        f"`{command} stop {status.id}` ends it"
    )

"""Summary of a run: its state, a row per rank with equal rows folded, last metrics, the logs' path."""

from __future__ import annotations

import html
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..folder import RunFolder, find_exact
from ..job import Job, RankState, State, Status, rank_count
from ..queries.answers.runs import SavedOutput
from ..queries.rank_reports import said
from ..record import reader
from ..record.failures import failures
from ..record.failures.card import card as failure_card
from ..record.failures.wording import what
from ..record.outputs.results import alike, result_events
from ..record.trials import search_of
from ..text.fold import ranges
from ..text.format import attach_call, count, duration, exact, number, signal_name, size
from ..text.safe import both_ends, one_line
from ..text.svg import Curves, charts
from ..text.terminal_width import padded, width
from . import display, failure_report, scaling, summary_curves, trials
from .kept_displays import kept_displays

__all__ = ["Summary", "gather", "of", "title_of"]


_MAX_ROWS = 16
_MAX_METRICS = 12
_REPR = 80
_HTML_BYTES = 56_000
_COLUMNS = ("rank", "state", "host", "pid", "exit", "duration", "peak memory", "result")


@dataclass(frozen=True)
class Summary:
    """Summary of a run. No string contains control characters."""

    title: str
    headline: str
    rows: list[tuple[str, ...]]
    """One row per group of ranks, in the order of `_COLUMNS`."""
    more_ranks: int
    metrics: list[tuple[str, ...]]
    more_metrics: int
    curves: Mapping[str, Curves]
    failure: str
    """The whole report of a failure, as text. Its first lines are the card."""
    card_html: str
    """The same card as HTML."""
    logs: str
    hint: str
    columns: tuple[str, ...] = _COLUMNS
    """Columns of the rows. A tuning run has one row for each trial."""
    more: str = "more rank"
    """Name of the rows left out."""
    in_code: tuple[str, str] = ("", "")
    """The expressions that have all rows and all metrics."""
    displays: str = ""
    """Rich output of the ranks, as HTML."""
    has_log: bool = False
    """Whether `displays` contains the log's last lines."""
    told: str = ""
    """The backend's text on the run, for example its bill."""
    notes: tuple[str, ...] = ()
    """Hints on mistakes that raised no error."""

    def text(self) -> str:
        parts = [self.title]
        parts += filter(None, (self.headline, self.told, *self.notes))
        if self.rows:  # none while the supervisor starts
            parts += ["", *_aligned([self.columns, *self.rows])]
        if self.more_ranks:
            parts.append(f"… {count(self.more_ranks, self.more)}: {self.in_code[0]}")
        if self.metrics:
            parts += ["", *_aligned([_METRIC_COLUMNS, *self.metrics])]
        if self.more_metrics:
            parts.append(f"… {count(self.more_metrics, 'more metric')}: {self.in_code[1]}")
        parts += ["", f"logs: {self.logs}"]
        if self.hint:
            parts.append(self.hint)
        return "\n".join(parts)

    def html(self) -> str:
        """Return static HTML: no script, no style sheet, nothing fetched.

        At most 60 kB plus the rich output.
        """
        parts = [f'<div style="font-weight:600">{html.escape(self.title)}</div>']
        if self.card_html:
            parts.append(self.card_html)
        elif self.headline:
            parts.append(f"<div>{html.escape(self.headline)}</div>")
        if self.told:
            parts.append(f"<div>{html.escape(self.told)}</div>")
        parts += [f"<div>{html.escape(note)}</div>" for note in self.notes]
        if self.rows:
            parts.append(_table(self.columns, self.rows))
        if self.more_ranks:
            where = html.escape(self.in_code[0])
            parts.append(f"<div>… {count(self.more_ranks, self.more)}: <code>{where}</code></div>")
        if self.metrics:
            parts.append(_table(_METRIC_COLUMNS, self.metrics))
        # The rich output has its own size limit.
        parts, shown = [], "".join(parts) + self.displays
        left = self.more_metrics
        foot = f'<div style="opacity:0.8">logs: <code>{html.escape(self.logs)}</code></div>'
        if self.hint:
            foot += f"<div>{html.escape(self.hint)}</div>"
        used = len(shown.encode()) - len(self.displays.encode()) + len(foot.encode())
        drawn, not_drawn = charts(self.curves, max(0, _HTML_BYTES - used))
        if drawn:
            parts.append(
                f'<div style="display:flex;flex-wrap:wrap;gap:1em;margin:0.5em 0">{"".join(drawn)}</div>'
            )
        if left or not_drawn:
            more, where = count(max(left, not_drawn), "more metric"), html.escape(self.in_code[1])
            parts.append(f"<div>… {more}: <code>{where}</code></div>")
        return f'<div style="font-size:0.9em;line-height:1.4">{shown}{"".join(parts)}{foot}</div>'


_METRIC_COLUMNS = ("metric", "step", "mean", "min – max", "ranks")


def gather(folder: RunFolder) -> Summary:
    """Read a run's folder. Unpickles nothing: the summary shows the reprs that the ranks wrote."""
    status = reader.status(folder)
    job = reader.job(folder)
    if job.tuning is not None:
        return _of_tuning(folder, status, job)
    errors = failures.failures(folder, status.attempt) if status.state is not State.SUCCEEDED else []
    events = result_events(folder, status.attempt, rank_count(job, status))
    failed = _error_texts(errors)
    results = {**_result_texts(events), **failed}
    kinds = {**{rank: alike(event) for rank, event in events.items()}, **failed}
    rows, more_ranks = _rows(status, results, kinds)
    curves = summary_curves.curves(folder)
    last = [_last_values(name, found) for name, found in list(curves.items())[:_MAX_METRICS]]
    card = failure_card(folder, status, errors)
    if status.state is State.STOPPED and card is not None and not card.places:
        card = None  # the headline says it
    text = "" if card is None else failure_report.report(card, folder.id)
    displays = kept_displays(folder, job, status)
    reports = said(folder, status.attempt, rank_count(job, status)).refresh_shown()
    return Summary(
        title=_title(job, status),
        headline=failure_report.headline(status, errors),
        rows=rows,
        more_ranks=more_ranks,
        metrics=last,
        more_metrics=max(0, len(curves) - _MAX_METRICS),
        curves=curves,
        failure=text if len(text) <= 16_000 else f"{text[:8000]}\n…\n{text[-8000:]}",
        card_html="" if card is None else failure_report.card_html(card),
        logs=_logs(folder, job, status),
        hint=_hint(status),
        displays=displays.html,
        has_log=displays.has_log,
        told=one_line(status.told or "", 600),
        notes=tuple(f"note: {hint}" for hint in reports.hints()),
        in_code=(f"{attach_call(folder.id)}.status.ranks", f"{attach_call(folder.id)}.metrics"),
    )


def _of_tuning(folder: RunFolder, status: Status, job: Job) -> Summary:
    assert job.tuning is not None
    sizes = search_of(job.tuning).sizes
    columns, rows, more = (*scaling.rows(job, folder), 0) if sizes else trials.rows(job, folder)
    headline = "" if sizes else trials.headline(job, folder)
    said = failure_report.headline(status, [])
    card = failure_card(folder, status, [])
    run = attach_call(folder.id)
    return Summary(
        title=_title(job, status),
        headline="\n".join(filter(None, (said, headline))),
        rows=rows,
        more_ranks=more,
        metrics=[],
        more_metrics=0,
        curves={},
        failure="" if card is None else failure_report.report(card, folder.id)[:16_000],
        card_html="" if card is None else failure_report.card_html(card),
        logs=one_line(f"{folder.path}-t*", 600),
        hint=_hint(status)
        or (
            f"{run}.scaling: the table, {run}.trials: the runs"
            if sizes
            else f"{run}.trials: all of them, {run}.best: the best one as a run"
        ),
        told=one_line(status.told or "", 600),
        columns=columns,
        more="more trial",
        in_code=(f"{run}.trials", ""),
        notes=tuple(scaling.sentences(job, folder)) if sizes else (),
        displays=scaling.picture(job, folder) if sizes else "",
    )


def _hint(status: Status) -> str:
    if status.state is State.UNWATCHED:
        return failure_report.cure(status)
    return "" if status.state.ended else f"To follow it: `{display.command()} attach {status.id}`"


def title_of(job: Job, status: Status) -> str:
    """Return for example `succeeded: 8 ranks on local, 12.3 s`."""
    what = count(rank_count(job, status), "rank")
    if job.tuning is not None and (sizes := search_of(job.tuning).sizes):
        what = f"scaling over {', '.join(map(str, sizes))} ranks"
    elif job.tuning is not None:
        what = f"tuning with {count(int(job.tuning['trial']['world_size']), 'rank')} a trial"
    where = one_line(job.where, 40)
    text = f"{status.state}: {what} on {f'{one_line(job.cluster, 64)} ({where})' if job.cluster else where}"
    began = status.started or status.created
    if began:
        text += f", {duration((status.ended or time.time()) - began)}"
    if status.attempt:
        text += f", {count(status.attempt, 'restart')}"
    return text


def _title(job: Job, status: Status) -> str:
    return f"run {job.id} {title_of(job, status)}{', warm start' if status.warm else ''}"


def _logs(folder: RunFolder, job: Job, status: Status) -> str:
    rank = "0" if rank_count(job, status) == 1 else "*"
    return one_line(str(folder.rank(status.attempt, rank).output), 600)


def _result_texts(events: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
    found = {}
    for rank, event in events.items():
        text = one_line(str(event.get("repr", "")), _REPR)
        error = event.get("error")
        found[rank] = f"{text} ({one_line(str(error), _REPR)})" if error else text
    return found


def _error_texts(errors: Sequence[failures.RankError]) -> dict[int, str]:
    """Return the errors of failed ranks, which replace their results."""
    found = {}
    for error in errors:
        alone = error is errors[0] or not error.collateral
        found[error.rank] = both_ends(what(error) if alone else f"because of rank {errors[0].rank}", _REPR)
    return found


def _rows(
    status: Status, results: Mapping[int, str], kinds: Mapping[int, object]
) -> tuple[list[tuple[str, ...]], int]:
    """Return rows of ranks and the number of ranks left out.

    Neighbouring ranks without differences share a row.

    If there are too many rows, ranks with the same end share a row.
    `kinds`: keys that are equal for equal results. Results with the same text may differ.
    """
    exact = [(r, (r.state, r.host, _exit(r), kinds.get(r.rank))) for r in status.ranks]
    groups = _neighbours(exact)
    if len(groups) > _MAX_ROWS:
        coarse = [(r, (r.state, _exit(r))) for r, _ in exact]
        by_end: dict[object, list[RankState]] = {}
        for rank, key in coarse:
            by_end.setdefault(key, []).append(rank)
        groups = list(by_end.values())
    # A reader looks for failed ranks first.
    shown = sorted(groups, key=lambda g: g[0].state is not State.FAILED)[:_MAX_ROWS]
    shown.sort(key=lambda g: g[0].rank)
    rows = [_row(group, results, kinds) for group in shown]
    return rows, sum(map(len, groups)) - sum(map(len, shown))


def _neighbours(keyed: Sequence[tuple[RankState, object]]) -> list[list[RankState]]:
    groups: list[list[RankState]] = []
    previous: object = None
    for rank, key in keyed:
        if groups and key == previous:
            groups[-1].append(rank)
        else:
            groups.append([rank])
        previous = key
    return groups


def _exit(rank: RankState) -> str:
    if rank.signal is not None:
        return signal_name(rank.signal)
    return "" if rank.exit_code is None else str(rank.exit_code)


def _row(
    group: Sequence[RankState], results: Mapping[int, str], kinds: Mapping[int, object]
) -> tuple[str, ...]:
    now = time.time()
    first = group[0]
    hosts = list(dict.fromkeys(one_line(rank.host, 40) for rank in group if rank.host))
    taken = [(rank.ended or now) - rank.started for rank in group if rank.started]
    memory = [rank.peak_memory_bytes for rank in group if rank.peak_memory_bytes]
    texts = list({kinds[rank.rank]: results[rank.rank] for rank in group if rank.rank in results}.values())
    return (
        ranges((rank.rank for rank in group), 30),
        str(first.state),
        hosts[0] if len(hosts) == 1 else count(len(hosts), "host") if hosts else "",
        str(first.pid) if len(group) == 1 and first.pid is not None else "",
        _exit(first),
        _span(taken, duration),
        _span(memory, size),
        texts[0] if len(texts) == 1 else f"{count(len(texts), 'different result')}" if texts else "",
    )


def _span(values: Sequence[float], show: Callable[[float], str]) -> str:
    if not values:
        return ""
    low, high = show(min(values)), show(max(values))
    if low == high:
        return high
    (low_number, _, low_unit), (_, _, high_unit) = low.partition(" "), high.partition(" ")
    return f"{low_number if low_unit == high_unit else low} – {high}"


def _last_values(name: str, curves: Curves) -> tuple[str, ...]:
    last = curves.last.values()
    finite = [value for value in last if math.isfinite(value)]
    # The mean of a diverged rank stays nan, so that the user sees it.
    mean = sum(value / len(last) for value in last)
    between = f"{number(min(finite))} – {number(max(finite))}" if len(last) > 1 and finite else ""
    return name, exact(curves.step), number(mean), between, ranges(sorted(curves.last), 30)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines, with columns two blanks apart. Columns without values are left out."""
    used = [i for i in range(len(rows[0])) if any(row[i] for row in rows[1:])]
    widths = {i: max(width(row[i]) for row in rows) for i in used}
    return ["  ".join(padded(row[i], widths[i]) for i in used).rstrip() for row in rows]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    used = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    cell = 'style="text-align:left;padding:0.1em 1em 0.1em 0"'
    head = "".join(f"<th {cell}>{html.escape(columns[i])}</th>" for i in used)
    body = "".join(
        "<tr>" + "".join(f"<td {cell}>{html.escape(row[i])}</td>" for i in used) + "</tr>" for row in rows
    )
    return (
        '<table style="border-collapse:collapse;margin:0.5em 0"><thead>'
        f"<tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def of(id: str) -> SavedOutput:
    """Return the summary of a run that has ended. Empty if the run continues. Raises RunNotFound.

    If a page was reloaded while the cell ran, no cell writes the run's end into the notebook. The same is
    true of a cell that did not wait. Then a view that follows the run writes it with this function.
    """
    place = find_exact(id)
    if not reader.status(place).state.ended:
        return {"id": id, "ended": False, "html": "", "text": ""}
    found = gather(place)
    return {"id": id, "ended": True, "html": found.html(), "text": found.text()}

"""How a run with --scaling scales: a DataFrame for code, a table with a picture for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import DistError
from ..folder import RunFolder
from ..job import Job
from ..queries.answers.runs import Scaling, ScalingRow
from ..queries.scaling import scaling_of
from ..record import reader, trials
from ..record.trials import SUCCEEDED
from ..text import svg
from ..text.format import number
from ..text.safe import one_line

if TYPE_CHECKING:
    import pandas

__all__ = ["frame", "picture", "rows", "sentences"]

_COLUMNS = (
    *("throughput", "unit", "speedup", "efficiency", "low", "high", "limit", "why"),
    *("step_s", "data_s", "compute_s", "collectives_s", "usd_per_hour", "usd_per_million", "projected"),
    *("state", "reason", "run"),
)
_HEAD = ("ranks", "throughput", "speed-up", "efficiency", "range", "limited by", "USD/h", "USD per million")


def _read(folder: RunFolder, job: Job) -> tuple[Scaling, list[trials.Trial]]:
    assert job.tuning is not None
    found = trials.read(folder).trials
    return scaling_of(found, job.tuning["trial"]), found


def frame(folder: RunFolder) -> pandas.DataFrame:
    """Return the sizes as a DataFrame. See `Run.scaling`."""
    import pandas

    job = reader.job(folder)
    if job.tuning is None or not trials.search_of(job.tuning).sizes:
        raise DistError(f"run {folder.id} measures no scaling: it was started without --scaling")
    report, found = _read(folder, job)
    by_id = {row["id"]: row for row in report["rows"]}
    table = [_cells(trial, by_id.get(trial.run_id), report["unit"]) for trial in found]
    table += [{**row, "unit": report["unit"], "run": None} for row in report["rows"] if row["projected"]]
    index = pandas.Index([row["ranks"] for row in table], name="ranks", dtype="int64")
    numbers = dict.fromkeys((*_COLUMNS[0:1], *_COLUMNS[2:6], *_COLUMNS[8:14]), "float64")
    typed: pandas.DataFrame = pandas.DataFrame(table, columns=[*_COLUMNS], index=index).astype(numbers)
    return typed


def _cells(trial: trials.Trial, row: ScalingRow | None, unit: str) -> dict[str, Any]:
    about = {
        "ranks": trial.parameters["ranks"],
        "state": trial.state,
        "run": trial.run_id,
        "projected": False,
    }
    if row is None or trial.measured is None:
        return {**about, "reason": trial.reason}
    return {**trial.measured.to_json(), **row, "unit": unit, **about}


def rows(job: Job, folder: RunFolder) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the columns and the rows of the table: each size, then the projected ones."""
    report, found = _read(folder, job)
    shown = [_row(row, report["unit"]) for row in report["rows"]]
    for trial in found:
        if trial.measured is None:
            why = one_line(trial.reason or trial.state, 80) if trial.state != SUCCEEDED else ""
            shown.append((str(trial.parameters["ranks"]), *([""] * 4), why, "", ""))
    return _HEAD, sorted(shown, key=lambda cells: int(cells[0].split()[0]))


def _row(row: ScalingRow, unit: str) -> tuple[str, ...]:
    hour, million = row["usd_per_hour"], row["usd_per_million"]
    limit = f"{row['limit']} ({row['why']})" if row["why"] else row["limit"]
    return (
        f"{row['ranks']} (projection)" if row["projected"] else str(row["ranks"]),
        f"{_rate(row['throughput'])} {unit}",
        f"{row['speedup']:.2f}",
        f"{row['efficiency']:.0%}".replace("%", " %"),
        f"{row['low']:.0%} – {row['high']:.0%}".replace("%", " %"),
        limit,
        "" if hour is None else f"{hour:.2f}",
        "" if million is None else f"{million:.4g}",
    )


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else number(value)


def sentences(job: Job, folder: RunFolder) -> list[str]:
    """Return the sentences below the table. Empty without two measured sizes."""
    report, _ = _read(folder, job)
    if not report["laws"]:
        return []
    found = [f"{law['name']}: {law['serial']:.1%} serial{_error(law['error'])}" for law in report["laws"]]
    told = [f"{'; '.join(found)}.".replace("%", " %")]
    exact = all(law["error"] is None for law in report["laws"])
    more = " Two sizes fit both laws exactly: measure a third one." if exact else ""
    if report["best"] is None:
        told.append("Neither law fits these sizes, so there is no projection.")
    else:
        told.append(f"The projection follows {report['best']}. Its range is what both laws say.{more}")
    if report["unit"] == "steps/s":
        told.append("The size of the batches is unknown, so each step of a rank counts as the same work.")
    return told


def _error(error: float | None) -> str:
    return "" if error is None else f", error {error:.1%}"


def picture(job: Job, folder: RunFolder) -> str:
    """Return the speed-up by ranks as SVG. Empty without two measured sizes."""
    report, _ = _read(folder, job)
    measured = [row for row in report["rows"] if not row["projected"]]
    if len(measured) < 2:
        return ""
    ahead = [row for row in report["rows"] if row["projected"]]
    first, last = measured[0], [*measured, *ahead][-1]
    ideal = [(row["ranks"], row["ranks"] / first["ranks"]) for row in (first, last)]
    projection = svg.Line("projection", _points([measured[-1], *ahead]), dashed=True, bars=_bars(ahead))
    lines = [svg.Line("measured", _points(measured), bars=_bars(measured))]
    return svg.lines("Speed-up", [*lines, *([projection] if ahead else []), svg.Line("ideal", ideal, True)])


def _points(rows: Sequence[ScalingRow]) -> list[tuple[float, float]]:
    return [(row["ranks"], row["speedup"]) for row in rows]


def _bars(rows: Sequence[ScalingRow]) -> list[tuple[float, float, float]]:
    ideal = [row["speedup"] / row["efficiency"] for row in rows]
    return [(row["ranks"], row["low"] * top, row["high"] * top) for row, top in zip(rows, ideal, strict=True)]

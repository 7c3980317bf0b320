"""Let contenders run in turns, keep what was measured, and put it into a table."""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from ._machine import wait_until_idle
from ._processes import Failed

__all__ = ["Benchmark", "Column", "Contender", "Measure", "Result", "race", "table"]

Measure = Callable[[], Mapping[str, float]]
"""Measure once: a value per column. Raises Failed."""


@dataclass(frozen=True)
class Contender:
    """`open(folder)` prepares what is not measured, gives what measures once, and clears up."""

    name: str
    open: Callable[[Path], AbstractContextManager[Measure]]
    ours: bool = False


@dataclass(frozen=True)
class Column:
    """One measured value; `show` makes text of it. Where it is absent, so is the text."""

    key: str
    title: str
    show: Callable[[float], str]


@dataclass(frozen=True)
class Benchmark:
    """What is measured. The first contender is ours; the others are compared with it by `headline`."""

    name: str
    title: str
    contenders: Sequence[Contender]
    columns: Sequence[Column]
    headline: str
    rounds: int
    packages: Sequence[str]
    """The distributions whose versions belong beside the table."""
    more_is_better: bool = False
    warm_up: int = 1
    """Rounds before the first that counts: imports, caches, the first fork."""
    ratios: bool = True
    """Whether the contenders are compared with the first one."""

    def of(self, name: str) -> Benchmark:
        """With this contender alone. Exits where there is none of that name."""
        found = [contender for contender in self.contenders if contender.name == name]
        if not found:
            names = ", ".join(contender.name for contender in self.contenders)
            raise SystemExit(f"{self.name} has no contender {name!r}: it has {names}")
        return replace(self, contenders=found)


@dataclass
class Result:
    contender: Contender
    samples: list[Mapping[str, float]] = field(default_factory=list)
    failure: str | None = None
    disturbed: int = 0
    """How many samples began while something else kept the machine busy."""

    def median(self, key: str) -> float | None:
        values = [sample[key] for sample in self.samples if key in sample]
        return statistics.median(values) if values else None

    def spread(self, key: str) -> tuple[float, float] | None:
        values = [sample[key] for sample in self.samples if key in sample]
        return (min(values), max(values)) if values else None


def race(
    benchmark: Benchmark,
    folder: Path,
    *,
    ours_only: bool = False,
    rounds: int | None = None,
    idle_within_s: float = 0.0,
) -> list[Result]:
    """In each round every contender measures once, one after the other.

    Before each measurement it is waited until the machine is idle, at most `idle_within_s`. A
    contender that fails is left out from there on, and its failure kept.
    """
    results = [Result(c) for c in benchmark.contenders if c.ours or not ours_only]
    with ExitStack() as stack:
        running: dict[int, Measure] = {}
        for index, result in enumerate(results):
            place = folder / f"{benchmark.name}-{index}"
            place.mkdir(parents=True)
            with _failing(result):
                running[index] = stack.enter_context(result.contender.open(place))
        total = benchmark.warm_up + (rounds or benchmark.rounds)
        for number in range(total):
            for index, measure in list(running.items()):
                result = results[index]
                idle = idle_within_s == 0 or wait_until_idle(idle_within_s)
                with _failing(result):
                    sample = measure()
                    if number >= benchmark.warm_up:
                        result.samples.append(sample)
                        result.disturbed += not idle
                if result.failure is not None:
                    del running[index]
            _say(f"{benchmark.name}: round {number + 1} of {total}")
    return results


@contextlib.contextmanager
def _failing(result: Result) -> Iterator[None]:
    try:
        yield
    except Failed as error:
        result.failure = str(error)
        _say(f"{result.contender.name} failed: {error}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(benchmark: Benchmark, results: Sequence[Result]) -> str:
    """The medians as a Markdown table; with peers, each one's headline over that of the first one."""
    heads = ["", *(column.title for column in benchmark.columns), "ratio"]
    rows = [_row(benchmark, result, results[0]) for result in results]
    if len(benchmark.contenders) == 1 or not benchmark.ratios:
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    lines = []
    for row in (heads, rule, *rows):
        cells = [
            c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(f"| {' | '.join(cells)} |")
    failures = [
        f"\n{result.contender.name} failed, with {len(result.samples)} of its measurements done: "
        f"{result.failure}."
        for result in results
        if result.failure is not None
    ]
    return "\n".join(lines + failures)


def _row(benchmark: Benchmark, result: Result, first: Result) -> list[str]:
    cells = [f"**{result.contender.name}**" if result.contender.ours else result.contender.name]
    for column in benchmark.columns:
        value, spread = result.median(column.key), result.spread(column.key)
        text = "" if value is None else column.show(value)
        if spread is not None and column.key == benchmark.headline and len(result.samples) > 1:
            text += f" ({column.show(spread[0])} – {column.show(spread[1])})"
        if not text and result.failure is not None and column.key == benchmark.headline:
            text = "failed"
        cells.append(text)
    ours, theirs = first.median(benchmark.headline), result.median(benchmark.headline)
    if not ours or not theirs:
        return [*cells, ""]
    return [*cells, _ratio(ours / theirs if benchmark.more_is_better else theirs / ours)]


def _ratio(value: float) -> str:
    """How many times better the first contender is; below 1 the other one is."""
    if 0.9 < value < 1.1:
        return f"{value:.3f} ×"
    return f"{value:.0f} ×" if value >= 20 else f"{value:.1f} ×" if value >= 0.95 else f"{value:.2f} ×"

"""Measure ours against the peers and print the tables: `python -m benchmarks [names…]`."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from . import (
    _machine,
    browser,
    browser_charts,
    browser_displays,
    capture_cell,
    first_line,
    launchers,
    lines,
    live_curves,
    log_call,
    many_hosts,
    pytorchjob,
    schedulers,
    session_cells,
    ship_array,
    training_step,
    tuning,
)
from ._race import Result, race, table

__all__ = ["main"]

_IDLE_WITHIN_S = 30.0
_README = Path(__file__).parent / "README.md"
_BENCHMARKS = {
    "first-line": first_line.benchmark,
    "session-cell": first_line.kept,
    "session-memory": session_cells.memory,
    "session-array": session_cells.array,
    "log-call": log_call.benchmark,
    "step-digits": training_step.digits,
    "step-transformer": training_step.transformer,
    "lines": lines.benchmark,
    "ship-array": ship_array.benchmark,
    "capture": capture_cell.benchmark,
    "launchers": launchers.benchmark,
    "hosts": many_hosts.benchmark,
    "ray": schedulers.on_ray,
    "spark": schedulers.on_spark,
    "kubernetes": pytorchjob.benchmark,
    "tuning": tuning.benchmark,
    "browser-latency": browser.latency,
    "browser-displays": browser_displays.displays,
    "browser-media": browser_displays.media,
    "browser-flood": browser.flood,
    "browser-curves": browser.curves,
    "browser-charts": browser_charts.charts,
    "browser-runs": browser.runs,
    "live-curves": live_curves.benchmark,
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which ones: {', '.join(_BENCHMARKS)}; all by default"
    )
    parser.add_argument("--ours", action="store_true", help="without the peers")
    parser.add_argument("--contender", metavar="NAME", help="this one alone")
    parser.add_argument(
        "--quick", action="store_true", help="small and once: shows that it runs, not how fast"
    )
    parser.add_argument("--rounds", type=_count, metavar="N", help="how often each contender measures")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/README.md")
    given = parser.parse_args(argv)
    unknown = sorted(set(given.names) - _BENCHMARKS.keys())
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(_BENCHMARKS)}")
    if given.write and (given.quick or given.ours or given.contender):
        parser.error("--write is for whole measurements, not for --quick, --ours or --contender")
    # So that what was started is ended when we are.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    failed = False
    for name in given.names or _BENCHMARKS:
        benchmark = _BENCHMARKS[name](given.quick)
        if given.contender is not None:
            benchmark = benchmark.of(given.contender)
        rounds = given.rounds or benchmark.rounds
        idle = 0.0 if given.quick else _IDLE_WITHIN_S
        with tempfile.TemporaryDirectory(prefix="jupyter-dist-bench-", ignore_cleanup_errors=True) as folder:
            results = race(benchmark, Path(folder), ours_only=given.ours, rounds=rounds, idle_within_s=idle)
        text = f"{table(benchmark, results)}\n\n{_facts(rounds, results, benchmark.packages)}"
        print(f"## {benchmark.title}\n\n{text}\n", flush=True)
        failed = failed or any(result.failure for result in results if result.contender.ours)
        if given.write:
            _write(name, text)
    return int(failed)


def _facts(rounds: int, results: Sequence[Result], packages: Sequence[str]) -> str:
    disturbed = sum(result.disturbed for result in results)
    total = sum(len(result.samples) for result in results)
    busy = f", {disturbed} of {total} measurements on a busy machine" if disturbed else ""
    return f"Medians of {rounds} round{'s'[: rounds != 1]}{busy}. {_machine.describe(packages)}"


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def _write(name: str, text: str) -> None:
    """Replace what stands between the markers of this benchmark."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    old = _README.read_text()
    new, count = re.subn(
        f"{re.escape(begin)}.*?{re.escape(end)}",
        lambda _: f"{begin}\n{text}\n{end}",
        old,
        flags=re.DOTALL,
    )
    if count != 1:
        raise SystemExit(f"{_README} needs the markers {begin} and {end} once, it has them {count} times")
    _README.write_text(new)


if __name__ == "__main__":
    sys.exit(main())

"""Measure ours against the peers and print the tables: `python -m benchmarks [names…]`."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import tempfile
from pathlib import Path

from . import _machine, first_line, lines, log_call, ship_array
from ._race import race, table

__all__ = ["main"]

_README = Path(__file__).parent / "README.md"
_BENCHMARKS = {
    "first-line": first_line.benchmark,
    "log-call": log_call.benchmark,
    "lines": lines.benchmark,
    "ship-array": ship_array.benchmark,
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which ones: {', '.join(_BENCHMARKS)}; all by default"
    )
    parser.add_argument("--ours", action="store_true", help="without the peers")
    parser.add_argument(
        "--quick", action="store_true", help="small and once: shows that it runs, not how fast"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each contender measures")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/README.md")
    given = parser.parse_args(argv)
    unknown = sorted(set(given.names) - _BENCHMARKS.keys())
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(_BENCHMARKS)}")
    if given.write and (given.quick or given.ours):
        parser.error("--write is for whole measurements, not for --quick or --ours")
    # So that what was started is ended when we are.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    failed = False
    for name in given.names or _BENCHMARKS:
        benchmark = _BENCHMARKS[name](given.quick)
        load = _machine.load()
        with tempfile.TemporaryDirectory(prefix="jupyter-dist-bench-", ignore_cleanup_errors=True) as folder:
            results = race(benchmark, Path(folder), ours_only=given.ours, rounds=given.rounds)
        facts = _machine.describe(benchmark.packages, load)
        text = f"{table(benchmark, results)}\n\n{facts}"
        print(f"## {benchmark.title}\n\n{text}\n", flush=True)
        failed = failed or any(result.failure for result in results if result.contender.ours)
        if given.write:
            _write(name, text)
    return int(failed)


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

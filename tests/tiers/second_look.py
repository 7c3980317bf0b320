"""Look again at tests that have failed: which of them may have failed by chance alone.

Few may. A failure is flaky only if every part of it was a wait that was given up, if the test is not marked
`race`, if it left nothing behind, and if it passes three times alone and once beside two busy loops. A wrong
value is never forgiven. tests/flaky.toml lists the flaky tests: three at most, and none for longer than two
green runs. Whoever finds one there mends it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomlkit

from tests.rigs.made_once import cache
from tests.tiers.import_graph import ROOT
from tests.tiers.pytest_plugin import Ending

__all__ = ["AT_MOST", "GREEN_RUNS", "Flaky", "passes_again", "read_flaky", "suspects", "write_flaky"]

AT_MOST = 3
GREEN_RUNS = 2
_LISTED = ROOT / "tests" / "flaky.toml"
_HEAD = """\
# Tests that have failed by chance, and passed when they were looked at again (tests/tiers/second_look.py).
# Three at most, and none for longer than two green runs. Find the cause, mend it, and remove the line.
"""
_BUSY = "while True: pass"

Flaky = dict[str, int]
"""Green runs since a test was entered, by its id."""


def suspects(failed: list[Ending]) -> list[Ending]:
    """Those of the failures that may be looked at again; none where there are more than may be flaky."""
    found = [
        ending
        for ending in failed
        if ending.out_of_time and not ending.race and "teardown" not in ending.failed_in
    ]
    return found if len(failed) <= AT_MOST else []


def passes_again(test: str) -> bool:
    """Whether a test passes three times alone and once beside two busy loops. Takes as long as that."""
    return all(_passes(test) for _ in range(3)) and _passes_beside_others(test)


def _passes(test: str) -> bool:
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("JUPYTER_DIST_RECORD")
    }
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", test]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    print(f"  {test}: {'passed' if done.returncode == 0 else 'FAILED'}", flush=True)
    if done.returncode != 0:
        print(done.stdout[-4000:], done.stderr[-2000:], flush=True)
    return done.returncode == 0


def _passes_beside_others(test: str) -> bool:
    with _busy(2):
        return _passes(test)


@contextlib.contextmanager
def _busy(number: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _copy() -> Path:
    return cache() / "suite" / "flaky.toml"


def read_flaky() -> Flaky:
    """What is listed, and what a run of CI has entered since: the machine's copy outlives its clone.

    An entry that the list has had and has no longer was mended: it does not come back.
    """
    listed = _read(_LISTED)
    entered = {test: entry["green_runs"] for test, entry in _read(_copy()).items() if not entry["listed"]}
    return entered | {test: entry["green_runs"] for test, entry in listed.items()}


def write_flaky(flaky: Flaky) -> None:
    """Replace the list and the machine's copy."""
    before = _read(_LISTED)
    for path in (_LISTED, _copy()):
        table = tomlkit.aot()
        for test, runs in sorted(flaky.items()):
            entry = {"test": test, "green_runs": runs}
            table.append(tomlkit.item(entry if path == _LISTED else {**entry, "listed": test in before}))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_HEAD + (tomlkit.dumps({"flaky": table}) if flaky else ""))


def _read(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    entries = tomlkit.parse(path.read_text()).unwrap().get("flaky", [])
    return {entry["test"]: entry for entry in entries}

"""Choose the tests of a tier, and write down how each test has ended. conftest.py registers it.

JUPYTER_DIST_TIER=core leaves out what belongs to a group, JUPYTER_DIST_TIER=engines all but the groups that
JUPYTER_DIST_GROUPS names, with commas between them; without the first everything is run that pytest is given.
JUPYTER_DIST_RECORD is a file that gets a line of JSON for each test: see `Ending`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.tiers import groups

__all__ = ["DEAD_PATTERNS", "Ending", "TierPlugin", "endings"]


@dataclass
class Ending:
    """How a test has ended: its setup, its body and its teardown together."""

    test: str
    """Its id as pytest takes it, from the root of the checkout on."""
    group: str
    """The group that it belongs to; `core` where it is core."""
    seconds: float = 0.0
    outcome: str = "passed"
    """`passed`, `skipped` or `failed`."""
    failed_in: tuple[str, ...] = ()
    """Of `setup`, `call` and `teardown`, those that have failed."""
    out_of_time: bool = False
    """Whether all that failed were waits that were given up."""
    race: bool = False
    """Whether it is marked `race`."""
    text: str = ""


class TierPlugin:
    """Registered once for each pytest process; the one that gives tests to others writes the record."""

    def __init__(self, config: pytest.Config) -> None:
        self._tier = os.environ.get("JUPYTER_DIST_TIER", "")
        self._groups = set(filter(None, os.environ.get("JUPYTER_DIST_GROUPS", "").split(",")))
        worker = hasattr(config, "workerinput")
        record = "" if worker else os.environ.get("JUPYTER_DIST_RECORD", "")
        self._record = open(record, "a") if record else None
        self._endings: dict[str, Ending] = {}
        if self._tier not in ("", "core", "engines"):
            raise pytest.UsageError(f"JUPYTER_DIST_TIER is {self._tier!r}. Set it to core or to engines.")
        known = {group.name for group in groups.GROUPS}
        if unknown := self._groups - known:
            listed = f"The groups are {', '.join(sorted(known))}."
            raise pytest.UsageError(f"No group of tests is called {', '.join(sorted(unknown))}. {listed}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self._tier:  # then pytest is given the whole folder
            tests = [groups.short_id(item.nodeid) for item in items]
            config.stash[DEAD_PATTERNS] = groups.dead_patterns(tests)
        number = groups.turn()
        kept: list[pytest.Item] = []
        left_out: list[pytest.Item] = []
        for item in items:
            group = groups.group_of(groups.short_id(item.nodeid))
            item.stash[_GROUP] = group.name if group else "core"
            (kept if self._wants(item, group, number) else left_out).append(item)
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = kept

    def _wants(self, item: pytest.Item, group: groups.Group | None, number: int) -> bool:
        if not self._tier:
            return True
        if self._tier == "engines":
            return group is not None and (not self._groups or group.name in self._groups)
        fixtures = set(getattr(item, "fixturenames", ()))
        return group is None or groups.in_turn(groups.short_id(item.nodeid), fixtures, number)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        marks = [str(word) for mark in item.iter_markers("xdist_group") for word in mark.args]
        test = item.nodeid
        for mark in marks:
            test = test.removesuffix(f"@{mark}")
        vars(report)[_TOLD] = {
            "test": test,
            "group": item.stash.get(_GROUP, "core"),
            "race": item.get_closest_marker("race") is not None,
            "out_of_time": call.excinfo is not None and _is_out_of_time(call.excinfo),
        }
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._record is None:
            return
        told = vars(report).get(_TOLD)
        if told is None:  # xdist's own report of a worker that has died
            told = {"test": report.nodeid, "group": "core", "race": False, "out_of_time": False}
        test = told["test"]
        ending = self._endings.setdefault(test, Ending(test, told["group"], race=told["race"]))
        ending.seconds += report.duration
        if report.failed:
            ending.out_of_time = told["out_of_time"] and (ending.out_of_time or not ending.failed_in)
            ending.outcome = "failed"
            ending.failed_in += (report.when or "call",)
            ending.text += report.longreprtext
            ending.text += "".join(f"\n--- {title}\n{text}" for title, text in report.sections)
        elif report.skipped and ending.outcome == "passed":
            ending.outcome = "skipped"
        if report.when == "teardown" or report.when is None:
            self._write(ending)

    def _write(self, ending: Ending) -> None:
        assert self._record is not None
        self._endings.pop(ending.test, None)
        self._record.write(json.dumps(asdict(ending)) + "\n")
        self._record.flush()

    def pytest_unconfigure(self) -> None:
        if self._record is not None:
            for ending in list(self._endings.values()):  # of a worker that has died
                self._write(ending)
            self._record.close()


DEAD_PATTERNS = pytest.StashKey[list[str]]()
"""Patterns of the tiers that match no test; nothing is kept there when only some tests were collected."""
_GROUP = pytest.StashKey[str]()
_TOLD = "jupyter_dist"
"""What a report has besides pytest's own: it travels to the process that writes the record."""


def _is_out_of_time(error: pytest.ExceptionInfo[BaseException]) -> bool:
    """A wait that was given up: by a deadline of the tests, by a library or by pytest-timeout."""
    if isinstance(error.value, pytest.fail.Exception):
        return re.match(r"waited [\d.]+ s for |Timeout .*from pytest-timeout", str(error.value)) is not None
    return type(error.value).__name__ == "TimeoutError"  # Python's own, and Playwright's


def endings(record: Path) -> list[Ending]:
    """What a record says, the last ending of each test."""
    found = {}
    for line in record.read_text().splitlines():
        told = json.loads(line)
        found[told["test"]] = Ending(**{**told, "failed_in": tuple(told["failed_in"])})
    return list(found.values())

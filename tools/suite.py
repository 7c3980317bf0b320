"""Run a tier of the tests, look again at what failed by chance, and say what was not run.

    python tools/suite.py core               what `make test` runs
    python tools/suite.py engines [GROUP]... what `make test-engines` runs: all other groups, or these
    python tools/suite.py changed            what CI runs behind the core: the groups that the change touches,
                                             then a third of the others, first those green longest ago

Started by make, in the environment, with this checkout on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

from tests.rigs.made_once import cache
from tests.tiers import groups, second_look
from tests.tiers.last_green import (
    CORE_MINUTES,
    Green,
    changed_files,
    head,
    note_green,
    read_green,
    touched_by,
)
from tests.tiers.pytest_plugin import Ending, endings

PLANNED_MINUTES = 50.0
"""What CI plans, the core included. CI may take 55, and runs that had planned 55 took 57 and 58.

What does not fit is printed, and comes first the next time.
"""
DEAREST = 30
GREW_BY, LOOKED_AT_FROM_S = 1.2, 2.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tier", choices=["core", "engines", "changed"])
    parser.add_argument("groups", nargs="*", metavar="GROUP")
    parser.add_argument("--jobs", default=str(os.cpu_count() or 2), help="tests at a time")
    parser.add_argument(
        "--note-nothing", action="store_true", help="leave last_green.json and flaky.toml alone"
    )
    asked = parser.parse_args()
    if asked.tier == "core":
        return _run({"core": None}, asked.jobs, not asked.note_nothing)
    known = {group.name: group for group in groups.GROUPS}
    if unknown := [name for name in asked.groups if name not in known]:
        parser.error(f"no group is called {', '.join(unknown)}. The groups are {', '.join(known)}.")
    if asked.tier == "engines":
        return _run({name: known[name] for name in asked.groups or known}, asked.jobs, not asked.note_nothing)
    return _run({group.name: group for group in _for_ci()}, asked.jobs, not asked.note_nothing)


def _for_ci() -> list[groups.Group]:
    """The groups whose turn it is."""
    green = read_green()

    def age(group: groups.Group) -> tuple[str, float]:
        return green[group.name].at if group.name in green else "", group.minutes

    oldest = sorted(groups.GROUPS, key=age)
    why = {group.name: _touched(group, green.get(group.name)) for group in oldest}
    touched = [group for group in oldest if why[group.name]]
    others = [group for group in oldest if not why[group.name]]
    began = float(os.environ.get("JUPYTER_DIST_CI_BEGAN", time.time()))
    minutes = (time.time() - began) / 60
    chosen = []
    for group in (*touched, *others[: -(-len(others) // 3)]):
        # A group that does not fit must not keep the shorter groups behind it from their turn.
        if minutes + _minutes(group, green) > PLANNED_MINUTES:
            continue
        minutes += _minutes(group, green)
        chosen.append(group)
        print(f"{group.name}: {why[group.name] or 'it is its turn'}")
    return chosen


def _touched(group: groups.Group, green: Green | None) -> str:
    """Why the group has to run; empty where nothing has changed that it depends on."""
    if green is None:
        return "it was never green"
    changed = changed_files(green.commit)
    if changed is None:
        return f"the commit at which it was green, {green.commit}, is not known here"
    touching = touched_by(group, changed)
    more = f" and {len(touching) - 1} more" if len(touching) > 1 else ""
    return f"{touching[0]}{more} changed since {green.commit}" if touching else ""


def _minutes(group: groups.Group, green: dict[str, Green]) -> float:
    """What a group is likely to take here. CI has just run the core, which tells how fast the machine is."""
    core = green["core"].minutes if "core" in green else CORE_MINUTES
    # The time of a group's command is not in the record of its tests.
    measured = group.name in green and not group.command
    known = green[group.name] if measured else Green("", "", group.minutes)
    return known.minutes_beside(core)


def _run(wanted: dict[str, groups.Group | None], jobs: str, noted: bool) -> int:
    """Run the core, or these groups; returns the exit code."""
    began, commit = time.monotonic(), head()
    listed = second_look.read_flaky()
    record = cache() / "suite" / f"record-{os.getpid()}.jsonl"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.touch()
    try:
        core = "core" in wanted
        with_tests = [name for name, group in wanted.items() if group is None or group.tests]
        environ = {"JUPYTER_DIST_TIER": "core" if core else "engines", "JUPYTER_DIST_RECORD": str(record)}
        environ["JUPYTER_DIST_GROUPS"] = "" if core else ",".join(with_tests)
        code = _pytest(jobs, environ) if with_tests else 0
        ended = endings(record)
    finally:
        record.unlink(missing_ok=True)
    broken = {name for name, group in wanted.items() if group and group.command and not _command(group)}
    failed = [ending for ending in ended if ending.outcome == "failed"]
    _print_durations(ended)
    unforgiven = _look_again(failed) if noted else failed
    # A run that was cut short, or that pytest could not begin, says nothing of any test.
    whole = code == 0 or (code == 1 and failed)
    minutes = (time.monotonic() - began) / 60
    if whole and noted:
        red = broken | {ending.group for ending in unforgiven}
        green = [name for name in wanted if name not in red]
        note_green(commit, {name: minutes if core else _minutes_of(name, ended, jobs) for name in green})
    _print_not_run(set(wanted))
    verdict = whole and not unforgiven and not broken
    if verdict and noted and listed:
        counted = {test: runs + (test in listed) for test, runs in second_look.read_flaky().items()}
        second_look.write_flaky(counted)
    also = f", broken: {', '.join(sorted(broken))}" if broken else ""
    print(f"{len(ended)} tests in {minutes:.1f} min, {len(unforgiven)} failures that count{also}", flush=True)
    return 0 if verdict and not _has_stayed_too_long() else 1


def _pytest(jobs: str, environ: dict[str, str]) -> int:
    command = [sys.executable, "-m", "pytest", "-n", jobs, "--dist", "loadgroup"]
    return subprocess.run(command, env={**os.environ, **environ}, check=False).returncode


def _command(group: groups.Group) -> bool:
    print(f"--- {group.name}: {' '.join(group.command)}", flush=True)
    return subprocess.run([sys.executable, *group.command], check=False).returncode == 0


def _minutes_of(name: str, ended: list[Ending], jobs: str) -> float:
    """What a group adds to a run: groups run side by side."""
    return sum(ending.seconds for ending in ended if ending.group == name) / 60 / int(jobs)


def _look_again(failed: list[Ending]) -> list[Ending]:
    """The failures that count. Those that do not are printed whole and listed in tests/flaky.toml."""
    suspects = second_look.suspects(failed)
    if suspects:
        print(f"--- {len(suspects)} tests ran out of time: each is run three times alone, and beside a load")
    flaky = [ending for ending in suspects if second_look.passes_again(ending.test)]
    listed = second_look.read_flaky()
    new = {ending.test: 0 for ending in flaky if ending.test not in listed}
    if len(listed) + len(new) > second_look.AT_MOST:
        print(f"tests/flaky.toml may hold {second_look.AT_MOST}. Mend what it holds: these failures count.")
        return failed
    for ending in flaky:
        print(f"\n===== FLAKY {ending.test}\n{ending.text}\n===== end of FLAKY {ending.test}")
    if new:
        second_look.write_flaky(listed | new)
    return [ending for ending in failed if ending not in flaky]


def _has_stayed_too_long() -> bool:
    old = [test for test, runs in second_look.read_flaky().items() if runs > second_look.GREEN_RUNS]
    for test in old:
        print(f"FLAKY for more than {second_look.GREEN_RUNS} green runs: {test}. Mend it, or remove it.")
    return bool(old)


def _print_durations(ended: list[Ending]) -> None:
    """The dearest tests, and those that took longer than at the last run here."""
    path = cache() / "suite" / "durations.json"
    known: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    now = {ending.test: round(ending.seconds, 2) for ending in ended if ending.outcome == "passed"}
    print(f"--- the {DEAREST} tests that took longest")
    for test, seconds in sorted(now.items(), key=lambda item: -item[1])[:DEAREST]:
        print(f"  {seconds:7.1f} s  {test}")
    grown = {test: s for test, s in now.items() if s > max(GREW_BY * known.get(test, s), LOOKED_AT_FROM_S)}
    if grown:
        print(f"--- tests that took {round(100 * (GREW_BY - 1))} % longer than before on this machine")
    for test, seconds in sorted(grown.items(), key=lambda item: known[item[0]] - item[1])[:DEAREST]:
        print(f"  {known[test]:7.1f} -> {seconds:.1f} s  {test}")
    path.write_text(json.dumps(known | now, indent=0, sort_keys=True))


def _print_not_run(ran: set[str]) -> None:
    green = read_green()
    print(f"--- not run now, at {head()}")
    for group in groups.GROUPS:
        if group.name not in ran:
            last = green.get(group.name)
            told = f"last green at {last.commit}, {last.at}" if last else "never green so far"
            print(f"  {group.name}: {told}. To run it: make test-engines GROUPS={group.name}")


if __name__ == "__main__":
    sys.exit(main())

"""At which commit each group of tests was last green, and which groups a change since then touches.

tests/last_green.json goes with the code, a copy of it stays in the machine's cache: a run of CI happens
in a clone that is thrown away. Of both the newer line counts.
"""

from __future__ import annotations

import datetime
import json
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.rigs.made_once import cache
from tests.tiers.groups import GROUPS, Group
from tests.tiers.import_graph import MODULES, ROOT, TESTS, closure

__all__ = ["CORE_MINUTES", "Green", "changed_files", "head", "note_green", "read_green", "touched_by"]

CORE_MINUTES = 20.0
"""How long the core takes on the machine that the minutes in tests/tiers/groups.py are meant for."""
_COMMITTED = ROOT / "tests" / "last_green.json"
_TOUCH_ALL = ("Makefile", "pyproject.toml", "tests/constraints.txt", "tests/conftest.py")
_RUN_BY_ALL = ("agent", "hosts", "supervise", "worker")
"""Parts of the package that run in processes of their own: no test imports what it tests of them."""


class Green(NamedTuple):
    """The last time that all tests of a group have passed."""

    commit: str
    at: str
    """The day and the time, in UTC, as ISO 8601 has them."""
    minutes: float
    """How long they took."""
    core_minutes: float = CORE_MINUTES
    """How long the core had taken on the machine on which they took so long."""

    def minutes_beside(self, core: float) -> float:
        """How long they take on a machine whose core takes so many minutes."""
        return self.minutes * core / self.core_minutes


def _copy() -> Path:
    return cache() / "suite" / "last_green.json"


def read_green() -> dict[str, Green]:
    """What is known, by the group's name; `core` is one of them."""
    found: dict[str, Green] = {}
    for path in (_COMMITTED, _copy()):
        if path.exists():
            for name, told in json.loads(path.read_text()).items():
                green = Green(**told)
                if name not in found or found[name].at < green.at:
                    found[name] = green
    return found


def note_green(commit: str, minutes: dict[str, float]) -> None:
    """Write down that these groups, which took so many minutes, have passed at a commit."""
    known = {
        name: green for name, green in read_green().items() if name in {"core", *(g.name for g in GROUPS)}
    }
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    core = minutes.get("core") or (known["core"].minutes if "core" in known else CORE_MINUTES)
    known |= {name: Green(commit, now, round(took, 1), round(core, 1)) for name, took in minutes.items()}
    text = json.dumps({name: known[name]._asdict() for name in sorted(known)}, indent=1) + "\n"
    for path in (_COMMITTED, _copy()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def head() -> str:
    """The commit that is checked out."""
    return _git("rev-parse", "--short=12", "HEAD").strip()


def changed_files(commit: str) -> list[str] | None:
    """Files that differ from those of a commit, those that are not committed included.

    None where the commit is not known here.
    """
    try:
        committed = _git("diff", "--name-only", commit, "--")
        untracked = _git("ls-files", "--others", "--exclude-standard")
    except subprocess.CalledProcessError:
        return None
    return sorted({*committed.splitlines(), *untracked.splitlines()})


def touched_by(group: Group, changed: list[str]) -> list[str]:
    """Those of the changed files on which the group's tests depend."""
    depends = {str(path.relative_to(ROOT)) for path in closure(_roots(group))}
    places = (*_TOUCH_ALL, *group.watches)
    return [
        path
        for path in changed
        if path in depends or any(path == place or path.startswith(f"{place}/") for place in places)
    ]


def _roots(group: Group) -> list[Path]:
    """Files of the group's tests, and of the package's programs that they start."""
    parts = tuple(f"jupyter_dist.{part}" for part in _RUN_BY_ALL)
    backends = tuple(f"jupyter_dist.backends.{name}." for name in group.backends)
    begin = (*parts, *backends)
    found = [path for name, path in MODULES.items() if f"{name}.".startswith(begin)]
    for path in TESTS.values():
        short = path.relative_to(ROOT / "tests").as_posix()
        if any(pattern.startswith(f"{short}::") for pattern in group.tests):
            found.append(path)
    return found


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout

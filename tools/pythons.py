"""Run the tests that need no engine on the other Pythons of this machine; exit 1 where one fails.

python tools/pythons.py                  every Python found, without the one that runs this file
python tools/pythons.py 3.12 ~/my/python these alone: by their minor version or their path
python tools/pythons.py --list           what is found, and where

A Debian machine without Python 3.14 gets one from tests/rigs/debian_python.py.

JOBS says how many tests run at a time. What tests need is installed once per Python and set of dependencies,
below $XDG_CACHE_HOME/jupyter-dist/pythons, or ~/.cache. No engine is among it: a test that needs an engine is
skipped, and the last line of each Python says which engines were missing.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

__all__ = ["Outcome", "Python", "candidates", "found", "main", "outcome", "requirements"]

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from tests.rigs import debian_python  # noqa: E402
from tests.rigs.made_once import cache  # noqa: E402

FILES = [
    *("test_macos", "test_magics", "capture/test_capture", "capture/test_captured_names"),
    *("capture/test_keras_checks", "capture/test_modules", "capture/test_preflight", "capture/test_source"),
    "capture/test_second_part",
    "launch/test_template",
    *("supervise/test_supervisor", "supervise/test_stops", "supervise/test_run_folders"),
    *("supervise/test_killed_processes", "worker/test_payload", "worker/api/test_api"),
    "worker/debugger/test_pdb_prompts",
    *(
        "worker/pickling/test_across_pythons",
        "worker/pickling/test_code_places",
        "worker/pickling/test_code_texts",
        "worker/pickling/test_exceptions",
        "worker/pickling/test_library_names",
        "worker/pickling/test_methods",
        "worker/pickling/test_other_pythons",
        "worker/pickling/test_source_index",
        "worker/rank/test_child_processes",
        "worker/rank/test_tracebacks",
    ),
]
"""Below tests/: what depends on the Python it runs on. Together they take one to two minutes of a core."""

OF_TESTS = ("ipykernel", "nbclient", "hypothesis", "pytest", "pytest-timeout", "pytest-xdist")
"""What the tests need besides the package's own dependencies, as its extras have it."""

ASK = """
import json, sys
print(sys.version_info[0], sys.version_info[1], sys.implementation.name, sys.version.split()[0])
"""


@dataclass(frozen=True)
class Python:
    """An interpreter. `minor` as in `3.12`."""

    path: Path
    minor: str
    version: str

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(map(int, self.minor.split(".")))


@dataclass(frozen=True)
class Outcome:
    """What pytest's report of one Python says. `lacking` counts skipped tests by what they need."""

    passed: int
    failed: int
    lacking: Mapping[str, int]
    file_s: Mapping[str, float]
    """Seconds of each test file."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pythons", nargs="*", help="a minor version such as 3.12, or the path of a Python")
    parser.add_argument("--list", action="store_true", help="print the Pythons and run nothing")
    parser.add_argument("--files", nargs="+", default=FILES, metavar="NAME", help="test files, without .py")
    parser.add_argument("--durations", action="store_true", help="print the seconds of each test file")
    options = parser.parse_args(argv)
    pythons = _chosen(options.pythons)
    if options.list:
        for python in pythons:
            print(f"Python {python.version}: {python.path}")
        return 0
    if not pythons:
        print("no other Python from 3.10 on was found: nothing was tested")
        return 0
    failed = [_tested(python, options.files, durations=options.durations) for python in pythons]
    return 1 if any(failed) else 0


def _chosen(words: Sequence[str]) -> list[Python]:
    """The interpreters to run."""
    by_minor = {python.minor: python for python in found(candidates())}
    newest = debian_python.NEWEST
    if (not words or newest in words) and newest not in by_minor and shutil.which("apt-get"):
        try:
            by_minor |= {python.minor: python for python in found([debian_python.made(newest)])}
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"Python {newest} cannot be had: {error}", flush=True)
    if not words:
        here = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return [python for minor, python in by_minor.items() if minor != here]
    chosen = []
    for word in words:
        named = by_minor.get(word) or next(iter(found([Path(word)])), None)
        if named is None:
            sys.exit(f"'{word}' is no Python from 3.10 on: name a minor version that --list shows, or a path")
        chosen.append(named)
    return chosen


def candidates() -> list[Path]:
    """Paths where interpreters may be. The newest release of pyenv's goes before an older one."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    releases = {
        folder: tuple(map(int, folder.name.split(".")))
        for folder in sorted(root.glob("versions/3.*"))
        if re.fullmatch(r"[\d.]+", folder.name)
    }
    places = [
        folder / "bin" / "python" for folder in sorted(releases, key=releases.__getitem__, reverse=True)
    ]
    for folder in [*os.environ.get("PATH", "").split(os.pathsep), "/usr/bin", "/usr/local/bin"]:
        if folder:
            named = [p for p in Path(folder).glob("python3.*") if re.fullmatch(r"python3\.\d+", p.name)]
            places += sorted(named)
    return [*places, *(path for path in debian_python.PATHS.values() if path.exists())]


def found(places: Iterable[Path], oldest: tuple[int, int] = (3, 10)) -> list[Python]:
    """The CPythons at these places, by their version; the first one of each minor version.

    `oldest`: of a notebook. A rank's may be older."""
    pythons: dict[str, Python] = {}
    for place in places:
        # pyenv's shims are scripts that end with an error for a version that is not chosen.
        try:
            done = subprocess.run([place, "-c", ASK], capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            continue
        major, minor, implementation, version = done.stdout.split()
        if implementation == "cpython" and (int(major), int(minor)) >= oldest:
            name = f"{major}.{minor}"
            pythons.setdefault(name, Python(place, name, version))
    return sorted(pythons.values(), key=lambda python: python.order)


def requirements(pyproject: str) -> list[str]:
    """What to install: the package's dependencies, and of its extras what these tests need."""
    # This file runs in an environment where nothing is installed yet.
    toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomlkit")
    project = toml.loads(pyproject)["project"]
    extras = [entry for extra in project["optional-dependencies"].values() for entry in extra]
    named = {re.split(r"[^\w.-]", entry, maxsplit=1)[0]: entry for entry in reversed(extras)}
    return [*project["dependencies"], *(named[name] for name in OF_TESTS)]


def _kept(python: Python) -> Path:
    """The environment with what tests need, made where it is missing. It knows no checkout: several share it.

    Raises CalledProcessError where it cannot be made."""
    needed = requirements((ROOT / "pyproject.toml").read_text())
    digest = hashlib.sha256("\n".join([*needed, python.version, str(python.path)]).encode()).hexdigest()
    folder = cache() / "pythons" / f"{python.minor}-{digest[:16]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # The stamp comes last: what an interrupted installation has left is made anew.
        if not (folder / "complete").exists():
            print(f"Python {python.version}: installing into {folder}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([python.path, "-m", "venv", "--without-pip", folder], check=True)
            # Debian's Python has no pip of its own.
            pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
            subprocess.run([*pip, "install", "-qq", "--disable-pip-version-check", *needed], check=True)
            (folder / "complete").touch()
    return folder


def _thin(python: Python, kept: Path, folder: Path) -> Path:
    """Make an environment of this run: the kept one, and this checkout. Returns its interpreter.

    Tests set PYTHONPATH for the processes that they start, so it cannot be what makes the checkout known."""
    subprocess.run([python.path, "-m", "venv", "--without-pip", folder], check=True)
    below = _packages(python)
    # `addsitedir` instead of a plain line: it reads the .pth files there, too.
    lines = [f"import site; site.addsitedir({str(kept / below)!r})", str(ROOT)]
    (folder / below / "checkout.pth").write_text("\n".join(lines) + "\n")
    return folder / "bin" / "python"


def _tested(python: Python, names: Sequence[str], *, durations: bool) -> bool:
    """Run the tests on one Python and print what came of it. Returns whether something has failed."""
    try:
        kept = _kept(python)
    except subprocess.CalledProcessError as error:
        print(f"Python {python.version}: its environment cannot be made: {error}", flush=True)
        return True
    with tempfile.TemporaryDirectory(prefix="jd-python-") as folder:
        interpreter = _thin(python, kept, Path(folder, "environment"))
        report = Path(folder, "report.xml")
        words = ["-n", os.environ.get("JOBS") or "1", "--dist", "loadgroup"]
        words += ["-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        words += [f"tests/{name}.py" for name in names]
        return _run(f"Python {python.version}", [interpreter, "-m", "pytest", *words], report, durations)


def _run(who: str, words: Sequence[str | Path], report: Path, durations: bool) -> bool:
    """Run pytest, which writes the report, and print its outcome. Returns whether something has failed."""
    begin = time.monotonic()
    done = subprocess.run(
        words,
        cwd=ROOT,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    seen = outcome(report.read_text()) if report.exists() else Outcome(0, 0, {}, {})
    failed = done.returncode != 0 or not seen.passed
    if failed:
        print(done.stdout)
    seconds = time.monotonic() - begin
    print(f"{who}: {seen.passed} passed, {seen.failed} failed, {seconds:.0f} s", end="")
    lacking = ", ".join(f"{name} {count}" for name, count in sorted(seen.lacking.items()))
    print(f"; {sum(seen.lacking.values())} skipped, which need {lacking}" if lacking else "", flush=True)
    if durations:
        for name, spent in sorted(seen.file_s.items(), key=lambda item: -item[1]):
            print(f"  {spent:6.1f} s  {name}")
    return failed


def _packages(python: Python) -> str:
    """Where an environment has its packages."""
    return f"lib/python{python.minor}/site-packages"


def _environment() -> dict[str, str]:
    """This process's environment without what would make a skip a failure, or name another checkout."""
    left_out = {
        "JUPYTER_DIST_REQUIRE_ALL",
        "PYTHONPATH",
        "PYTHONHOME",
        "VIRTUAL_ENV",
        "PYTHONDONTWRITEBYTECODE",
    }
    return {name: value for name, value in os.environ.items() if name not in left_out}


def outcome(report: str) -> Outcome:
    """What a JUnit report of pytest's says."""
    passed = failed = 0
    lacking: Counter[str] = Counter()
    file_s: defaultdict[str, float] = defaultdict(float)
    for case in ElementTree.fromstring(report).iter("testcase"):
        file_s[".".join(case.get("classname", "").split(".")[:2])] += float(case.get("time", "0"))
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif skipped is None:
            passed += 1
        elif skipped.get("type") != "pytest.xfail":
            why = skipped.get("message", "")
            needed = re.match(r"needs ([\w.]+)", why)
            lacking[needed[1] if needed else why] += 1
    return Outcome(passed, failed, lacking, file_s)


if __name__ == "__main__":
    sys.exit(main())

"""Run the tests that need no engine on the other Pythons of this machine; exit 1 where one fails.

python tools/pythons.py                  every Python found, without the one that runs this file
python tools/pythons.py 3.12 ~/my/python these alone: by their minor version or their path
python tools/pythons.py --list           what is found, and where

Where Node is installed and no Python 3.14, Pyodide's stands in for it (https://pyodide.org): CPython as
WebAssembly, from npm. It has no processes, so only the tests in FILES_WITHOUT_PROCESSES run there.

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

FILES = [
    *("test_macos", "test_magics", "capture/test_capture", "capture/test_second_part"),
    "launch/test_template",
    *("supervise/test_supervisor", "worker/test_payload", "worker/api/test_api"),
    "worker/debugger/test_pdb_prompts",
    *(
        "worker/pickling/test_across_pythons",
        "worker/pickling/test_code_places",
        "worker/pickling/test_code_texts",
        "worker/pickling/test_exceptions",
        "worker/pickling/test_library_names",
        "worker/pickling/test_other_pythons",
        "worker/pickling/test_source_index",
        "worker/rank/test_child_processes",
        "worker/rank/test_tracebacks",
    ),
]
"""Below tests/: what depends on the Python it runs on. Together they take one to two minutes of a core."""

FILES_WITHOUT_PROCESSES = [
    f"worker/pickling/test_{name}" for name in ("code_places", "other_pythons", "source_index")
]
"""What also runs on a Python as WebAssembly, without conftest.py."""

PYODIDE = "314.0.7"
"""The version of npm's package; its first number is the Python in it."""

OF_TESTS = ("ipykernel", "nbclient", "hypothesis", "pytest", "pytest-timeout", "pytest-xdist")
"""What the tests need besides the package's own dependencies, as its extras have it."""

IN_NODE = """
import { loadPyodide } from "pyodide";
const [code, ...folders] = process.argv.slice(2);
const python = await loadPyodide();
for (const root of folders) {
  python.FS.mkdirTree(root);
  python.FS.mount(python.FS.filesystems.NODEFS, { root }, root);
}
process.exitCode = python.runPython(code);
"""
"""A program for Node: run Python code, which sees folders of this machine. Its value is the exit code."""

IN_PYODIDE = """
import os, sys, types

# Modules that are imported and not used by what is tested.
sys.modules.update({{name: types.ModuleType(name) for name in ("resource", "pwd", "grp")}})
sys.modules["resource"].struct_rusage = object
os.geteuid = lambda: os.stat("/tmp").st_uid
sys.path[:0] = {path!r}
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
import pytest

print("Python", sys.version.split()[0])
int(pytest.main({words!r}))
"""

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
    pythons, in_node = _chosen(options.pythons)
    if options.list:
        for python in pythons:
            print(f"Python {python.version}: {python.path}")
        if in_node:
            print(f"Python 3.14 as WebAssembly: Pyodide {PYODIDE}")
        return 0
    if not pythons and not in_node:
        print("no other Python from 3.10 on was found: nothing was tested")
        return 0
    failed = [_tested(python, options.files, durations=options.durations) for python in pythons]
    if in_node:
        failed.append(_tested_in_node(FILES_WITHOUT_PROCESSES))
    return 1 if any(failed) else 0


def _chosen(words: Sequence[str]) -> tuple[list[Python], bool]:
    """The interpreters to run, and whether Pyodide stands in for Python 3.14."""
    by_minor = {python.minor: python for python in found(candidates())}
    in_node = "3.14" not in by_minor and bool(shutil.which("node") and shutil.which("npm"))
    if not words:
        here = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return [python for minor, python in by_minor.items() if minor != here], in_node
    chosen = []
    for word in words:
        if word == "3.14" and in_node:
            continue
        named = by_minor.get(word) or next(iter(found([Path(word)])), None)
        if named is None:
            sys.exit(f"'{word}' is no Python from 3.10 on: name a minor version that --list shows, or a path")
        chosen.append(named)
    return chosen, in_node and "3.14" in words


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
    return places


def found(places: Iterable[Path]) -> list[Python]:
    """The CPythons at these places from 3.10 on, by their version; the first one of each minor version."""
    pythons: dict[str, Python] = {}
    for place in places:
        # pyenv's shims are scripts that end with an error for a version that is not chosen.
        try:
            done = subprocess.run([place, "-c", ASK], capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            continue
        major, minor, implementation, version = done.stdout.split()
        if implementation == "cpython" and (int(major), int(minor)) >= (3, 10):
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
    folder = _cache() / f"{python.minor}-{digest[:16]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # The stamp comes last: what an interrupted installation has left is made anew.
        if not (folder / "complete").exists():
            print(f"Python {python.version}: installing into {folder}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([python.path, "-m", "venv", folder], check=True)
            install = ("-m", "pip", "install", "-qq", "--disable-pip-version-check", *needed)
            subprocess.run([folder / "bin" / "python", *install], check=True)
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


def _tested_in_node(names: Sequence[str]) -> bool:
    """The same on Python 3.14 as WebAssembly, with the packages in the environment of another Python."""
    who = f"Python 3.14 as WebAssembly (Pyodide {PYODIDE})"
    home = _cache() / f"pyodide-{PYODIDE}"
    home.mkdir(parents=True, exist_ok=True)
    with open(home / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "node_modules" / "pyodide" / "pyodide.asm.wasm").exists():
            print(f"{who}: installing into {home}", flush=True)
            install = ["npm", "install", "--silent", "--prefix", str(home), f"pyodide@{PYODIDE}"]
            if subprocess.run(install, check=False).returncode:
                print(f"{who}: npm cannot install it", flush=True)
                return True
        (home / "run.mjs").write_text(IN_NODE)
    try:
        newest = found(candidates())[-1]
        packages = str(_kept(newest) / _packages(newest))
    except (IndexError, subprocess.CalledProcessError) as error:
        print(f"{who}: no environment with pytest for it: {error}", flush=True)
        return True
    with tempfile.TemporaryDirectory(prefix="jd-python-") as folder:
        report = Path(folder, "report.xml")
        words = ["-q", "--noconftest", "-c", "/dev/null", "--rootdir", str(ROOT), "--import-mode=importlib"]
        words += ["-W", "error", "-p", "no:cacheprovider", "-p", "no:faulthandler", f"--junitxml={report}"]
        words += [str(ROOT / "tests" / f"{name}.py") for name in names]
        code = IN_PYODIDE.format(path=[str(ROOT), packages], words=words)
        return _run(who, ["node", home / "run.mjs", code, ROOT, packages, folder], report)


def _run(who: str, words: Sequence[str | Path], report: Path, durations: bool = False) -> bool:
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
        # Node shows an error together with the line that it is in, which may be a megabyte long.
        print("\n".join(line[:2000] for line in done.stdout.splitlines()))
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


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jupyter-dist" / "pythons"


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

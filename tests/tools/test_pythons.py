"""tools/pythons.py: which Pythons it finds, what it installs, and what it reads in a report of pytest's."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rigs import debian_python

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("pythons", ROOT / "tools" / "pythons.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["pythons"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fake(folder: Path, name: str, says: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return path


def test_each_minor_version_is_found_once(tool: Any, tmp_path: Path) -> None:
    first = fake(tmp_path, "python3.12", "echo 3 12 cpython 3.12.9")
    places = [
        fake(tmp_path, "shim", "echo 'pyenv: python3.12: command not found' >&2; exit 127"),
        fake(tmp_path, "old", "echo 3 9 cpython 3.9.18"),
        fake(tmp_path, "other", "echo 3 11 pypy 3.11.2"),
        first,
        fake(tmp_path, "later", "echo 3 12 cpython 3.12.1"),
        Path(sys.executable),
        tmp_path / "none",
    ]
    versions = [python.version for python in tool.found(places)]
    assert versions == sorted({"3.12.9", sys.version.split()[0]}, key=lambda text: int(text.split(".")[1]))
    assert tool.found([first])[0].path == first


def test_the_newest_of_pyenvs_releases_comes_first(
    tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for release in ("3.12.9", "3.12.10", "3.13.0", "3.14-dev"):
        (tmp_path / "versions" / release).mkdir(parents=True)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}")
    own = fake(tmp_path / "bin", "python3.12", "")
    fake(tmp_path / "bin", "python3.12-config", "")
    found = [path for path in tool.candidates() if path.is_relative_to(tmp_path)]
    releases = [tmp_path / "versions" / name / "bin" / "python" for name in ("3.13.0", "3.12.10", "3.12.9")]
    assert found == [*releases, own]


@pytest.mark.parametrize("minor", debian_python.RELEASES)
def test_debian_s_pythons_are_the_last_candidates(tool: Any, minor: str) -> None:
    path = debian_python.PATHS[minor]
    if not path.exists():
        pytest.skip(f"needs Python {minor}")
    assert path in tool.candidates()[-2:]
    (python,) = tool.found([path], (3, 9))
    assert (python.path, python.minor) == (path, minor)
    assert bool(tool.found([path])) is (minor != debian_python.OLDEST), "a notebook needs Python 3.10"
    code = "import bz2, ctypes, curses, lzma, readline, sqlite3, ssl, uuid, zlib, sys; print(sys.executable)"
    done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{path}\n"


def test_no_engine_is_installed(tool: Any) -> None:
    needed = tool.requirements((ROOT / "pyproject.toml").read_text())
    names = {entry.partition(">")[0] for entry in needed}
    assert names >= {"cloudpickle", "numpy", "ipykernel", "pytest", "pytest-xdist", "hypothesis"}
    assert not names & {"torch", "tensorflow", "ray", "pyspark", "horovod"}


def test_a_report_is_read(tool: Any) -> None:
    report = """<testsuites><testsuite>
    <testcase classname="tests.test_a" name="one" time="1.5"/>
    <testcase classname="tests.test_a.TestX" name="two" time="0.5"><failure message="no"/></testcase>
    <testcase classname="tests.test_b" name="three" time="0"><error message="no"/></testcase>
    <testcase classname="tests.test_b" name="four">
        <skipped type="pytest.skip" message="needs torch: pip …"/></testcase>
    <testcase classname="tests.test_b" name="five"><skipped type="pytest.xfail" message="a bug"/></testcase>
    </testsuite></testsuites>"""
    seen = tool.outcome(report)
    assert (seen.passed, seen.failed, dict(seen.lacking)) == (1, 2, {"torch": 1})
    assert dict(seen.file_s) == {"tests.test_a": 2.0, "tests.test_b": 0.0}


def test_a_python_that_is_not_there_is_refused(tool: Any) -> None:
    with pytest.raises(SystemExit, match=r"'3\.2' is no Python"):
        tool.main(["3.2", "--list"])

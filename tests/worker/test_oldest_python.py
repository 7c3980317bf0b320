"""The code of ranks and hosts runs on the oldest Python that they may have (OLDEST_PYTHON)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jupyter_dist.agent.stage_program import OLDEST_PYTHON
from tests.rigs import debian_python, newer_names
from tests.rigs.other_pythons import other_python

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "jupyter_dist"
SENT = sorted(
    [
        *(path for part in ("agent", "worker") for path in (PACKAGE / part).rglob("*.py")),
        PACKAGE / "backends" / "platform_entrypoint.py",
        *(PACKAGE / "backends" / "databricks").glob("*_program.py"),
        *(PACKAGE / "backends" / "kubernetes").glob("*_program.py"),
    ]
)
NEWER = """
from itertools import pairwise
import dataclasses, sys, typing, builtins
@dataclasses.dataclass(kw_only=True)
class A: pass
zip([], [], strict=True)
isinstance(1, int | str)
sys.stdlib_module_names
if sys.version_info >= (3, 10):
    zip([], [], strict=True)
builtins.mine = typing.Any
"""


def of_oldest(*paths: Path) -> list[str]:
    words = [str(other_python(debian_python.OLDEST)), newer_names.__file__, *map(str, paths)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_no_code_of_a_rank_needs_a_newer_python() -> None:
    assert ".".join(map(str, OLDEST_PYTHON)) == debian_python.OLDEST
    assert len(SENT) > 200
    assert of_oldest(*SENT) == []


def test_what_a_newer_python_alone_has_is_found(tmp_path: Path) -> None:
    file = tmp_path / "newer.py"
    file.write_text(NEWER)
    found = [line.rpartition(": ")[2] for line in of_oldest(file)]
    names = ["dataclass(kw_only=)", "zip(strict=)", "isinstance(…, A | B)", "sys.stdlib_module_names"]
    assert found == ["itertools.pairwise", *names]
    file.write_text("match 1:\n    case 1: pass\n")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        of_oldest(file)
    assert "line 1" in failed.value.stderr

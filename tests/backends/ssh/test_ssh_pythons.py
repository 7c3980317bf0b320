"""Hosts whose Python is not the notebook's: a real kernel, real sshds, and every other Python found here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Kernel
from tests.rigs import debian_python
from tests.rigs.hosts import Hosts, missing
from tests.rigs.other_pythons import OTHERS, other_python

CELLS = """
import enum
from dataclasses import dataclass, field
---
class Mode(enum.Enum):
    FIT = "fit"
---
@dataclass(order=True)
class Settings:
    rate: float
    layers: list = field(default_factory=list)
    mode: Mode = Mode.FIT

    @property
    def depth(self):
        return len(self.layers)
---
def scaled(by):
    keep, drop = (lambda x: x * by), (lambda x: -x)
    def inner(x, *, twice=True):
        return [f"{y}" for y in (keep(x), drop(x)) if twice]
    return inner

treble = scaled(3)
settings = Settings(0.1, [1, 2])
---
import toolbox

part = toolbox.Part()
"""
CELL = """
import sys
import jupyter_dist as dist

print("here", dist.rank())
settings.layers.append(dist.rank())
made = lambda x: (x, settings.depth)
sys.version_info[:2], treble(dist.rank()), settings, made, Settings, part.version
"""


TOOLBOX = "mkdir -p $0; echo \"__version__ = '$1'\nclass Part: version = __version__\" > $0/toolbox.py"
"""Makes a library in a folder."""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    with Hosts(tmp_path_factory.mktemp("pythons") / "hosts", ["h1", "h2"]) as running:
        yield running


def line(hosts: Hosts, python: object) -> str:
    flags = f"-H h1,h2 --ssh-config {hosts.ssh_config} --python {python} --other-python"
    return f"%%distribute --backend ssh {flags} --out run"


@pytest.mark.parametrize("minor", OTHERS)
def test_a_cell_runs_on_hosts_with_another_python(
    kernel: Kernel, hosts: Hosts, minor: str, tmp_path: Path
) -> None:
    """The hosts' version of a library loads what the notebook's has pickled, and a note names both."""
    python = other_python(minor)
    kernel.run("%load_ext jupyter_dist")
    own, there = f"{tmp_path}/site-packages", f"{tmp_path}/lib"  # another Python leaves out the first one
    subprocess.run(["sh", "-c", TOOLBOX, own, "1.0+cpu"], check=True)
    for name in ("h1", "h2"):
        hosts.exec(name, ["sh", "-c", TOOLBOX, there, "2.0"])
    kernel.run(f"import sys\nsys.path[:0] = {[own, there]}")
    for cell in CELLS.split("---\n"):
        kernel.run(cell)
    shown = kernel.run(f"{line(hosts, python)}\n{CELL}").text
    assert "other versions of libraries than the notebook: toolbox 2.0 (notebook: 1.0+cpu)." in shown
    seen = kernel.run(
        "found = list(run.results)\n"
        "print([f[0] for f in found], [f[1] for f in found], [f[2] for f in found], [f[5] for f in found])\n"
        "print(found[1][3](5), found[0][4] is Settings, found[1][2] > found[0][2], run.log(1).split())"
    ).stdout.splitlines()
    theirs = tuple(map(int, minor.split(".")))
    texts = [["0", "0"], ["3", "-1"]]
    told = [f"Settings(rate=0.1, layers=[1, 2, {rank}], mode=<Mode.FIT: 'fit'>)" for rank in (0, 1)]
    assert seen[0] == f"{[theirs, theirs]} {texts} [{', '.join(told)}] ['2.0', '2.0']"
    assert seen[1] == "(5, 3) True True ['here', '1']"


def test_the_oldest_python_keeps_a_session_and_explains_unions(kernel: Kernel, hosts: Hosts) -> None:
    flags = line(hosts, other_python(debian_python.OLDEST))
    kernel.run("%load_ext jupyter_dist")
    kernel.run("def plus(x: int | None = None) -> int | float: return (x or 0) + 1")
    kernel.run("import dataclasses\n@dataclasses.dataclass(frozen=True, slots=True)\nclass Kept:\n    x: int")
    kernel.run(f"{flags} --session old\nimport sys\nkept = plus(3)")
    kernel.run("%%distribute --session old --out run\n(*sys.version_info[:2], Kept(plus(kept)))")
    seen = kernel.run(
        "print(list(run.results) == [(3, 9, Kept(5))] * 2, type(run.results[0][2]) is Kept)"
    ).stdout
    assert seen.split() == ["True", "True"]
    failed = kernel.start("%%distribute --session old\nkept\nisinstance(1, int | str)").finish()
    assert "hint: Python 3.9 has no X | Y for types" in failed.text
    assert "line 3" in failed.text
    failed = kernel.start("%%distribute --session old\nkept\nmatch kept:\n    case 1: pass").finish()
    assert "(Python 3.9 does not know this syntax. The notebook has Python" in failed.text
    assert "line 3" in failed.text
    kernel.run("%dist close old")


def test_a_function_without_a_text_is_refused_before_a_rank_starts(kernel: Kernel, hosts: Hosts) -> None:
    python = other_python(OTHERS[0])
    kernel.run("%load_ext jupyter_dist")
    kernel.run("exec('def lost(x): return x')")
    failed = kernel.start(f"{line(hosts, python)}\nprint('a rank ran')\nlost(1)").finish()
    assert "can run this function: lost (<string>:1): its source text was not kept." in failed.text
    assert "Define this function in a cell or a module" in failed.text
    assert "a rank ran" not in failed.text
    same = kernel.run(f"{line(hosts, sys.executable)}\nlost(2)\n")
    assert "succeeded" in same.text


def test_without_the_flag_another_python_is_refused_as_before(kernel: Kernel, hosts: Hosts) -> None:
    minor, own = OTHERS[0], f"{sys.version_info[0]}.{sys.version_info[1]}"
    python = other_python(minor)
    kernel.run("%load_ext jupyter_dist")
    flags = line(hosts, python).replace(" --other-python", "")
    failed = kernel.start(f"{flags}\nprint('a rank ran')").finish()
    assert f"it has no Python {own} at '{python}' ({python} is {minor})" in failed.text
    assert f"`uv python install {own}` needs no root. Or add --other-python" in failed.text
    assert "a rank ran" not in failed.text

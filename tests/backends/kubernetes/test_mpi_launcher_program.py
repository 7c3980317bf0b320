"""The program of an MPIJob's launcher pod, with a real mpirun and without a cluster."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_dist.backends.kubernetes import mpi_slot_program

pytestmark = pytest.mark.needs("mpi4py")

RUN = """
import sys
from jupyter_dist.backends.kubernetes import mpi_launcher_program as program

program.HOSTFILE = sys.argv[1]
program._wait_for = lambda hosts: None  # mpirun starts the places of this machine without ssh
program.main(*sys.argv[2:])
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts the launcher of two places, each of which runs a given program."""
    hosts, begun = tmp_path / "hosts", []
    hosts.write_text(f"{os.uname().nodename} slots=2\n")

    def start(program: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", RUN, str(hosts), program, str(tmp_path / "places"), "2"]
        begun.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return begun[-1]

    yield start
    for process in begun:
        process.terminate()
        process.wait()


def _both_are_taken(turn: Path) -> bool:
    return (turn / "0.json").exists() and (turn / "1.json").exists()


def test_a_rank_that_is_killed_at_once_does_not_end_the_launcher(
    launcher: Callable[[str], subprocess.Popen[str]], tmp_path: Path, wait_for: Callable[..., Any]
) -> None:
    process = launcher(Path(mpi_slot_program.__file__).read_text())
    for turn in range(3):
        both = functools.partial(_both_are_taken, tmp_path / "places" / str(turn))
        wait_for(both, f"the places of turn {turn}")
        mpirun = psutil.Process(process.pid).children()[0]
        held = [child for child in mpirun.children(recursive=True) if not child.children()]
        held[0].send_signal(signal.SIGKILL)
        mpirun.wait()
    process.terminate()
    output, _ = process.communicate()
    assert process.returncode == 143
    assert "mpirun holds 2 places on 1 workers, 2" in output
    assert "a place is taken" not in output


@pytest.mark.parametrize(
    "program",
    ["import sys; sys.exit('no such thing here')", "print('jupyter-dist: a place is taken!'); raise OSError"],
)
def test_mpirun_that_fails_by_itself_ends_the_launcher(
    launcher: Callable[[str], subprocess.Popen[str]], program: str
) -> None:
    process = launcher(program)
    output, _ = process.communicate()
    assert process.returncode == 1
    assert output.count("mpirun holds 2 places") == 1
    assert "no such thing here" in output or "a place is taken!" in output

"""The process that keeps a Ray cluster on this machine: found by its command line, and nobody else ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from jupyter_dist.backends.ray import local_cluster
from jupyter_dist.backends.ray.options import RayOptions
from jupyter_dist.errors import LaunchError
from jupyter_dist.folder import RunFolder
from jupyter_dist.worker.gpus.devices import Gpu

_SLEEP = "import sys; print('up', flush=True); sys.stdin.read()"


def test_a_shell_reads_the_path_of_rays_python_as_one_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "my environment"
    venv.create(home, with_pip=False)
    temporary = tmp_path / "ray"
    temporary.mkdir()
    assert local_cluster._python(str(temporary)) == sys.executable
    monkeypatch.setattr(sys, "executable", str(home / "bin" / "python"))
    monkeypatch.setattr(sys, "prefix", str(home))
    command = f"exec {local_cluster._python(str(temporary))} -c 'import sys; print(sys.prefix)'"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert os.path.samefile(done.stdout.strip(), home)


@pytest.mark.parametrize("gpus_per_worker", [None, 1])
def test_a_ray_of_the_runs_own_never_gets_more_gpus(
    gpus_per_worker: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_cluster, "visible_gpus", lambda: (Gpu("0", None),))
    asked = RayOptions(gpus_per_worker=gpus_per_worker)
    with pytest.raises(LaunchError, match=r"4 workers ask 4 GPUs, .* those of this machine: 1"):
        local_cluster.start(RunFolder(tmp_path), asked, 4)


@pytest.mark.parametrize(
    ("arguments", "ends"),
    [(["-m", local_cluster.__name__, "FOLDER"], True), (["-m", "other", local_cluster.__name__], False)],
    ids=["the keeper", "another process with its pid"],
)
def test_only_the_keeper_of_a_cluster_is_ended(arguments: list[str], ends: bool) -> None:
    command = [sys.executable, "-c", _SLEEP, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        local_cluster.end(process.pid)
        process.communicate()  # closes its input, which ends it otherwise
        assert process.returncode == (-signal.SIGTERM if ends else 0)
    local_cluster.end(process.pid)

"""The programs of a Kubernetes control plane: built here once per version, of Debian's packages alone.

    python -m tests.rigs.kubernetes.binaries      builds them where they are not, and prints the folder

They are kept under ~/.cache/jupyter-dist, by the content of what they are built with. It takes 4 to 15
minutes, and on a machine that has no Debian 12 to download from it cannot be done.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.rigs.made_once import made_once, place

__all__ = ["PROGRAMS", "binaries", "lacking"]

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_HERE = Path(__file__).parent
_NAME = "kubernetes"
_RECIPE = ("build.sh", "indexed.patch")


def _made_of() -> str:
    return "\n".join([*((_HERE / name).read_text() for name in _RECIPE), platform.machine()])


def binaries() -> Path:
    """The folder. Builds it where it is not there; raises RuntimeError where that cannot be done."""
    return made_once(_NAME, _made_of(), _build)


def _build(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="jdkube", ignore_cleanup_errors=True) as scratch:
        done = subprocess.run(
            ["bash", str(_HERE / "build.sh"), str(folder)],
            env={**os.environ, "WORK": scratch},
            capture_output=True,
            text=True,
        )
        # Go's own files are read-only, folders too.
        subprocess.run(["chmod", "-R", "u+w", scratch], check=False)
    if done.returncode:
        raise RuntimeError(f"Kubernetes cannot be built:\n{(done.stdout + done.stderr)[-4000:]}")


def lacking() -> str | None:
    """What a test is skipped for; None where the programs are there. Builds nothing."""
    if os.geteuid() != 0:
        return "pods made of namespaces need root"
    if all((place(_NAME, _made_of()) / name).exists() for name in PROGRAMS):
        return None
    return "Kubernetes is not built: make .venv/.kubernetes"


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("the tests that use them need root")
    print(binaries())

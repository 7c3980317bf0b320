"""The programs of a Kubernetes control plane: built here once per version, of Debian's packages alone.

    python tests/kube_plane/binaries.py       builds them where they are not there, and prints the folder

They are kept under ~/.cache/jupyter-dist, by the content of what they are built with. It takes 4 to 15
minutes, and on a machine that has no Debian 12 to download from it cannot be done.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["PROGRAMS", "binaries", "lacking"]

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_HERE = Path(__file__).parent
_RECIPE = ("build.sh", "indexed.patch")


def _place() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    made_of = b"".join((_HERE / name).read_bytes() for name in _RECIPE) + platform.machine().encode()
    return cache / "jupyter-dist" / f"kubernetes-{hashlib.sha256(made_of).hexdigest()[:16]}"


def binaries() -> Path:
    """The folder. Builds it where it is not there; raises RuntimeError where that cannot be done."""
    place = _place()
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            _build(place)
    return place


def _build(place: Path) -> None:
    part = Path(f"{place}.part")
    shutil.rmtree(part, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="jdkube", ignore_cleanup_errors=True) as scratch:
        done = subprocess.run(
            ["bash", str(_HERE / "build.sh"), str(part)],
            env={**os.environ, "WORK": scratch},
            capture_output=True,
            text=True,
        )
        # Go's own files are read-only, folders too.
        subprocess.run(["chmod", "-R", "u+w", scratch], check=False)
    if done.returncode:
        raise RuntimeError(f"Kubernetes cannot be built:\n{(done.stdout + done.stderr)[-4000:]}")
    part.rename(place)


def lacking() -> str | None:
    """What a test is skipped for; None where the programs are there. Builds nothing."""
    if os.geteuid() != 0:
        return "pods made of namespaces need root"
    if all((_place() / name).exists() for name in PROGRAMS):
        return None
    return f"Kubernetes is not built: python {os.path.relpath(__file__)}"


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("the tests that use them need root")
    print(binaries())

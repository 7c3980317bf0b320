"""Microsoft's emulator of blobs, installed once per version and kept under ~/.cache/jupyter-dist.

    python tests/fakes/azureml/azurite.py       installs it and prints where it lies

https://learn.microsoft.com/azure/storage/common/storage-use-azurite
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["ACCOUNT", "KEY", "azurite", "lacking"]

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of the emulator, whoever runs it: no secret."""
_WANTED = "azurite@3.37.0"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jupyter-dist"


def azurite() -> Path:
    """The program. Installs it where it is not there; raises RuntimeError."""
    place = _cache() / "azurite" / hashlib.sha256(_WANTED.encode()).hexdigest()[:16]
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            part = Path(f"{place}.part")
            shutil.rmtree(part, ignore_errors=True)
            npm = ["npm", "--cache", str(_cache() / "npm"), "--prefix", str(part), "--prefer-offline"]
            done = subprocess.run(
                [*npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", _WANTED],
                capture_output=True,
                text=True,
            )
            if done.returncode:
                raise RuntimeError(f"npm cannot install {_WANTED}:\n{done.stdout}{done.stderr}")
            part.rename(place)
    return place / "node_modules" / ".bin" / "azurite-blob"


def lacking() -> str | None:
    """What a test is skipped for; None where it is there, or can be installed."""
    if shutil.which("npm") is None:
        return "Azure's emulator of blobs needs Node 20 or newer, https://nodejs.org"
    try:
        azurite()
    except (OSError, RuntimeError) as error:
        return f"Azure's emulator of blobs is not to be had: {error}"
    return None


if __name__ == "__main__":
    print(azurite())

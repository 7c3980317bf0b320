"""Microsoft's emulator of blobs, installed once per version and kept under ~/.cache/jupyter-dist.

https://learn.microsoft.com/azure/storage/common/storage-use-azurite
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.rigs.made_once import cache, made_once

__all__ = ["ACCOUNT", "KEY", "azurite", "lacking"]

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of the emulator, whoever runs it: no secret."""
_WANTED = "azurite@3.37.0"


def azurite() -> Path:
    """The program. Installs it where it is not there; raises RuntimeError."""
    return made_once("azurite", _WANTED, _install) / "node_modules" / ".bin" / "azurite-blob"


def _install(folder: Path) -> None:
    npm = ["npm", "--cache", str(cache() / "npm"), "--prefix", str(folder), "--prefer-offline", "install"]
    done = subprocess.run(
        [*npm, "--no-audit", "--no-fund", "--ignore-scripts", _WANTED], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"npm cannot install {_WANTED}:\n{done.stdout}{done.stderr}")


def lacking() -> str | None:
    """What a test is skipped for; None where it is there, or can be installed."""
    if shutil.which("npm") is None:
        return "Azure's emulator of blobs needs Node 20 or newer, https://nodejs.org"
    try:
        azurite()
    except (OSError, RuntimeError) as error:
        return f"Azure's emulator of blobs is not to be had: {error}"
    return None

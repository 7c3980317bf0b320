"""AWS's own toolkits, which AWS's images have: a folder for PYTHONPATH, made once per set of versions.

It is kept under ~/.cache/jupyter-dist. What these packages need beside it, the tests' environment has:
without `--no-deps` they would ask for a numpy and a TensorFlow of years ago.
https://github.com/aws/sagemaker-training-toolkit, -pytorch-training-toolkit, -tensorflow-training-toolkit
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

from tests.rigs.made_once import made_once

__all__ = ["lacking", "toolkits", "toolkits_of"]

_WANTED = (
    "sagemaker-training==5.1.4",
    "sagemaker-pytorch-training==3.0.0",
    "sagemaker-tensorflow-training==20.5.0",
    "retrying==1.4.2",
    "inotify_simple==1.2.1",
    "paramiko==5.1.0",
    "bcrypt==5.0.0",
    "pynacl==1.6.2",
    "invoke==3.0.3",
)


_OF_IMAGE = ("boto3", "psutil", "six", "werkzeug", "scipy", "gevent", "cryptography")
"""What the toolkits need of an image."""


def toolkits() -> Path:
    """The folder. Makes it, in about ten seconds, where it is not there; raises RuntimeError."""
    what = "\n".join([*_WANTED, platform.machine(), sys.implementation.cache_tag or ""])
    return made_once("sagemaker-toolkits", what, _install)


def toolkits_of(python: Path, *libraries: str) -> Path:
    """The folder for a container with another Python, which has these libraries, too.

    It takes a few minutes with TensorFlow among them."""

    def install(folder: Path) -> None:
        _install(folder, str(python))
        _pip(str(python), "--target", str(folder), *_OF_IMAGE, *libraries)

    what = [*_WANTED, *_OF_IMAGE, *libraries, str(python)]
    return made_once("sagemaker-toolkits", "\n".join(what), install)


def _install(folder: Path, python: str = sys.executable) -> None:
    _pip(python, "--no-deps", "--target", str(folder), *_WANTED)


def _pip(python: str, *words: str) -> None:
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"pip cannot install {' '.join(words)}:\n{done.stdout}{done.stderr}")


def lacking() -> str | None:
    """What a test is skipped for; None where the toolkits are there, or can be made."""
    try:
        toolkits()
    except (OSError, RuntimeError) as error:
        return f"AWS's toolkits are not to be had: {error}"
    return None

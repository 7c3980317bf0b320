"""Inputs of a Horovod wheel that is built here: the versions it depends on, and the build tools."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ..errors import InputError

__all__ = ["SHA256", "VERSION", "Recipe", "find_recipe", "missing_tools", "require_tools"]

VERSION = "0.28.1"
SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
"""SHA-256 of the source archive on PyPI."""
_PATCH = 2
"""Incremented when `horovod_build.patch` changes, so that an older wheel is not used for a new one."""

_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly", "tensorflow-rocm")
_CMAKE = (3, 13)
_DEBIAN = {
    "a C++ compiler": "g++",
    "make": "make",
    "CMake": "cmake",
    "Python's headers": "python3-dev",
    "MPI": "openmpi-bin libopenmpi-dev",
}
_CONDA = {
    "a C++ compiler": "gxx",
    "make": "make",
    "CMake": "cmake",
    "Python's headers": "python",
    "MPI": "openmpi-mpicxx",
}


@dataclass(frozen=True)
class Recipe:
    """Recipe of a wheel. Equal recipes make the same wheel. The version of an omitted part is None."""

    torch: str | None
    tensorflow: str | None
    mpi: str | None
    python: str = f"{sys.implementation.cache_tag}"
    machine: str = f"{sysconfig.get_platform()}-{platform.libc_ver()[0]}{platform.libc_ver()[1]}"
    settings: tuple[tuple[str, str], ...] = ()
    """The user's variables HOROVOD_…, such as HOROVOD_GPU_OPERATIONS=NCCL."""
    horovod: str = VERSION
    patch: int = _PATCH

    @property
    def key(self) -> str:
        """Return a short name, which is the same for equal recipes."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def environment(self) -> dict[str, str]:
        """Return the variables for Horovod's build. A variable that the user has set wins."""
        wanted = {"MPI": self.mpi, "GLOO": VERSION, "PYTORCH": self.torch, "TENSORFLOW": self.tensorflow}
        own = {f"HOROVOD_WITH{'' if v else 'OUT'}_{name}": "1" for name, v in wanted.items()}
        return {**own, "HOROVOD_WITHOUT_MXNET": "1", **dict(self.settings)}

    def __str__(self) -> str:
        parts = [f"torch {self.torch}" if self.torch else "", f"TensorFlow {self.tensorflow}"]
        parts = [part for part in parts if part and not part.endswith("None")]
        return f"Horovod {self.horovod} for {' and '.join(parts)}, with " + (
            f"Gloo and {self.mpi}" if self.mpi else "Gloo, without MPI"
        )


def find_recipe(*, mpi: bool, environ: Mapping[str, str] = os.environ) -> Recipe:
    """Return the recipe for this Python, with the installed versions of torch and TensorFlow.

    Raises InputError if neither is installed, or if MPI is requested and missing. The version of MPI is part
    of the recipe. Other build tools are not checked here, because a cached wheel does not need them.
    """
    torch = _version("torch", ("torch",))
    tensorflow = _version("tensorflow", _TENSORFLOW)
    if torch is None and tensorflow is None:
        raise InputError(
            f"Neither torch nor TensorFlow is installed beside {sys.executable}. Horovod is built "
            "for the installed frameworks. Install your framework first, then install Horovod."
        )
    version = _mpi_version() if mpi else None
    if mpi and version is None:
        require_tools(mpi=True)
    settings = tuple(
        sorted((k, v) for k, v in environ.items() if re.match(r"HOROVOD_(WITH|GPU|NCCL|CUDA)", k))
    )
    return Recipe(torch, tensorflow, version, settings=settings)


def require_tools(*, mpi: bool) -> None:
    """Raise InputError, with the packages to install, if a build tool is missing."""
    missing = missing_tools(mpi=mpi)
    if missing:
        raise InputError(_cure(missing))


def missing_tools(*, mpi: bool) -> list[str]:
    """Return the names of build tools that this machine lacks. Compiles nothing."""
    found = {
        "a C++ compiler": shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++"),
        "make": shutil.which("make"),
        "CMake": _cmake_version() >= _CMAKE,
        "Python's headers": Path(sysconfig.get_path("include"), "Python.h").is_file(),
        "MPI": not mpi or (shutil.which("mpirun") and _mpi_version()),
    }
    return [name for name, there in found.items() if not there]


def _cure(missing: list[str]) -> str:
    what = ", ".join(missing[:-1]) + (" and " if missing[:-1] else "") + missing[-1]
    if "CMake" in missing:
        what = what.replace("CMake", f"CMake {_CMAKE[0]}.{_CMAKE[1]} or newer")
    lines = [
        f"Horovod is built from source, and this machine lacks {what}. Install "
        f"{'it' if len(missing) == 1 else 'them'} first:",
        f"  Debian, Ubuntu:  apt-get install {' '.join(_DEBIAN[name] for name in missing)}",
        f"  conda:           conda install -c conda-forge {' '.join(_CONDA[name] for name in missing)}",
    ]
    if missing == ["MPI"]:
        lines.append(
            "Or build without MPI: --without-mpi. Gloo alone is enough for --gloo and for elastic runs."
        )
    return "\n".join(lines)


def _version(module: str, distributions: tuple[str, ...]) -> str | None:
    if importlib.util.find_spec(module) is None:
        return None
    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "of unknown version"


def _cmake_version() -> tuple[int, ...]:
    found = re.search(r"version (\d+)\.(\d+)", _output("cmake", "--version"))
    return tuple(map(int, found.groups())) if found else (0,)


def _mpi_version() -> str | None:
    """Return the version of the MPI that `mpicxx` compiles for, from its header.

    None if it cannot compile.
    """
    macros = _output("mpicxx", "-E", "-dM", "-x", "c++", "-", given="#include <mpi.h>\n")
    found = dict(re.findall(r'^#define (OMPI_\w+_VERSION|MPICH_VERSION) "?([^"\n]*)"?$', macros, re.M))
    if "MPICH_VERSION" in found:
        return f"MPICH {found['MPICH_VERSION']}"
    if "OMPI_MAJOR_VERSION" in found:
        parts = (found.get(f"OMPI_{part}_VERSION", "0") for part in ("MAJOR", "MINOR", "RELEASE"))
        return f"Open MPI {'.'.join(parts)}"
    return "another MPI" if "MPI_VERSION" in macros else None


def _output(*argv: str, given: str = "") -> str:
    try:
        return subprocess.run(argv, input=given, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""

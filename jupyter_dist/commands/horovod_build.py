"""Build of Horovod's wheel for the installed torch and TensorFlow, its cache and its installation.

Horovod's last release does not build with today's frameworks. So three lines of its CMake files are changed.
One line of its Gloo code is changed for hosts whose own name resolves to a loopback address.
A wheel is cached under `$XDG_CACHE_HOME/jupyter-dist/horovod/KEY/`. KEY is a hash of everything that the
wheel depends on. So the same wheel is built once.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..errors import DistError
from ..worker.process_groups import kill_group
from .horovod_recipe import SHA256, VERSION, Recipe

__all__ = ["Progress", "build", "cache_root", "cached", "check", "default_jobs", "install", "patch"]

Progress = Callable[[float | None, str], None]
"""Called with the finished share (0 to 1, None: unknown) and a text on the current step."""

_RUNTIME = ("cloudpickle", "psutil", "pyyaml", "packaging", "cffi>=1.4")
"""Packages that Horovod imports. Its own metadata is not used, because it would replace tensorflow-cpu."""
_BUILD = ("setuptools<81", "wheel", *_RUNTIME)
_ASK = "import horovod.{} as hvd; print(*['Gloo'] * hvd.gloo_built(), *['MPI'] * hvd.mpi_built())"
_GIGABYTE = 1 << 30
_MEMORY_A_JOB = 1.5 * _GIGABYTE

# (file, pattern, replacement, number of matches)
_STANDARD = (r"(set\(CMAKE_CXX_STANDARD) 14\)", r"\1 17)", 1)
_CHANGES = (
    # torch needs C++17 since version 2.1.
    ("CMakeLists.txt", *_STANDARD),
    ("horovod/torch/CMakeLists.txt", *_STANDARD),
    # TensorFlow's wheel lacks the XLA headers that this file includes.
    (
        "horovod/tensorflow/CMakeLists.txt",
        r"(?m)^list\(APPEND TF_SOURCES [^\n]*/xla_mpi_ops\.cc\"\)\n",
        "",
        1,
    ),
    # Process sets, also that of all ranks, use the address of the host's own name, which is often 127.0.1.1.
    (
        "horovod/common/gloo/gloo_context.cc",
        r"(?s)(::InitializeForProcessSet\(.*?device_attr\.iface = )(gloo_iface_)",
        r"\1global_context.\2",
        1,
    ),
)


def cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "jupyter-dist" / "horovod"


def cached(recipe: Recipe) -> Path | None:
    """Return the cached wheel for this recipe, or None."""
    found = sorted((cache_root() / recipe.key).glob("horovod-*.whl"))
    return found[-1] if found else None


def default_jobs() -> int:
    """Return the number of parallel compilers: one per core, limited by the memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(cores, int(memory / _MEMORY_A_JOB)))


def build(recipe: Recipe, jobs: int, progress: Progress) -> Path:
    """Build the wheel and cache it. Returns its path. Blocks for minutes. An interrupt leaves nothing behind.

    Raises DistError if a step fails, with the end of its output and the path of the whole output.
    """
    home = cache_root()
    home.mkdir(parents=True, exist_ok=True)
    log = home / f"build-{recipe.key}.log"
    log.write_bytes(b"")
    with tempfile.TemporaryDirectory(prefix="jd-horovod-", dir=os.environ.get("TMPDIR")) as temporary:
        work = Path(temporary)
        progress(None, "getting the build tools")
        tools = work / "tools"
        _pip(["install", "--target", str(tools), *_BUILD], log)
        # The tools precede the user's packages, because only this setuptools still builds Horovod.
        paths = [str(tools), os.environ.get("PYTHONPATH", "")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        source = _fetch(home, work, log, env, progress)
        patch(source)
        env |= recipe.environment()
        env |= {"MAKEFLAGS": f"-j{jobs}", "CMAKE_POLICY_VERSION_MINIMUM": "3.5"}
        progress(0.0, "configuring")
        wheels = work / "wheel"
        argv = ["wheel", "-v", "--no-build-isolation", "--no-deps", "--no-cache-dir"]
        _pip([*argv, "--wheel-dir", str(wheels), str(source)], log, env=env, watch=_make_watch(progress))
        built = next(wheels.glob("horovod-*.whl"))
        place = home / recipe.key
        place.mkdir(exist_ok=True)
        target = place / built.name
        # Readers see the whole wheel or none.
        part = place / f".{built.name}.{os.getpid()}"
        shutil.copyfile(built, part)
        os.replace(part, target)
    log.unlink(missing_ok=True)
    return target


def _fetch(home: Path, work: Path, log: Path, env: Mapping[str, str], progress: Progress) -> Path:
    """Download and unpack Horovod's source. The archive is cached."""
    name = f"horovod-{VERSION}"
    archive = home / f"{name}.tar.gz"
    if not _is_whole(archive):
        progress(None, f"getting Horovod {VERSION}")
        wanted = [f"horovod=={VERSION}", "--no-binary", "horovod", "--no-deps", "--no-build-isolation"]
        _pip(["download", *wanted, "--no-cache-dir", "--dest", str(work / "source")], log, env=env)
        came = work / "source" / archive.name
        if not _is_whole(came):
            raise DistError(
                f"The archive {archive.name} that pip downloaded is not the one that Horovod's "
                "authors published: its SHA-256 differs. Nothing was built. Check pip's package "
                "index, then try again."
            )
        part = home / f".{archive.name}.{os.getpid()}"
        shutil.copyfile(came, part)
        os.replace(part, archive)
    with tarfile.open(archive) as packed:
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        packed.extractall(work, **safe)  # type: ignore[arg-type]
    return work / name


def _is_whole(archive: Path) -> bool:
    try:
        return hashlib.sha256(archive.read_bytes()).hexdigest() == SHA256
    except OSError:
        return False


def patch(source: Path) -> None:
    """Change Horovod's source so that it builds with today's frameworks.

    Raises DistError, with nothing changed, if the source is not the expected version.
    """
    changed: dict[Path, str] = {}
    for name, pattern, instead, times in _CHANGES:
        file = source / name
        try:
            text, found = re.subn(pattern, instead, file.read_text("utf-8"))
        except OSError as error:
            raise DistError(f"cannot read {name} in Horovod's source: {error.strerror}") from None
        if found != times:
            raise DistError(
                f"{name} in Horovod's source differs from version {VERSION}, so jupyter-dist cannot "
                "adapt it. Nothing was built"
            )
        changed[file] = text
    for file, text in changed.items():
        file.write_text(text, "utf-8")


def _make_watch(progress: Progress) -> Callable[[str], None]:
    def watch(line: str) -> None:
        found = re.match(r"\s*\[ *(\d+)%\] (.*)", line)
        if found:
            what = re.sub(
                r"(Building|Linking) \w+ (object|static library|shared library) .*/", r"\1 ", found[2]
            )
            progress(int(found[1]) / 100, what.strip())

    return watch


def install(wheel: Path, log: Path | None = None) -> None:
    """Install a wheel and Horovod's dependencies into this Python's environment."""
    log = log or cache_root() / "install.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    _pip(["install", "--no-deps", "--force-reinstall", str(wheel)], log)
    _pip(["install", *_RUNTIME], log)
    log.unlink(missing_ok=True)


def check(recipe: Recipe) -> str:
    """Import the installed Horovod once for each framework, and return a line on the result.

    `horovodrun --check-build` checks the same, but imports TensorFlow five times.
    Raises DistError if a requested part is missing.
    """
    frameworks = {"torch": recipe.torch, "tensorflow": recipe.tensorflow}
    wanted = {"Gloo": VERSION, "MPI": recipe.mpi}
    for framework in [name for name, version in frameworks.items() if version]:
        argv = [sys.executable, "-c", _ASK.format(framework)]
        done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        there = done.stdout.split()
        lacking = [name for name, version in wanted.items() if version and name not in there]
        if done.returncode or lacking:
            what = framework if done.returncode else f"{', '.join(lacking)} for {framework}"
            said = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
            raise DistError(f"Horovod was installed, but lacks {what}:\n{said}")
    return f"{recipe}: installed, and each can be imported"


def _pip(
    arguments: Sequence[str],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    watch: Callable[[str], None] | None = None,
) -> None:
    """Run pip until it ends. Its output is written to the log, and each line is passed to `watch`."""
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    with log.open("a") as file:
        process = subprocess.Popen(
            argv,
            env=None if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert process.stdout is not None
        started = time.monotonic()
        with process:
            try:
                for line in process.stdout:
                    file.write(line)
                    if watch is not None:
                        watch(line)
                code = process.wait()
            except BaseException:
                if process.returncode is None:
                    kill_group(process.pid)  # kills the compilers too
                raise
    if code:
        raise DistError(_failure(arguments[0], log, time.monotonic() - started))


def _failure(step: str, log: Path, seconds: float) -> str:
    lines = log.read_text(errors="replace").splitlines()
    if any("No module named pip" in line for line in lines[-3:]):
        return (
            f"{sys.executable} has no pip. Install it with `{sys.executable} -m ensurepip`, or "
            "with the tool that created the environment."
        )
    errors = [line for line in lines if re.search(r"\berror\b[: ]|Error:|undefined reference|Killed", line)]
    told = "\n".join(f"  {line.strip()[:300]}" for line in (errors[:5] or lines[-10:]))
    return f"pip {step} failed after {seconds:.0f} s. Its whole output is in {log}\n{told}"

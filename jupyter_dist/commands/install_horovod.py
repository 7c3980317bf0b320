"""The command `install-horovod`."""

from __future__ import annotations

import sys
import time

from pydantic import Field

from ..text.format import duration
from ..text.table import Message
from . import horovod_build
from .horovod_recipe import find_recipe, require_tools
from .run_commands import Context, Empty, command

__all__ = ["HOROVOD_COMMANDS"]

_EVERY_S = 30.0
"""Interval between two progress lines if a line cannot be overwritten."""


class _Install(Empty):
    wheel_only: bool = Field(False, description="Build the wheel and show its path; install nothing")
    no_cache: bool = Field(False, description="Build again, even if a wheel for the same versions exists")
    without_mpi: bool = Field(False, description="Build with Gloo only, for a machine without MPI")
    jobs: int | None = Field(
        None,
        ge=1,
        description="The number of compilers that run at the same time. Default: one per core, limited "
        "by the memory",
    )


def _install(context: Context, flags: _Install, _: tuple[str, ...]) -> Message:
    recipe = find_recipe(mpi=not flags.without_mpi)
    wheel = None if flags.no_cache else horovod_build.cached(recipe)
    if wheel is None:
        require_tools(mpi=recipe.mpi is not None)
        jobs = flags.jobs or horovod_build.default_jobs()
        print(f"building {recipe}; this takes a few minutes", flush=True)
        shown = _Progress()
        try:
            wheel = horovod_build.build(recipe, jobs, shown)
        finally:
            shown.close()
    if flags.wheel_only:
        return Message(str(wheel))
    print(f"installing {wheel}", flush=True)
    horovod_build.install(wheel)
    return Message(horovod_build.check(recipe))


class _Progress:
    """One progress line, which is overwritten on a terminal. Elsewhere a new line from time to time."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._over = sys.stdout.isatty()
        self._shown = -_EVERY_S
        self._last = ""

    def __call__(self, share: float | None, what: str) -> None:
        now = time.monotonic() - self._started
        if now - self._shown < (0.2 if self._over else _EVERY_S) and share is not None:
            return
        self._shown = now
        percent = "" if share is None else f"{share:4.0%}  "
        line = f"{percent}{duration(round(now))}  {what}"[:100]
        if self._over:
            print("\r" + line.ljust(len(self._last)), end="", flush=True)
            self._last = line
        else:
            print(line, flush=True)

    def close(self) -> None:
        if self._over and self._last:
            print(flush=True)


HOROVOD_COMMANDS = (
    command(
        "install-horovod",
        "",
        "Build Horovod for the installed torch and TensorFlow, and install it. Variables of "
        "Horovod's own build also work, such as HOROVOD_GPU_OPERATIONS=NCCL.",
        _install,
        _Install,
    ),
)

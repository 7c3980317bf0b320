"""The options of the backend `mpi`."""

from __future__ import annotations

import os
import shlex
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator

from ...cluster_form import Form
from ...option_fields import flag
from ..shared_options.gpus import LauncherGpuOptions
from ..shared_options.hosts import LauncherHostOptions

__all__ = ["MpiOptions"]


_HOSTS = "write -H or --hostfile outside --mpi-args, so that jupyter-dist prepares the hosts"
_OURS = {
    **dict.fromkeys(("-n", "-np", "--np", "--n", "--ntasks"), "write -np outside --mpi-args"),
    **dict.fromkeys(("-H", "-host", "--host", "-hosts", "-hostfile", "--hostfile"), _HOSTS),
    **dict.fromkeys(("-machinefile", "--machinefile", "-f"), _HOSTS),
}
"""Arguments that jupyter-dist must know, each with the flag that replaces it."""
_THEIRS = frozenset(
    "A N account am bind-to bootstrap c constraint cpu-bind cpus-per-task display display-map distribution "
    "env exclusive genv gpus-per-task gpus-per-node gres iface launcher-exec m map-by mca mem mpi nodelist "
    "nodes npernode npersocket ntasks-per-node oversubscribe output p partition perhost ppn prefix qos "
    "rank-by rankfile report-bindings rf t tag-output time tune use-hwthread-cpus w x".split()
)
"""Flags that the launchers' users know, without dashes."""


def _words(value: str) -> str:
    try:
        words = shlex.split(value)
    except ValueError:
        raise ValueError(
            f"needs arguments quoted as in a shell, got {value!r}: a quote is not closed"
        ) from None
    for word in words:
        if word.partition("=")[0] in _OURS:
            raise ValueError(f"cannot contain {word}: {_OURS[word.partition('=')[0]]}")
    return value


def _absolute(value: str) -> str:
    """Return an absolute path, relative to the notebook's folder. A bare name is searched on PATH."""
    return os.path.abspath(os.path.expanduser(value)) if "/" in value else value


class MpiOptions(LauncherHostOptions, LauncherGpuOptions):
    """Options of the backend `mpi`."""

    form: ClassVar[Form] = Form(
        first=("np", "hosts", "gpus_per_worker", "mpi_args", "env"),
        sections={
            "MPI": "launcher mpirun",
        },
    )

    launcher: Literal["auto", "openmpi", "mpich", "intel", "slurm"] = flag(
        "auto", "MPI", "The MPI implementation that mpirun belongs to. Default: detected from its version"
    )
    mpirun: Annotated[str, AfterValidator(_absolute)] | None = flag(
        None,
        "mpirun",
        "The mpirun, mpiexec or srun to use. Default: the first one that is beside the "
        "notebook's Python or on PATH",
        value=("PATH", "the path or the name of a program"),
    )
    mpi_args: Annotated[str, AfterValidator(_words)] = flag(
        "",
        "More arguments",
        "Further arguments for mpirun or srun, as in --mpi-args '--map-by node --bind-to core'",
        metavar="ARGS",
        verbatim=True,
    )

    @classmethod
    def instead_of(cls, flag: str) -> str | None:
        known = flag.lstrip("-") in _THEIRS
        return f"is a flag of mpirun or srun. Write it as in --mpi-args '{flag} …'" if known else None

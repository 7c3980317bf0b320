"""The table of backends. Importing this module imports no backend; `declared` and `load` import one.

A third-party backend is an entry point in the group `jupyter_dist.backends`. Its value is a class with the
members of `Backend`: see docs/backends.md.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points

from pydantic import BaseModel

from ..errors import BrokenBackend, DistError, MissingEngine, UnknownBackend
from ..option_fields import flag
from ..worker.stack_signals import STACK_SIGNAL
from .interface import Backend, Capabilities, Extensions, Form, Handle, Options, PlatformSearch, extensions_of

__all__ = [
    "SHOWING",
    "STACK_SIGNAL",
    "TRIALS",
    "Backend",
    "Capabilities",
    "Extensions",
    "Form",
    "Handle",
    "Options",
    "PlatformSearch",
    "Showing",
    "built_in",
    "declared",
    "extensions_of",
    "flag",
    "install_cell",
    "install_hint",
    "load",
    "names",
]


@dataclass(frozen=True)
class _Entry:
    target: str
    """Import path of the class, as `module:class`."""
    install: str
    """Command that installs the backend's engine."""


_BUILT_IN = {
    "azureml": _Entry("jupyter_dist.backends.azureml.backend:AzureMl", 'pip install "jupyter-dist[azureml]"'),
    "databricks": _Entry(
        "jupyter_dist.backends.databricks.backend:Databricks", 'pip install "jupyter-dist[databricks]"'
    ),
    "horovod": _Entry("jupyter_dist.backends.horovod.backend:Horovod", "jupyter dist install-horovod"),
    "kubernetes": _Entry(
        "jupyter_dist.backends.kubernetes.backend:Kubernetes", 'pip install "jupyter-dist[kubernetes]"'
    ),
    "local": _Entry("jupyter_dist.backends.local.backend:Local", 'pip install "jupyter-dist"'),
    "mpi": _Entry("jupyter_dist.backends.mpi.backend:Mpi", "apt-get install openmpi-bin"),
    "ray": _Entry("jupyter_dist.backends.ray.backend:Ray", 'pip install "jupyter-dist[ray]"'),
    "sagemaker": _Entry(
        "jupyter_dist.backends.sagemaker.backend:SageMaker", 'pip install "jupyter-dist[sagemaker]"'
    ),
    "spark": _Entry("jupyter_dist.backends.spark.backend:Spark", 'pip install "jupyter-dist[spark]"'),
    "ssh": _Entry("jupyter_dist.backends.ssh.backend:Ssh", "apt-get install openssh-client"),
    "torchrun": _Entry(
        "jupyter_dist.backends.torchrun.backend:Torchrun", 'pip install "jupyter-dist[torch]"'
    ),
}


TRIALS = "trials"
"""The backend of a tuning run whose trials are separate runs. The trials themselves may use any backend."""


@dataclass(frozen=True)
class Showing:
    """The way in which a backend shows a job that somebody else has started."""

    by: str
    """Name of the backend that shows the job. Its class has an `adopt`, which returns the run's job."""
    tuning_by: str | None = field(default=None, kw_only=True)
    """Name of the backend that shows a tuning job, in the same way. It is asked if there is no other job."""
    named: str
    """Pattern of the job's name, after the backend's name and a colon."""
    flags: Mapping[str, tuple[str, str, str]]
    """The flags of `attach` for such jobs: field → its help, its value's short name, and what it must be."""


SHOWING = {
    "azureml": Showing(
        "azureml-job",
        "JOB",
        {
            "subscription": (
                "the subscription id of the workspace. Default: from config.json or the compute instance",
                "ID",
                "the id of a subscription",
            ),
            "resource_group": (
                "the resource group of the workspace. Default: as for --subscription",
                "NAME",
                "the name of a resource group",
            ),
            "workspace": (
                "the name of the workspace. Default: as for --subscription",
                "NAME",
                "the name of a workspace",
            ),
        },
    ),
    "kubernetes": Showing(
        "kubernetes-job",
        "KIND/NAME",
        {
            "context": (
                "a context of the kubeconfig. Default: the current context",
                "NAME",
                "the name of a context",
            )
        },
    ),
    "sagemaker": Showing(
        "sagemaker-job",
        "JOB",
        {
            "region": (
                "the region of the job. Default: the profile's region, or AWS_REGION",
                "NAME",
                "the name of a region such as us-east-1",
            ),
            "profile": ("a profile of ~/.aws/config", "NAME", "the name of a profile"),
        },
        tuning_by="sagemaker-tuning",
    ),
}
"""Backends that can also show jobs that somebody else has started."""
_INSIDE = {
    TRIALS: _Entry("jupyter_dist.tuning.trials_backend:Trials", 'pip install "jupyter-dist[tune]"'),
    "azureml-job": _Entry(
        "jupyter_dist.backends.azureml.attached:AttachedCommandJob", 'pip install "jupyter-dist[azureml]"'
    ),
    "kubernetes-job": _Entry(
        "jupyter_dist.backends.kubernetes.attached:AttachedPods", 'pip install "jupyter-dist[kubernetes]"'
    ),
    "sagemaker-job": _Entry(
        "jupyter_dist.backends.sagemaker.attached:AttachedTrainingJob",
        'pip install "jupyter-dist[sagemaker]"',
    ),
    "sagemaker-tuning": _Entry(
        "jupyter_dist.tuning.attached_tuning:AttachedTuning", 'pip install "jupyter-dist[sagemaker]"'
    ),
}
"""Backends that no user names."""


@cache
def _table() -> dict[str, _Entry]:
    found = {
        point.name: _Entry(
            point.value, f"pip install --upgrade {point.dist.name if point.dist else point.name}"
        )
        for point in entry_points(group="jupyter_dist.backends")
    }
    return {**found, **_BUILT_IN}


def names() -> list[str]:
    """Return the names of all backends, sorted."""
    return sorted(_table())


def built_in() -> list[str]:
    """Return the names of the backends of this package, sorted."""
    return sorted(_BUILT_IN)


def install_hint(name: str) -> str:
    """Return the command that installs the engine of a known backend."""
    return {**_table(), **_INSIDE}[name].install


def install_cell(name: str) -> str | None:
    """Return a cell that runs `install_hint` in the kernel's environment.

    Returns None if no cell can do that: a notebook cannot install system packages.
    """
    hint = install_hint(name)
    if hint.startswith("pip install "):
        return f"%{hint}"
    ours = "jupyter dist "
    return f"%dist {hint.removeprefix(ours)}" if hint.startswith(ours) else None


def declared(name: str) -> type[Backend]:
    """Return the class of that backend: its options and capabilities need no object.

    Raises UnknownBackend with the list of all backends, and MissingEngine with the command to install it.
    Raises BrokenBackend for any other import error. A faulty third-party package breaks only its own backend.
    """
    entry = _INSIDE.get(name) or _table().get(name)
    if entry is None:
        close = difflib.get_close_matches(name, names(), 1)
        raise UnknownBackend(
            f"no backend {name!r}. "
            + (f"Did you mean {close[0]!r}? " if close else "")
            + f"There are: {', '.join(names())}."
        )
    module, _, attribute = entry.target.partition(":")
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module can also call sys.exit(), or contain no valid Python
        raise _unusable(name, error) from error
    lacking = _lacking(found)
    if lacking:
        raise BrokenBackend(f"backend {name!r} is broken: {entry.target!r} {lacking}: {entry.install}")
    backend: type[Backend] = found  # type: ignore[assignment]
    return backend


def load(name: str) -> Backend:
    """Return a new object of that backend in its first state. Each run needs its own object.

    Raises UnknownBackend, MissingEngine and BrokenBackend, as `declared` does.
    """
    made = declared(name)
    try:
        return made()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _unusable(name, error) from error


def _unusable(name: str, error: BaseException) -> DistError:
    if isinstance(error, DistError):
        return error  # the message is meant for the user, and contains the cure
    install = install_hint(name)
    if isinstance(error, ImportError):
        return MissingEngine(f"backend {name!r} cannot be loaded ({error}): {install}")
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return BrokenBackend(f"backend {name!r} is broken ({said}): {install}")


def _lacking(found: object) -> str | None:
    """Return why this is not a backend's class, or None if it is one.

    The views read these members before they create an object.
    """
    if not inspect.isclass(found):
        return "is not a class"
    options = getattr(found, "options", None)
    if not (inspect.isclass(options) and issubclass(options, BaseModel)):
        return "has no `options` that are a model"
    if not isinstance(getattr(found, "capabilities", None), Capabilities):
        return "has no `capabilities`"
    return None

"""The options of the backend `local`."""

from __future__ import annotations

from typing import ClassVar

from ...cluster_form import Form
from ..ranks.local_gpus import gpu_ranks
from ..ranks.tensorflow_roles import RoleOptions
from ..shared_options.gpus import GpuOptions

__all__ = ["LocalOptions"]


class LocalOptions(RoleOptions, GpuOptions):
    """Options of the backend `local`."""

    form: ClassVar[Form] = Form(
        first=("np", "gpus_per_worker", "env", "timeout", "max_restarts"),
    )

    @property
    def ranks(self) -> int | None:
        found = gpu_ranks(self)
        return None if found is None else found + self.ps

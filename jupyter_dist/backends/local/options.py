"""Options of the backend."""

from __future__ import annotations

from typing import ClassVar

from ...cluster_form import Form
from ..ranks.local_gpus import gpu_ranks
from ..ranks.tensorflow_roles import Chief, Evaluator, ParameterServers
from ..shared_options.gpus import GpuOptions

__all__ = ["LocalOptions"]


class LocalOptions(GpuOptions):
    """Options of the backend `local`."""

    form: ClassVar[Form] = Form(
        first=("np", "gpus_per_worker", "env", "timeout", "max_restarts"),
        sections={
            "Roles of TensorFlow": ("ps", "chief", "evaluator"),
        },
    )

    ps: ParameterServers = 0
    chief: Chief = False
    evaluator: Evaluator = False

    @property
    def ranks(self) -> int | None:
        found = gpu_ranks(self)
        return None if found is None else found + self.ps

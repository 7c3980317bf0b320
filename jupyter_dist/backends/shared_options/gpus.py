"""The options for GPUs per rank."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, PlainSerializer

from ...cluster_form import Form
from ...option_fields import flag
from ..interface import Options

__all__ = ["GpuOptions", "GpusPerWorker", "LauncherGpuOptions"]


def _whole_or_part(value: float) -> float:
    if value >= 1 and value != int(value):
        raise ValueError(f"needs a whole number, or a number below 1 such as 0.5, got {value:g}")
    return int(value) if value == int(value) else value


# With this serializer, 2 is not saved as 2.0.
GpusPerWorker = Annotated[
    float, Field(ge=0), AfterValidator(_whole_or_part), PlainSerializer(lambda value: value)
]


class GpuOptions(Options):
    """Options of backends that give each rank GPUs of its own."""

    form: ClassVar[Form] = Form(
        sections={
            "GPUs": "gpus_per_worker share_gpus wait_for_gpus",
        },
    )

    gpus_per_worker: GpusPerWorker | None = flag(
        None,
        "GPUs per worker",
        "The GPUs that each rank sees, numbered from 0 in the rank. 0.5: two ranks share one "
        "GPU. Default: an equal share of the machine's GPUs that no other run uses. 0: train "
        "on the CPU.",
        value=("N", "a whole number of at least 0, or a part such as 0.5"),
    )
    share_gpus: bool = flag(
        False,
        "Share GPUs",
        "Use GPUs that other runs use. Other runs may then also use the GPUs of this run. "
        "Default: no other run uses them",
    )
    wait_for_gpus: bool = flag(
        False,
        "Wait for GPUs",
        "Wait until enough GPUs are free if other runs use them. Runs wait in order of their start",
    )


class LauncherGpuOptions(GpuOptions):
    """Options of launchers. All ranks see the run's GPUs, and choose by their local rank."""

    gpus_per_worker: GpusPerWorker | None = flag(
        None,
        "GPUs per worker",
        "The number of GPUs that the run uses for each rank. Each rank sees all GPUs of the "
        "run on its machine, and no others. Default: 1, or what the machine has. 0: train on "
        "the CPU.",
        value=("N", "a whole number of at least 0, or a part such as 0.5"),
    )

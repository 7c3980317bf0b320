"""Ray's datasets: a rank joins the dataset's cluster and gets the same dataset there."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ...data import ray_datasets
from . import Note, Refused

__all__ = ["reduce"]

NOTE = (
    "data of a Ray Dataset that is in memory belongs to this notebook's kernel: "
    "ranks read it for as long as the kernel runs"
)


def reduce(obj: Any, note: Note) -> Any:
    ray = sys.modules["ray"]
    if ray.util.client.ray.is_connected():
        raise Refused(
            "a Ray Dataset of a Ray Client (ray://) stays with the client",
            "Make it inside the cell: every rank is in the cluster itself.",
        )
    if not obj.has_serializable_lineage():
        note(NOTE)
    # Only Ray's own pickles record the owner of an object.
    data = importlib.import_module("ray.cloudpickle").dumps(obj)
    return _dataset, (data, _address(ray), ray_datasets.lasting_name(obj))


def _address(ray: Any) -> str | None:
    return ray.get_runtime_context().gcs_address if ray.is_initialized() else None


# A pickle calls this function when it is loaded. Its name is part of the format.


def _dataset(data: bytes, address: str | None, known_as: str) -> Any:
    ray_datasets.join(address)
    return ray_datasets.name(importlib.import_module("ray.cloudpickle").loads(data), known_as)

"""Ray's datasets, references and actors: a rank joins their cluster and gets the same objects there."""

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

OF_OBJECTS = (
    "objects and actors that the notebook has put into Ray belong to this notebook's kernel: "
    "ranks use them for as long as the kernel runs"
)


def reduce(obj: Any, note: Note) -> Any:
    ray = sys.modules["ray"]
    if not hasattr(obj, "has_serializable_lineage"):
        return _reduce_reference(obj, note)
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


def _reduce_reference(obj: Any, note: Note) -> Any:
    if type(obj).__module__.startswith("ray.util.client"):
        raise Refused(
            f"a {type(obj).__name__} of a Ray Client (ray://), which stays with the client",
            "Make it inside the cell: every rank is in the cluster itself.",
        )
    note(OF_OBJECTS)
    data = importlib.import_module("ray.cloudpickle").dumps(obj)
    return _reference, (data, _address(sys.modules["ray"]))


def _address(ray: Any) -> str | None:
    return ray.get_runtime_context().gcs_address if ray.is_initialized() else None


# A pickle calls these functions when it is loaded. Their names are part of the format.


def _dataset(data: bytes, address: str | None, known_as: str) -> Any:
    ray_datasets.join(address)
    return ray_datasets.name(importlib.import_module("ray.cloudpickle").loads(data), known_as)


def _reference(data: bytes, address: str | None) -> Any:
    ray = ray_datasets.join_cluster(address, "an object of the notebook in Ray")
    here = _address(ray)
    if address is not None and here != address:
        raise ConnectionError(
            f"this rank is in the Ray cluster at {here}, and the object is in the cluster at {address}. "
            f"Run the cell there with --backend ray --address {address}, or make the object inside the cell."
        )
    return importlib.import_module("ray.cloudpickle").loads(data)

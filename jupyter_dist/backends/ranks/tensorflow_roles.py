"""The roles of TensorFlow: which rank is chief, worker, parameter server or evaluator, and its TF_CONFIG."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from ...cluster_form import Form
from ...errors import InputError
from ..interface import Options

__all__ = ["Chief", "ParameterServers", "Role", "RoleOptions", "roles", "tf_configs"]

ParameterServers = Annotated[
    int,
    Field(
        ge=0,
        title="Parameter servers",
        description="The number of the -np ranks that are parameter servers of TensorFlow (TF_CONFIG). "
        "The run ends without waiting for them",
        json_schema_extra={"ranks": True},
    ),
]
Chief = Annotated[
    bool,
    Field(
        title="Chief",
        description="Make rank 0 TensorFlow's chief, which coordinates or leads the workers",
        json_schema_extra={"ranks": True},
    ),
]
Evaluator = Annotated[
    bool,
    Field(
        title="Evaluator",
        description="Make the last rank TensorFlow's evaluator, which does not train",
        json_schema_extra={"ranks": True},
    ),
]


class RoleOptions(Options):
    """Options of backends whose ranks may have any of TensorFlow's roles."""

    form: ClassVar[Form] = Form(sections={"Roles of TensorFlow": "ps chief evaluator"})

    ps: ParameterServers = 0
    chief: Chief = False
    evaluator: Evaluator = False

    def check_roles(self, world_size: int) -> None:
        """Raise InputError if no rank is left for a worker."""
        roles(world_size, ps=self.ps, chief=self.chief, evaluator=self.evaluator)


@dataclass(frozen=True)
class Role:
    """One task of a TensorFlow cluster: `type` is chief, worker, ps or evaluator."""

    type: str
    index: int


def roles(world_size: int, *, ps: int = 0, chief: bool = False, evaluator: bool = False) -> tuple[Role, ...]:
    """Return the role of each rank, in this order: chief, workers, parameter servers, evaluator.

    The roles share the `world_size` (-np) ranks: each rank without another role is a worker. Rank 0 is
    therefore always the leader. Raises InputError if no rank is left for a worker. As an exception, a chief
    without parameter servers can train alone.
    """
    workers = world_size - ps - chief - evaluator
    if workers < (0 if chief and not ps else 1):
        asked = ["--chief"] * chief + [f"--ps {ps}"] * bool(ps) + ["--evaluator"] * evaluator
        raise InputError(
            f"-np {world_size} leaves no rank for a worker, because {' '.join(asked)} count among "
            f"the {world_size}. Use at least -np {world_size - workers + 1}."
        )
    counts = (("chief", int(chief)), ("worker", workers), ("ps", ps), ("evaluator", int(evaluator)))
    return tuple(Role(kind, index) for kind, count in counts for index in range(count))


def tf_configs(roles: Sequence[Role], addresses: Sequence[str]) -> tuple[str, ...]:
    """Return the TF_CONFIG of each rank, from the role and the `host:port` of each rank.

    The evaluator has a task, but does not belong to the cluster: no other task may wait for it.
    """
    cluster: dict[str, list[str]] = {}
    for role, address in zip(roles, addresses, strict=True):
        if role.type != "evaluator":
            cluster.setdefault(role.type, []).append(address)
    return tuple(
        json.dumps({"cluster": cluster, "task": {"type": role.type, "index": role.index}}) for role in roles
    )

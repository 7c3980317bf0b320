"""The options of platforms that run the ranks on a number of equal machines."""

from __future__ import annotations

from typing import Any, ClassVar

from ...errors import InputError
from ...option_fields import flag
from ..ranks.tensorflow_roles import ParameterServers
from .agent import OtherPythonOptions

__all__ = ["InstanceOptions"]


class InstanceOptions(OtherPythonOptions):
    """The machines, and the number of ranks on each."""

    node_names: ClassVar[str]
    """The platform's name of each machine, with `{0}` for its index, or `{1}` to count from 1."""

    instance_count: int = flag(
        1,
        "Instances",
        "The number of instances. The ranks are spread over them evenly. Default: 1",
        ge=1,
        ranks=True,
    )
    processes_per_host: int | None = flag(
        None, "Ranks per instance", "The number of ranks on each instance. Default: 1", ge=1, ranks=True
    )
    ps: ParameterServers = 0
    distribution: str | None = None

    @property
    def by_mpi(self) -> bool:
        """Whether mpirun starts a process for each rank. The rank then uses that process's place in MPI."""
        return self.distribution in ("mpi", "horovod", "smddp", "smmp")

    @property
    def no_session(self) -> str | None:
        if self.by_mpi:
            return (
                f"--distribution {self.distribution} does not work with --session, because mpirun cannot "
                "start one of its processes again"
            )
        return super().no_session

    def instances(self, world_size: int) -> int:
        """Return the number of machines. Each has a rank: idle machines would cost money."""
        return min(self.instance_count, world_size)

    def host_list(self, world_size: int) -> list[dict[str, Any]]:
        """Return the hosts with the platform's names, each with its number of ranks."""
        count = self.instances(world_size)
        each = -(-world_size // count)
        return [{"name": self.node_names.format(node, node + 1), "slots": each} for node in range(count)]

    def check_instances(self, world_size: int) -> list[str]:
        """Return warnings. Raises InputError if the ranks cannot be spread as the options require."""
        count = self.instances(world_size)
        each = -(-world_size // count)
        if world_size % count and self.by_mpi:
            raise InputError(
                f"--distribution {self.distribution} needs the same number of ranks on each "
                f"instance, but {world_size} is not a multiple of {count}. Use -np {count * each}"
            )
        if self.processes_per_host is not None and each != self.processes_per_host:
            raise InputError(
                f"-np {world_size} on {count} instances is {each} ranks on each, but "
                f"--processes-per-host is {self.processes_per_host}. Remove one of these flags"
            )
        if count == self.instance_count:
            return []
        return [
            f"{world_size} ranks need only {count} of {self.instance_count} instances, so only "
            f"{count} are started"
        ]

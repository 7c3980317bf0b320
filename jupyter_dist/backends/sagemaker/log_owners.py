"""The owners of a training job's lines in CloudWatch. Pure.

A host's stream has the output of its processes. Under mpirun, the first host's stream has the output of all
ranks, each line with its rank as prefix. Jobs of ours add the rank's number in brackets
(agent/console_output.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .instance_types import gpus_of

__all__ = ["Speakers", "host_number"]

_OF_MPI = re.compile(r"\[\d+,(?:mpirank:)?(\d+)(?:,[^\]]*)?\]<std(?:out|err|diag)>:")
"""Prefixes `[1,mpirank:3,algo-2]<stdout>:loss 0.5`, and `[1,3]<stdout>:loss 0.5` of Open MPI itself.

https://github.com/aws/sagemaker-training-toolkit (mpi.py) configures mpirun for them.
"""
_OF_OURS = re.compile(r"\A\[(\d+)\] ")


def host_number(stream: str) -> int | None:
    """Return the index of the host. `JOB/algo-2-1763000000` is the second host's stream: 1."""
    found = re.search(r"/algo-(\d+)-\d+$", stream)
    return None if found is None else int(found[1]) - 1


@dataclass(frozen=True)
class Speakers:
    """The writers of lines: `size` ranks, or as many hosts if a host's ranks cannot be distinguished."""

    size: int
    hosts: int
    pattern: re.Pattern[str] | None = None
    """Prefix of a rank's output. None: a line belongs to its stream's host."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Speakers:
        """Return the speakers, from an answer of DescribeTrainingJob."""
        hosts = int(told.get("ResourceConfig", {}).get("InstanceCount") or 1)
        kind = str(told.get("ResourceConfig", {}).get("InstanceType") or "")
        given = {name: text.strip('"') for name, text in (told.get("HyperParameters") or {}).items()}
        if "JUPYTER_DIST_MAILBOX_RUN" in (told.get("Environment") or {}):
            return cls(hosts, hosts, _OF_OURS)  # the ranks that appear: the job does not report their number
        if given.get("sagemaker_mpi_enabled", "").lower() == "true":
            each = given.get("sagemaker_mpi_num_of_processes_per_host", "1")
            return cls(hosts * max(1, int(each) if each.isdigit() else 1), hosts, _OF_MPI)
        if given.get("sagemaker_distributed_dataparallel_enabled", "").lower() == "true":
            return cls(hosts * max(1, gpus_of(kind) or 1), hosts, _OF_MPI)
        return cls(hosts, hosts)

    def host_of(self, rank: int) -> str:
        """Return the presumed host of the rank."""
        each = max(1, self.size // self.hosts)
        return f"algo-{min(rank // each, self.hosts - 1) + 1}"

    def take_apart(self, host: int, line: str) -> list[tuple[int | None, str]]:
        """Split a line into pairs of a rank and its output.

        For other output, such as mpirun's, the rank is None.

        A line may belong to several ranks. If a rank writes a line in pieces, mpirun adds the prefix to each
        piece. Other ranks' pieces may be between them.
        """
        if self.pattern is None:
            return [(host, line)]
        before, *found = self.pattern.split(line)
        told: list[tuple[int | None, str]] = [(None, before)] if before or not found else []
        for rank, text in zip(map(int, found[::2]), found[1::2], strict=True):
            if told and told[-1][0] == rank:
                told[-1] = (rank, told[-1][1] + text)
            else:
                told.append((rank, text))
        return told

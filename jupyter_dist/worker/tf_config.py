"""The role of this rank in a TensorFlow cluster, from TF_CONFIG."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

__all__ = ["Task", "task"]

_TYPES = ("chief", "worker", "ps", "evaluator")


@dataclass(frozen=True)
class Task:
    """One task of a cluster. `cluster` has the addresses by type, and is empty without TF_CONFIG."""

    type: str = "worker"
    index: int = 0
    cluster: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def count(self, kind: str) -> int:
        return len(self.cluster.get(kind, ()))

    @property
    def trainers(self) -> int:
        """The number of tasks that train when all are equal: the chief and the workers."""
        return self.count("chief") + self.count("worker")

    @property
    def is_of_several(self) -> bool:
        """Whether several ranks of the cluster train one model together."""
        return self.trainers > 1 or self.count("ps") > 0

    @property
    def serves(self) -> bool:
        """Whether the task only does the work that a coordinator sends to it."""
        return self.count("ps") > 0 and self.type in ("worker", "ps")

    @property
    def names(self) -> str:
        """The cluster in words, such as `1 chief, 2 workers and no ps`."""
        parts = []
        for kind in _TYPES[:3]:
            count = self.count(kind)
            if count or kind == "ps":
                parts.append(f"{count or 'no'} {kind}{'s' if count > 1 and kind != 'ps' else ''}")
        return f"{', '.join(parts[:-1])} and {parts[-1]}"

    def coordinated(self) -> Task:
        """Return the same task with a chief in its cluster.

        If a cluster with parameter servers has no chief, worker 0 becomes the chief.

        Raises ValueError if no worker would remain to work for the chief.
        """
        workers = self.cluster.get("worker", ())
        if self.count("chief") or not self.count("ps"):
            found = self
        else:
            cluster = {**self.cluster, "chief": workers[:1], "worker": workers[1:]}
            found = replace(self, cluster=cluster)
            if self.type == "worker":
                is_chief = self.index == 0
                found = replace(
                    found, type="chief" if is_chief else "worker", index=0 if is_chief else self.index - 1
                )
        if found.count("ps") and not found.count("worker"):
            raise ValueError(
                "ParameterServerStrategy needs a worker beside the coordinator, but TF_CONFIG names "
                f"{self.names}. Start one more rank, as in -np 3 --chief --ps 1"
            )
        return found

    def to_config(self) -> str:
        """Return the text of TF_CONFIG for this task."""
        return json.dumps({"cluster": self.cluster, "task": {"type": self.type, "index": self.index}})


def task() -> Task:
    """Read this rank's task from TF_CONFIG. If it is not set, the cluster has no task.

    Raises ValueError if the value of TF_CONFIG is invalid.
    """
    text = os.environ.get("TF_CONFIG", "")
    if not text.strip():
        return Task()
    try:
        config = json.loads(text)
        cluster = {str(kind): [*map(str, addresses)] for kind, addresses in config.get("cluster", {}).items()}
        own = config.get("task", {})
        found = Task(str(own.get("type", "worker")), int(own.get("index", 0)), cluster)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"TF_CONFIG cannot be read ({error}): {text[:200]!r}") from None
    if found.type == "master":  # TensorFlow 1's name of the chief
        found = replace(
            found, type="chief", cluster={"chief" if k == "master" else k: v for k, v in cluster.items()}
        )
    return found

"""This rank's place in a TensorFlow cluster, as TF_CONFIG tells it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

__all__ = ["Task", "task"]

_TYPES = ("chief", "worker", "ps", "evaluator")


@dataclass(frozen=True)
class Task:
    """One task of a cluster: `cluster` holds the addresses by type; empty without TF_CONFIG."""

    type: str = "worker"
    index: int = 0
    cluster: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def count(self, kind: str) -> int:
        return len(self.cluster.get(kind, ()))

    @property
    def trainers(self) -> int:
        """The tasks that train when all are equal: the chief and the workers."""
        return self.count("chief") + self.count("worker")

    @property
    def is_of_several(self) -> bool:
        """Whether ranks of its cluster train one model together."""
        return self.trainers > 1 or self.count("ps") > 0

    @property
    def serves(self) -> bool:
        """Whether it only does what a coordinator sends it."""
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
        """The same with a chief: where the cluster with parameter servers has none, worker 0 becomes it.

        Raises ValueError where nobody would be left to work for it.
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
        """As the text of TF_CONFIG."""
        return json.dumps({"cluster": self.cluster, "task": {"type": self.type, "index": self.index}})


def task() -> Task:
    """This rank's, from TF_CONFIG; a cluster of no task where it is not set.

    Raises ValueError when it is set to something else than TF_CONFIG may hold.
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
    if found.type == "master":  # TensorFlow 1's word
        found = replace(
            found, type="chief", cluster={"chief" if k == "master" else k: v for k, v in cluster.items()}
        )
    return found

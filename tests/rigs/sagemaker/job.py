"""A training job as the service knows it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Job"]


@dataclass
class Job:
    """Its request, and what has become of it."""

    request: dict[str, Any]
    arn: str
    status: str = "InProgress"
    secondary: str = "Starting"
    reason: str | None = None
    transitions: list[dict[str, Any]] = field(default_factory=list)
    created: float = field(default_factory=time.time)
    began: float | None = None
    ended: float | None = None
    lines: dict[str, list[str]] = field(default_factory=dict)
    """What CloudWatch has, by host."""
    asked: threading.Event = field(default_factory=threading.Event)
    final: str = "Stopped"
    interrupted: threading.Event = field(default_factory=threading.Event)
    pool: dict[str, Any] | None = None
    """How its warm pool stands."""

    @property
    def name(self) -> str:
        return str(self.request["TrainingJobName"])

    @property
    def active(self) -> bool:
        return self.status in ("InProgress", "Stopping")

    @property
    def spot(self) -> bool:
        return bool(self.request.get("EnableManagedSpotTraining"))

    def output(self, name: str) -> str:
        """Where in S3 a file of its output lies."""
        return f"{self.request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{self.name}/output/{name}"

    def enter(self, secondary: str, message: str = "") -> None:
        """Another secondary status, from now on."""
        now = time.time()
        if self.transitions:
            self.transitions[-1]["EndTime"] = now
        self.transitions.append({"Status": secondary, "StartTime": now, "StatusMessage": message})
        self.secondary = secondary

    def described(self) -> dict[str, Any]:
        """The answer of DescribeTrainingJob."""
        told = {
            **self.request,
            "TrainingJobArn": self.arn,
            "TrainingJobStatus": self.status,
            "SecondaryStatus": self.secondary,
            "SecondaryStatusTransitions": self.transitions,
            "CreationTime": self.created,
            "LastModifiedTime": self.transitions[-1]["StartTime"] if self.transitions else self.created,
            "ModelArtifacts": {"S3ModelArtifacts": self.output("model.tar.gz")},
        }
        if self.reason is not None:
            told["FailureReason"] = self.reason
        if self.pool is not None:
            told["WarmPoolStatus"] = self.pool
        if self.began is not None:
            told["TrainingStartTime"] = self.began
        if self.began is not None and self.ended is not None:
            seconds = round(self.ended - self.began) + 1
            told |= {"TrainingTimeInSeconds": seconds, "TrainingEndTime": self.ended}
            told["BillableTimeInSeconds"] = seconds * 3 // 10 if self.spot else seconds
        return told

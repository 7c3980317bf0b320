"""What the service tells of a job, of whichever kind."""

from __future__ import annotations

from typing import Any

__all__ = ["JobRun"]


class JobRun:
    """`status` and `error` are the service's words."""

    def __init__(self, name: str, body: dict[str, Any]) -> None:
        self.name, self.body = name, body
        self.status, self.error = "NotStarted", ""
        self.tags: dict[str, str] = dict(body.get("tags") or {})

    @property
    def active(self) -> bool:
        return self.status not in ("Completed", "Failed", "Canceled")

    def told(self) -> dict[str, Any]:
        """The properties of the job, as the service answers them."""
        studio = {
            "Studio": {"jobServiceType": "Studio", "endpoint": f"https://ml.azure.com/runs/{self.name}"}
        }
        return {**self.body, "status": self.status, "services": studio}

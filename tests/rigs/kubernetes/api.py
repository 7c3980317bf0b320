"""What tests, kubelets and the name server ask of the API server: JSON in and out, and watches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3

__all__ = ["Api", "Refusal"]


class Refusal(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:400]}")
        self.status = status


class Api:
    """For several threads."""

    def __init__(self, url: str, token: str, ca: Path) -> None:
        self.url, self._token = url, token
        self._pool = urllib3.PoolManager(ca_certs=str(ca), maxsize=16, retries=False)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        query: Mapping[str, str | int] | None = None,
    ) -> Any:
        """The answer; raises Refusal, and urllib3's HTTPError where nobody answers."""
        text = None if body is None else json.dumps(body)
        return json.loads(self._send(method, f"{path}?{urlencode(query or {})}", text, kind))

    def text(self, path: str) -> str:
        """What is no JSON, as the log of a pod."""
        return self._send("GET", path, None, "application/json").decode(errors="replace")

    def _send(self, method: str, target: str, body: str | None, kind: str) -> bytes:
        answer = self._pool.request(
            method,
            f"{self.url}{target}",
            body=body,
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": kind},
            timeout=urllib3.Timeout(connect=5, read=20),
        )
        if answer.status >= 300:
            raise Refusal(answer.status, answer.data.decode(errors="replace"))
        return bytes(answer.data)

    def get(self, path: str, **query: str | int) -> Any:
        return self.ask("GET", path, query=query)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return self.ask("POST", path, body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        return self.ask("PATCH", path, body, kind="application/strategic-merge-patch+json")

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self.ask("DELETE", path, body)

    def watch(self, path: str, **query: str | int) -> Iterator[tuple[str, dict[str, Any]]]:
        """What there is, as ADDED, and then each change; ends, or raises, when the connection does."""
        listed = self.get(path, **query)
        for item in listed["items"]:
            yield "ADDED", item
        version = listed["metadata"]["resourceVersion"]
        asked = urlencode({**query, "watch": "1", "resourceVersion": version, "timeoutSeconds": 600})
        answer = self._pool.request(
            "GET",
            f"{self.url}{path}?{asked}",
            headers={"Authorization": f"Bearer {self._token}"},
            preload_content=False,
            timeout=urllib3.Timeout(connect=5, read=None),
        )
        try:
            for line in answer:
                event = json.loads(line)
                yield event["type"], event["object"]
        finally:
            answer.close()

"""Table of the REST API: each operation, its parameters, and the question or action that answers it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .. import queries
from ..errors import InputError
from ..manage import actions, cluster_edits, session_actions
from ..plan import form_preview
from ..queries.answers import forms, runs
from ..showing import summary
from ..start import cluster_test, ray_clusters

__all__ = ["OPERATIONS", "Operation", "Param"]

Kind = Literal["integer", "number", "boolean", "string", "names", "object"]
_CLEAN_EVERY_S = 3600.0


@dataclass(frozen=True)
class Param:
    """One parameter. It is in the query of a GET, and in the JSON body of other methods."""

    name: str
    kind: Kind
    required: bool = False
    empty: bool = False
    """Whether an empty text is a value. Otherwise it means that nothing is given."""

    def read(self, raw: object) -> Any:
        """The value, from a query's text or from JSON. Raises InputError."""
        if isinstance(raw, str) and self.kind not in ("string", "object"):
            return self._from_text(raw)
        fits = {
            "integer": isinstance(raw, int) and not isinstance(raw, bool),
            "number": isinstance(raw, (int, float)) and not isinstance(raw, bool),
            "boolean": isinstance(raw, bool),
            "string": isinstance(raw, str),
            "names": isinstance(raw, list) and all(isinstance(name, str) for name in raw),
            "object": isinstance(raw, dict),
        }
        if not fits[self.kind]:
            raise self._wrong(raw)
        return raw

    def _from_text(self, text: str) -> Any:
        try:
            if self.kind == "integer":
                return int(text)
            if self.kind == "number":
                return float(text)
            if self.kind == "names":
                # A name may contain a comma. A list in JSON is not ambiguous.
                return self.read(json.loads(text)) if text.startswith("[") else text.split(",")
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        except (ValueError, KeyError):
            raise self._wrong(text) from None

    def _wrong(self, raw: object) -> InputError:
        return InputError(f"{self.name} must be of type {self.kind}, got {str(raw)[:80]!r}")


@dataclass(frozen=True)
class Operation:
    """One method of one path. `slow`: it may take seconds, and must not delay other pages."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    answer: Callable[..., Any]
    params: tuple[Param, ...] = ()
    slow: bool = False
    file: Literal["text/plain", "application/octet-stream"] | None = None
    """The answer is a file of that type, in pieces."""
    cancellable: bool = False
    """The answer takes a `cancellation`, and ends when the client leaves."""
    content: bool = False
    """The answer is `queries.media_pages.Raw`: untrusted bytes that never change."""

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The answer's arguments from a query or a body. Raises InputError; unknown names are passed over."""
        found = {}
        for param in self.params:
            raw = given.get(param.name)
            if raw is not None and (raw != "" or param.empty):
                found[param.name] = param.read(raw)
            elif param.required:
                raise InputError(f"{param.name} is missing")
        return found


def _save(
    name: str, backend: str, options: dict[str, Any], old_name: str | None = None
) -> forms.ClusterSaved:
    return cluster_edits.save(name, {"backend": backend, "options": options}, old_name)


class _Cleaner:
    """Removal of old runs, at most once an hour for each age, because every page of a browser requests it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cleaned: dict[float, float] = {}

    def __call__(self, days: float) -> runs.Cleaned:
        with self._lock:
            now = time.monotonic()
            if now - self._cleaned.get(days, -_CLEAN_EVERY_S) < _CLEAN_EVERY_S:
                return {"removed": [], "freed_bytes": 0, "skipped": True}
            answer = actions.clean(days)
            self._cleaned[days] = now
            return {**answer, "skipped": False}


_WHICH_LOG = (Param("rank", "integer"), Param("attempt", "integer"), Param("launcher", "string"))

OPERATIONS = (
    Operation(
        "GET",
        "/runs",
        queries.runs,
        (
            Param("text", "string"),
            Param("state", "string"),
            Param("notebook", "string"),
            Param("limit", "integer"),
            Param("before", "string"),
            Param("sort", "string"),
        ),
    ),
    Operation("GET", "/runs/{id}", queries.run),
    Operation("DELETE", "/runs/{id}", actions.remove, slow=True),
    Operation(
        "PUT",
        "/runs/{id}/about",
        actions.about,
        (Param("name", "string", empty=True), Param("tags", "names"), Param("note", "string", empty=True)),
    ),
    Operation("GET", "/runs/{id}/environment", queries.environment),
    Operation("GET", "/runs/{id}/size", queries.disk_size, slow=True),
    Operation("POST", "/runs/{id}/stop", actions.stop, (Param("kill", "boolean"),)),
    Operation(
        "GET",
        "/runs/{id}/log",
        queries.log_page,
        (*_WHICH_LOG, Param("start", "integer"), Param("count", "integer")),
    ),
    Operation(
        "GET",
        "/runs/{id}/log/lines",
        queries.log_lines,
        (*_WHICH_LOG, Param("numbers", "names", required=True)),
    ),
    Operation(
        "GET",
        "/runs/{id}/log/search",
        queries.log_search,
        (
            *_WHICH_LOG,
            Param("query", "string", required=True),
            Param("regex", "boolean"),
            Param("case", "boolean"),
            Param("limit", "integer"),
        ),
        slow=True,
        cancellable=True,
    ),
    Operation("GET", "/runs/{id}/log/download", queries.log_download, _WHICH_LOG, file="text/plain"),
    Operation(
        "GET",
        "/runs/{id}/files/download",
        queries.file_download,
        (Param("file", "string", required=True),),
        file="application/octet-stream",
    ),
    Operation(
        "GET",
        "/runs/{id}/curves",
        queries.curves,
        (
            Param("attempt", "integer"),
            Param("points", "integer"),
            Param("names", "names", empty=True),
            Param("ranks", "string"),
            Param("since", "string"),
        ),
    ),
    Operation("GET", "/runs/{id}/usage", queries.usage, (Param("points", "integer"),)),
    Operation("GET", "/runs/{id}/profile", queries.profile),
    Operation("GET", "/runs/{id}/errors", queries.errors, (Param("attempt", "integer"),)),
    Operation("GET", "/runs/{id}/card", queries.card, (Param("attempt", "integer"),)),
    Operation("GET", "/runs/{id}/results", queries.results),
    Operation(
        "GET",
        "/runs/{id}/displays",
        queries.displays,
        (Param("attempt", "integer"), Param("start", "integer"), Param("count", "integer")),
    ),
    Operation("GET", "/runs/{id}/media", queries.media, (Param("attempt", "integer"),)),
    Operation(
        "GET",
        "/runs/{id}/media/page",
        queries.media_page,
        (
            Param("name", "string", required=True),
            Param("start", "integer"),
            Param("count", "integer"),
            Param("attempt", "integer"),
        ),
    ),
    Operation(
        "GET",
        "/runs/{id}/content",
        queries.content,
        (
            Param("rank", "integer", required=True),
            Param("offset", "integer", required=True),
            Param("bytes", "integer", required=True),
            Param("hash", "string", required=True),
            Param("mime", "string", required=True),
            Param("attempt", "integer"),
        ),
        content=True,
    ),
    Operation("POST", "/runs/{id}/stacks", actions.stacks, slow=True),
    Operation("GET", "/runs/{id}/stacks", queries.kept_stacks),
    Operation("GET", "/runs/{id}/output", summary.of, slow=True),
    Operation("POST", "/clean", _Cleaner(), (Param("days", "number", required=True),), slow=True),
    Operation("GET", "/backends", queries.backends, (Param("folder", "string"),), slow=True),
    Operation(
        "POST",
        "/backends/{backend}/meaning",
        form_preview.meaning,
        (Param("options", "object", required=True), Param("folder", "string")),
        slow=True,
    ),
    Operation("GET", "/clusters", queries.clusters),
    Operation(
        "PUT",
        "/clusters/{name}",
        _save,
        (
            Param("backend", "string", required=True),
            Param("options", "object", required=True),
            Param("old_name", "string"),
        ),
    ),
    Operation("DELETE", "/clusters/{name}", cluster_edits.delete),
    Operation("POST", "/clusters/{name}/duplicate", cluster_edits.duplicate, (Param("new_name", "string"),)),
    Operation("POST", "/clusters/{name}/test", cluster_test.run_hello, slow=True),
    Operation("POST", "/sessions/{name}/close", session_actions.close, slow=True),
    Operation("POST", "/sessions/{name}/restart", session_actions.restart, slow=True),
    Operation(
        "POST",
        "/ray/{verb}",
        ray_clusters.launch,
        (Param("file", "string", required=True), Param("name", "string")),
        slow=True,
    ),
)

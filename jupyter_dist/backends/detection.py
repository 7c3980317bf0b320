"""Detection of what each backend can run on. A backend that raises or hangs affects only itself.

Each backend is asked in a thread of its own. A thread cannot be ended, so a thread that hangs is abandoned.
While the thread hangs, the backend is not asked again for that folder, and callers get an answer at once.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import BrokenBackend, DistError, InputError, MissingEngine
from . import load
from .notebook_folder import asked_in

__all__ = ["Found", "ask", "site_of"]

_LIMIT_S = 10.0
"""Longest time that a view waits for a backend, in seconds.

Imports on a loaded machine take a few seconds.
"""


@dataclass(frozen=True)
class Found:
    """The result of asking one backend."""

    available: bool = False
    """Whether the backend can be loaded, so that its flags and its form are available."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """The answer of `detect`, as JSON: versions, GPUs, addresses."""
    schema: Mapping[str, Any] | None = None
    """The JSON schema of the backend's options."""
    problem: DistError | None = None
    """Why the backend cannot be loaded, or the error of its `detect`."""
    lacks: MissingEngine | None = None
    """What must be installed before one of the backend's runs can start."""

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts about the backend as a whole."""
        return {name: value for name, value in self.detail.items() if name not in ("sites", "no_site")}

    @property
    def sites(self) -> list[dict[str, Any]]:
        """Return the named sites, if the backend finds several places to run on."""
        told = self.detail.get("sites")
        listed = told if isinstance(told, list) else []
        return [site for site in listed if isinstance(site, dict) and isinstance(site.get("name"), str)]

    @property
    def no_site(self) -> str | None:
        """Return why the backend found no site, or None if the backend reports no reason."""
        told = self.detail.get("no_site")
        return told if isinstance(told, str) and not self.sites else None


def site_of(options: Mapping[str, Any], sites: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the site that these options select. None if they select another place, or leave it open."""
    for site in sites:
        leading = site.get("options") or {}
        if leading and all(options.get(name) == value for name, value in leading.items()):
            return site
    return None


def ask(names: Iterable[str], *, fresh_s: float = 0.0, folder: Path | None = None) -> dict[str, Found]:
    """Return the answer of each of these backends.

    Never raises. Blocks for 10 s at most, for any number of backends. An answer that is at most `fresh_s`
    seconds old is returned again without asking. `folder`: the notebook's folder, if this process does not
    run there.
    """
    asked = {name: _asking(name, fresh_s, folder) for name in names}
    return {name: asking.answer() for name, asking in asked.items()}


class _Asking:
    """One question to one backend. A thread waits for the answer."""

    def __init__(self, name: str, folder: Path | None) -> None:
        self._name, self._folder = name, folder
        self._began = time.monotonic()
        self._known = Found()
        """Latest findings. The thread replaces this object with more and more complete ones."""
        self._done = threading.Event()
        self._done_at = 0.0
        threading.Thread(target=self._ask, name=f"jupyter-dist-detect-{name}", daemon=True).start()

    def serves(self, fresh_s: float) -> bool:
        """Return whether a caller gets this answer now: the answer is pending, or is recent enough."""
        return not self._done.is_set() or time.monotonic() - self._done_at < fresh_s

    def answer(self) -> Found:
        if self._done.wait(max(0.0, self._began + _LIMIT_S - time.monotonic())):
            return self._known
        known = self._known
        slow = BrokenBackend(
            f"backend {self._name!r} has not reported its resources for {_LIMIT_S:g} s. It hangs, "
            "or it waits for a machine that does not answer"
        )
        return Found(known.available, schema=known.schema, problem=slow, lacks=known.lacks)

    def _ask(self) -> None:
        try:
            with asked_in(self._folder):
                self._look()
        except DistError as error:
            self._fail(error)
        except BaseException as error:  # third-party code may also call sys.exit()
            said = f"{type(error).__name__}: {error}"
            self._fail(BrokenBackend(f"backend {self._name!r} cannot report its resources: {said}"))
        self._done_at = time.monotonic()
        self._done.set()

    def _fail(self, error: DistError) -> None:
        known = self._known
        self._known = Found(known.available, schema=known.schema, problem=error, lacks=known.lacks)

    def _look(self) -> None:
        backend = load(self._name)
        schema, lacks = backend.options.model_json_schema(), None
        self._known = Found(True, schema=schema)
        try:
            backend.check(1, backend.options().model_dump(mode="json"))
        except MissingEngine as error:
            lacks = error
        except InputError:
            pass  # for example a backend that needs hosts
        self._known = Found(True, schema=schema, lacks=lacks)
        detail = json.loads(json.dumps(backend.detect(), allow_nan=False))
        self._known = Found(True, dict(detail), schema, lacks=lacks)


_lock = threading.Lock()
_asked: dict[tuple[str, Path | None], _Asking] = {}
"""The latest question to each backend in each folder."""


def _asking(name: str, fresh_s: float, folder: Path | None) -> _Asking:
    with _lock:
        known = _asked.get((name, folder))
        if known is None or not known.serves(fresh_s):
            for other in [key for key in _asked if key[0] == name and not _asked[key].serves(fresh_s)]:
                del _asked[other]
            known = _asked[name, folder] = _Asking(name, folder)
        return known

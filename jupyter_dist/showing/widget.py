"""The run view as an anywidget, for front-ends without our labextension. The kernel sends its data.

The view sends its questions over the widget's comm, as it would send them to the server. While a cell blocks
a kernel without subshells, the kernel receives no questions. Then the kernel renews the trait `snapshot` from
time to time. At the end of the run, `snapshot` has what a saved notebook shows.
"""

from __future__ import annotations

import collections
import json
import secrets
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anywidget
import ipywidgets
import traitlets

from .. import queries
from ..errors import RunNotFound
from ..folder import RunFolder, runs_root, trials_of
from ..manage import actions
from ..queries.answers.runs import Snapshot
from ..queries.snapshot import snapshot
from ..text.cancellation import Cancellation
from ..text.package_version import package_version
from . import frontends
from .downloads import Downloads

__all__ = ["RunWidget", "end", "send_code", "view"]

_STATIC = Path(__file__).parents[1] / "static"
_VIEW = "application/vnd.jupyter.widget-view+json"
# One widget contains the code, which is 100 kB and more. The other widgets refer to it. A page with our
# labextension of the same version uses the labextension's code.
_LOADER = """
async function load(model) {
  const page = globalThis.jupyterDist;
  if (page?.version === "VERSION") {
    try {
      return await page.widget();
    } catch (error) {
      // The server's files were replaced by another version's: the kernel sends the code later.
      console.warn("jupyter-dist:", error);
    }
  }
  if (!model.get("code")) {
    await new Promise(resolve => model.on("change:code", resolve));
  }
  const name = model.get("code").slice("IPY_MODEL_".length);
  const code = await model.widget_manager.get_model(name);
  code.jupyterDist ??= (async () => {
    const url = URL.createObjectURL(new Blob([code.get("script")], { type: "text/javascript" }));
    try {
      return (await import(url)).default;
    } finally {
      URL.revokeObjectURL(url);
    }
  })();
  return code.jupyterDist;
}
export default {
  async render(props) {
    return (await load(props.model)).render(props);
  },
};
""".replace("VERSION", package_version())
_METHODS: dict[str, Callable[..., Any]] = {
    "run": queries.run,
    "log_lines": queries.log_lines,
    "log_page": queries.log_page,
    "curves": queries.curves,
    "errors": queries.errors,
    "card": queries.card,
    "results": queries.results,
    "displays": queries.displays,
    "media": queries.media,
    "media_page": queries.media_page,
    "usage": queries.usage,
    "profile": queries.profile,
    "stacks": actions.stacks,
    "kept_stacks": queries.kept_stacks,
    "stop": actions.stop,
}
_KERNEL = secrets.token_hex(8)
"""Differs in each kernel: a view of an earlier kernel cannot be used any more."""
_TICK_S = 0.1
_WATCHED_S = 35.0
"""An open view sends a message every 10 s. After this time without one, the view counts as closed."""
_KEPT = 50
"""Limit of widgets, without those that have an open view."""
_REMEMBERED = 500
"""Limit of questions whose repetition is recognized. A view repeats a question after 1.5 s."""
_BYTES_PER_S = 100_000
_LIVE = {"lines": 100, "points": 2_000, "each": 200}
_FINAL = {"lines": 200, "points": 8_000, "each": 200}


class _Code(anywidget.AnyWidget):
    """Widget with the view's code and style sheet. It is never displayed."""

    _esm = "export default {};"  # anywidget would run the code now, and the loader once more
    script = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)


class RunWidget(anywidget.AnyWidget):
    """Widget of one run. It does nothing until a front-end displays it, or a cell blocks on the run."""

    _esm = _LOADER
    kernel = traitlets.Unicode(_KERNEL).tag(sync=True)
    run = traitlets.Unicode().tag(sync=True)
    root = traitlets.Unicode().tag(sync=True)
    code = traitlets.Unicode().tag(sync=True)
    snapshot = traitlets.Dict().tag(sync=True)

    def __init__(self, folder: RunFolder) -> None:
        # Each widget would open a layout of its own, which is never closed.
        super().__init__(
            run=folder.id, root=str(folder.path.parent), layout=_open(_layout, ipywidgets.Layout)
        )
        frontends.route(self)
        self._lock = threading.Lock()
        self._feeding = False
        self._blocking = False
        self._watched_until = 0.0
        self.last_used = 0.0
        self._downloads = Downloads()
        self._asked: collections.deque[Any] = collections.deque(maxlen=_REMEMBERED)
        self._searches: dict[Any, Cancellation] = {}
        self.on_msg(self._on_message)

    def block(self) -> None:
        """Begin to block: a cell waits for the run.

        From now on the kernel may not receive messages of views.
        """
        self._blocking = True
        if not frontends.hears_while_busy():
            self._feed_soon()

    def end(self) -> None:
        """End the waiting. In most cases the run has ended too. Stores what a saved notebook shows."""
        try:
            found: Snapshot | None = snapshot(self.run, **_FINAL, final=True)
        except RunNotFound:
            found = None
        with self._lock:
            self._blocking = False
            if found is not None and found["run"]["ended"] is not None:
                self.snapshot = {**found, "told": False}
            elif self.snapshot:
                self.snapshot = {**self.snapshot, "told": False}

    def take_code(self) -> None:
        """Refer to the view's code, which is sent with the first call in this kernel."""
        if not self.code:
            self.code = f"IPY_MODEL_{_open(_code, _read_code).model_id}"

    def used(self) -> None:
        """Note that the widget is displayed now, or that one of its views sent a message."""
        self.last_used = time.monotonic()

    def is_idle(self) -> bool:
        """Return whether no open view is known, and no cell waits for the run."""
        return not self._blocking and not self._feeding and time.monotonic() >= self._watched_until

    def close(self) -> None:
        """Close the widget, here and in the front-end. No view of it is open any more."""
        self._watched_until = 0.0
        self._downloads.close()
        super().close()

    def _on_message(self, _: object, content: Any, buffers: object) -> None:
        frontends.heard()
        self.used()
        kind = content.get("kind") if isinstance(content, dict) else None
        if kind == "watch":
            self._watched_until = time.monotonic() + _WATCHED_S
            self.send({"kind": "here"})
            self._feed_soon()
        elif kind == "unwatch":
            self._watched_until = 0.0
        elif kind == "cancel":
            search = self._searches.get(content.get("ask"))
            if search is not None:
                search.cancel()
        elif kind == "ask":
            if content.get("ask") in self._asked:  # a view repeats what may have been lost
                return
            self._asked.append(content.get("ask"))
            if content.get("method") == "open":
                self._answer(content)  # creates another widget, which must happen in the kernel's thread
                return
            if content.get("method") == "log_search":
                self._searches[content.get("ask")] = Cancellation()
            # Some questions take seconds. The kernel, or its subshell, continues meanwhile.
            threading.Thread(target=self._answer, args=(content,), daemon=True).start()

    def _answer(self, asked: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"kind": "answer", "ask": asked.get("ask")}
        chunk: list[bytes] = []
        try:
            method, given = asked["method"], asked.get("args") or {}
            if method == "download":
                chunk = self._next_chunk(**given)
                answer["result"] = len(chunk)
            elif method == "content":
                found = queries.content(self.run, **given)
                chunk, answer["result"] = [found.data], found.content_type
            elif method == "open":
                answer["result"] = self._open(**given)
            elif method == "log_search":
                search = self._searches[asked["ask"]]
                answer["result"] = queries.log_search(self.run, **given, cancellation=search)
            else:
                answer["result"] = _METHODS[method](self.run, **given)
        except RunNotFound as error:
            answer |= {"error": str(error), "missing": str(runs_root())}
        except Exception as error:  # whatever it is, because a view waits for an answer
            answer["error"] = str(error) or type(error).__name__
        finally:
            self._searches.pop(asked.get("ask"), None)
        self.send(answer, chunk)

    def _open(self, trial: str) -> str:
        """Return the model id of a widget for a trial of this run."""
        for folder in trials_of(RunFolder(Path(self.root, self.run))):
            if folder.id == trial:
                return str(view(folder)[_VIEW]["model_id"])
        raise RunNotFound(f"run {self.run} has no trial {trial!r}")

    def _next_chunk(
        self,
        key: str,
        rank: int | None = None,
        attempt: int | None = None,
        launcher: str | None = None,
        file: str | None = None,
    ) -> list[bytes]:
        """Return the next piece of the download `key`. Empty at its end."""
        if file is not None:
            piece = self._downloads.next(key, lambda: queries.file_download(self.run, file))
        else:
            begin = partial(queries.log_download, self.run, rank, attempt, launcher)
            piece = self._downloads.next(key, begin)
        return [] if piece is None else [piece]

    def _feed_soon(self) -> None:
        with self._lock:
            if not self._feeding:
                self._feeding = True
                threading.Thread(target=self._feed, name="jupyter-dist-feed", daemon=True).start()

    def _unheard(self) -> bool:
        return self._blocking and not frontends.hears_while_busy()

    def _feed(self) -> None:
        """Send changes, at most ten times a second, as long as a view can receive them."""
        watch = queries.RunChanges([self.run])
        began = time.monotonic()
        ended = False
        while self._is_wanted(ended):
            changes = watch.poll()
            pause = _TICK_S
            if changes and self._unheard():
                sent = self._tell()
                # As with the text: if the browser is closed, the server stores each update.
                rare = min(2.0, max(0.2, (time.monotonic() - began) / 300))
                pause = max(rare, sent / _BYTES_PER_S)
            elif changes:
                self.send({"kind": "changes", "changes": changes})
            ended = any(change["kind"] == "run" and change["run"]["ended"] is not None for change in changes)
            time.sleep(pause)

    def _is_wanted(self, ended: bool) -> bool:
        with self._lock:
            self._feeding = not ended and (self._unheard() or time.monotonic() < self._watched_until)
            return self._feeding

    def _tell(self) -> int:
        try:
            found = snapshot(self.run, **_LIVE, final=False)
        except RunNotFound:
            return 0
        with self._lock:
            if self._unheard():  # `end` was not called meanwhile, and no view sent a message
                self.snapshot = {**found, "told": True}
        return len(json.dumps(found))


_widgets: dict[str, RunWidget] = {}
_widgets_lock = threading.Lock()
_code: list[_Code] = []
_layout: list[ipywidgets.Layout] = []
_open_lock = threading.Lock()
_Opened = TypeVar("_Opened", bound=ipywidgets.Widget)


def _open(opened: list[_Opened], make: Callable[[], _Opened]) -> _Opened:
    """Return the widget in `opened`. If there is none, or a user has closed it, make it first."""
    with _open_lock:
        if not opened or opened[0].comm is None:
            opened[:] = [make()]
        return opened[0]


def _read_code() -> _Code:
    return _Code(script=(_STATIC / "widget.js").read_text(), _css=(_STATIC / "widget.css").read_text())


def view(folder: RunFolder, *, blocking: bool = False) -> dict[str, Any]:
    """Return the run's widget as part of a MIME bundle. Empty if the front-end was not built.

    If the page has the view's code and a cell waits for the run, the cell calls `send_code` later.
    """
    with _widgets_lock:
        found = _widgets.get(folder.id)
        if found is None:
            if not (_STATIC / "widget.js").exists():
                return {}
            _close_old()
            found = _widgets[folder.id] = RunWidget(folder)
            if not blocking:
                found.end()
        found.used()
    if frontends.lacks_view() or not blocking:
        found.take_code()
    if blocking:
        found.block()
    return {_VIEW: {"version_major": 2, "version_minor": 0, "model_id": found.model_id}}


def send_code() -> None:
    """Let all widgets refer to the view's code, which saved notebooks need. Other messages wait meanwhile."""
    for found in list(_widgets.values()):
        found.take_code()


frontends.when_view_is_lacking(send_code)


def _close_old() -> None:
    """Close old widgets to limit memory. Each needs some hundred kilobytes in the kernel and in the browser.

    No front-end reports to the kernel that an output was cleared or a notebook closed.
    An output whose widget was closed shows the run's summary, which it also contains.
    """
    by_use = sorted(_widgets.values(), key=lambda widget: widget.last_used)
    for old in by_use[: max(0, len(by_use) - _KEPT + 1)]:
        if old.is_idle():
            del _widgets[old.run]
            old.close()


def end(folder: RunFolder) -> None:
    """End the waiting of a cell for the run."""
    found = _widgets.get(folder.id)
    if found is not None:
        found.end()

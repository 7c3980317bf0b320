"""Builder of a payload: a cell or a call, with everything that it needs from the notebook.

Nothing is copied: the buffers of a payload are views of the live arrays and tensors.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import CaptureError
from ..worker import payload
from ..worker.pickling import Dumped, Trace, by_reference, dump
from ..worker.pickling.code_places import CodePlaces
from ..worker.pickling.file_maps import FileMaps
from ..worker.pickling.reducers import locks
from ..worker.pickling.reducers.spark_frames import collected_once
from ..worker.settings import OBJECTS
from . import (
    keras_checks,
    kernel_settings,
    notebook_history,
    parameters,
    payload_size,
    preflight,
    second_part,
)
from . import modules as _ship
from . import source as _source
from .modules import ShippedFile
from .session.choice import Choice

__all__ = ["Payload", "ShippedFile", "capture_call", "capture_cell"]


@dataclass(frozen=True)
class Payload:
    """Captured payload. `buffers` are views of live arrays, so it must be written before those change."""

    header: dict[str, Any]
    body: bytes
    buffers: tuple[memoryview, ...]
    modules: tuple[ShippedFile, ...]
    nbytes: int
    """Approximate number of bytes to write."""
    notes: tuple[str, ...]
    """Notes for the user, one line each."""
    imports: tuple[str, ...]
    """Installed modules that the code uses. A process may import them before it receives the code."""
    words: frozenset[str] = frozenset()
    """Every name in the code, in the functions that it calls, and in the modules that are sent."""
    parameters: Mapping[str, parameters.Value] = field(default_factory=dict)
    """The small values that the code uses."""

    def write(self, path: Path) -> None:
        """Write the container: `path`, and its buffers beside it, both with mode 0600.

        Raises OSError, for example for a full disk. Then no file is left behind.
        """
        payload.write(path, self.header, self.body, self.buffers)


@collected_once()
def capture_cell(
    source: str,
    namespace: dict[str, Any],
    *,
    label: str,
    directory: Path,
    sources: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    ship_modules: str = "auto",
    flags: int = 0,
    argv: Sequence[str] = (),
    file: str | None = None,
    module: str | None = None,
    here: bool = True,
    other_python: bool = False,
    choice: Choice | None = None,
) -> Payload:
    """Capture a cell with the names of `namespace` that it uses, and what those use in turn.

    `label` is the cell's name in tracebacks. `labels` (file name → label) and `sources` (file name → text)
    describe earlier cells. By default their text is from `linecache`. `flags` are the compiler flags of
    earlier cells. `directory` is the notebook's folder. `argv` becomes the rank's `sys.argv`, and
    `file` its `__file__`. `module` is the full name of a module that runs as `python -m` runs it. `here` is
    whether all ranks run on this machine. `other_python`: ranks may have another version of Python.
    `choice`: of a session's cell. Its names in `sent` are sent in any case, and those in `without` are not.

    Raises CaptureError with all problems. Nothing is written.
    """
    cell = _source.parse(source, label, flags)
    choice = choice or Choice()
    hidden = notebook_history.hidden_names(namespace) | choice.without
    first_use = {name: _position(name, cell.source) for name in (*cell.reads, *choice.sent)}
    wanted = (cell.reads | choice.sent.keys()) & namespace.keys() - hidden
    values = {name: namespace[name] for name in sorted(wanted, key=lambda name: (first_use[name], name))}
    known = notebook_history.code_texts(namespace, sources) if other_python else None
    stays = _ship.stays_behind(ship_modules, directory)
    package = (module or "").rpartition(".")[0]
    modules = {*choice.modules, package} if package else choice.modules
    capture = _Capture(namespace, hidden, stays, here, modules, known)
    capture.take(values, cell=cell)
    capture.trace.add_code(cell)
    capture.body = cell.body
    header = {
        "kind": "cell",
        "source": cell.source,
        "filename": cell.filename,
        "flags": cell.flags,
        "argv": list(argv) or [cell.filename],
        **({} if file is None else {"file": file}),
        **({} if module is None else {"module": module}),
        "sources": {cell.filename: cell.source},
        "labels": {cell.filename: label},
        "writes": sorted(cell.writes),
        "assigns": sorted(cell.assigns),
    }
    return capture.payload(header, label, directory, sources or {}, labels or {}, ship_modules)


@collected_once()
def capture_call(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    label: str,
    directory: Path,
    sources: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    ship_modules: str = "auto",
    argv: Sequence[str] = (),
    file: str | None = None,
    here: bool = True,
    other_python: bool = False,
    choice: Choice | None = None,
) -> Payload:
    """Capture `fn(*args, **kwargs)`. The function may belong to a notebook, a script or a module.

    The arguments are as for `capture_cell`. The container's value is {"fn", "args", "kwargs"}. The
    names that `choice` sends are in it under "names".
    """
    main = sys.modules["__main__"].__dict__
    known = notebook_history.code_texts(main, sources) if other_python else None
    choice = choice or Choice()
    hidden = notebook_history.hidden_names(main) | choice.without
    stays = _ship.stays_behind(ship_modules, directory)
    capture = _Capture(main, hidden, stays, here, choice.modules, known)
    name = getattr(fn, "__qualname__", type(fn).__name__).rpartition(".")[2]
    values = {"fn": fn, "args": tuple(args), "kwargs": dict(kwargs)}
    if choice.sent:
        values["names"] = {each: main[each] for each in choice.sent}
    capture.take(values, called=name)
    header = {
        "kind": "call",
        "source": "",
        "filename": f"<{label}>",
        "flags": 0,
        "argv": list(argv) or [f"<{label}>"],
        **({} if file is None else {"file": file}),
        "sources": {},
        "labels": {},
    }
    return capture.payload(header, label, directory, sources or {}, labels or {}, ship_modules)


class _Capture:
    """One capture in progress, from values to a payload."""

    def __init__(
        self,
        namespace: dict[str, Any],
        hidden: Collection[str],
        doubtful: Callable[[str], bool],
        here: bool,
        modules: Collection[str],
        sources: Sequence[tuple[str, str]] | None,
    ) -> None:
        # Functions of the notebook use the real namespace, even if the caller passed a copy.
        self._mains = [namespace, sys.modules["__main__"].__dict__]
        self._hidden = hidden
        self._doubtful = doubtful
        self._bound = second_part.bound_names(namespace, hidden)
        self._here = here
        self._modules = {*modules}
        self._sources = sources
        self._places: CodePlaces | None = None
        self._shown: dict[str, Any] = {}
        self._notes: list[str] = []
        self._dumped = Dumped(b"", (), 0)
        self._values: dict[str, Any] = {}
        self.trace = Trace()
        self.body: Sequence[ast.stmt] = ()
        """Statements of a cell."""

    def take(self, values: dict[str, Any], *, cell: _source.Cell | None = None, called: str = "") -> None:
        """Pickle the values, without those that cannot be pickled if the cell assigns its own.

        Raises CaptureError if any other value cannot be pickled.
        """
        optional, bound_before = ((), {}) if cell is None else (cell.optional, cell.bound_before)
        self._shown = {called if name == "fn" else name: value for name, value in values.items()}
        failure = self._dump(values)
        where = "inside the function" if called else "inside the cell, or in a function that it calls"
        while failure is not None:
            mains, hidden = self._mains, self._hidden
            behind, own, notes = preflight.sort_out(self._shown, optional, mains, hidden, where, bound_before)
            if not behind and not own:  # each value can be pickled, but not all together
                raise CaptureError(
                    f"cannot pickle what is used: {failure}. Nothing was started."
                ) from failure
            self._notes, self._hidden = [*self._notes, *notes], {*hidden, *own}
            self._shown = {name: value for name, value in self._shown.items() if name not in behind}
            failure = self._dump(self._shown)

    def _dump(self, values: dict[str, Any]) -> Exception | None:
        self._values = values
        self.trace = Trace()
        self._places = None if self._sources is None else CodePlaces(self._sources)
        try:
            self._dumped = dump(
                values,
                mains=self._mains,
                hidden=self._hidden,
                trace=self.trace,
                doubtful=self._doubtful,
                bound=self._bound,
                maps=FileMaps(0 if self._here else payload_size.LARGE),
                places=self._places,
            )
        except Exception as error:  # pickling runs the values' own code
            return error
        return None

    def payload(
        self,
        header: dict[str, Any],
        label: str,
        directory: Path,
        sources: Mapping[str, str],
        labels: Mapping[str, str],
        ship_modules: str,
    ) -> Payload:
        used = self.trace.modules | self.trace.imports | self._modules
        shipment = _ship.ship(ship_modules, used, directory)
        settings = self._settings({name.partition(".")[0] for name in used | shipment.imports}, directory)
        if settings.objects and not (more := self.trace.modules | self.trace.imports) <= used:
            used |= more
            shipment = _ship.ship(ship_modules, used, directory)
        trace, dumped = self.trace, self._dumped
        words = trace.words | shipment.words
        used |= shipment.imports
        legacy_keras = keras_checks.needs_legacy(words, used)
        keras_checks.check(legacy_keras, trace.modules)
        header["sources"].update(_texts(trace.files, sources))
        header["labels"].update({file: labels[file] for file in sorted(trace.files) if file in labels})
        texts = [*header["sources"].values(), *_decoded(shipment.files)]
        spans = keras_checks.spanning_strategy(words, used, texts)
        uses_keras = keras_checks.uses_keras(words, used)
        names = list(self._shown) if header["kind"] == "cell" else []
        second = self._second_part(names, (ship_modules, directory))
        files = [*shipment.files, *_ship.also(ship_modules, second.modules, directory, shipment)]
        header |= {
            "format": payload.CELL_FORMAT,
            "sys_path": _sys_path(),
            "origins": {file.path: file.origin for file in files if file.path.endswith(".py")},
            "names": names,
            "unnamed": second.unnamed,
            "submodules": _ship.reached(trace.modules | trace.imports, trace.words),
            "settings": settings.header,
            "legacy_keras": legacy_keras,
            "legacy_keras_if_several": keras_checks.OUR_STRATEGY if spans and uses_keras else "",
            "logical_cpus": keras_checks.logical_cpus(words, texts),
            "spanning_strategy": spans or bool(keras_checks.NEED_LEGACY & words),
        }
        if not self._here:
            header["libraries"] = _ship.versions(used)
        if self._places is not None:
            of_code = [(file, text) for (file, _), text in {**second.texts, **self._places.texts}.items()]
            header["texts"] = [one for one in of_code if one not in header["sources"].items()]
            header["same_python"] = self._places.missing
        body = dumped.body + second.body
        size = len(body) + sum(view.nbytes for view in dumped.buffers) + sum(len(file.data) for file in files)
        values = {**self._shown, **trace.globals, **self._shown}
        pickled = dict.fromkeys(trace.notes)
        if locks.NOTE in pickled and not locks.are_held(values.values(), by_reference.is_installed):
            del pickled[locks.NOTE]
        notes = [*self._notes, *pickled, *shipment.notes, *settings.notes]
        notes += notebook_history.old_classes(values)
        if size > payload_size.LARGE:
            notes.append(payload_size.note(size, values, self._mains, self._hidden))
        if dumped.cuda_tensors:
            count = dumped.cuda_tensors
            some = "1 CUDA tensor travels" if count == 1 else f"{count} CUDA tensors travel"
            notes.append(f"{some} through CPU memory")
        # Batches of a DataLoader are in shared memory, too, and nobody expects them to be shared.
        if dumped.shared_tensors and notebook_history.mentions(self._mains[0], "share_memory"):
            notes.append(
                "every rank has a copy of tensors in shared memory: no rank sees what another writes"
            )
        return Payload(
            header=header,
            body=body,
            buffers=dumped.buffers,
            modules=tuple(files),
            nbytes=size,
            notes=tuple(notes),
            imports=_ship.installed(used),
            words=frozenset(words),
            parameters=self._parameters(header),
        )

    def _second_part(self, names: Collection[str], rank_modules: object) -> second_part.Built:
        return second_part.build(
            self._mains[0],
            names,
            self._values,
            self.trace,
            self._bound,
            mains=self._mains,
            hidden=self._hidden,
            doubtful=self._doubtful,
            rank_modules=rank_modules,
            sources=self._sources,
        )

    def _parameters(self, header: Mapping[str, Any]) -> dict[str, parameters.Value]:
        inner = self.trace.globals
        if header["kind"] == "cell":
            return parameters.of_cell(self.body, self._shown, inner)
        fn, args, kwargs = (self._values[part] for part in ("fn", "args", "kwargs"))
        return parameters.of_call(fn, args, kwargs, inner)

    def _settings(self, modules: Collection[str], directory: Path) -> kernel_settings.Settings:
        """Return the notebook's settings.

        Its objects are pickled with the values, and may share parts with them.
        """
        settings = kernel_settings.read(
            self._mains[0],
            directory,
            modules,
            mains=self._mains,
            hidden=self._hidden,
            own_cell=self.body,
            here=self._here,
        )
        if settings.objects:
            values, trace, dumped, places = self._values, self.trace, self._dumped, self._places
            failure = self._dump({**values, OBJECTS: settings.objects})
            self.trace.add_code(trace)  # the names of the cell itself, which no function has
            if failure is not None:  # each value can be pickled, but not all together
                self._values, self.trace, self._dumped, self._places = values, trace, dumped, places
                settings.objects = {}
                settings.notes.append(f"what was set on modules stays behind: {failure}")
        return settings


def _decoded(files: Collection[ShippedFile]) -> list[str]:
    return [bytes(file.data).decode(errors="replace") for file in files if file.path.endswith(".py")]


def _position(name: str, source: str) -> int:
    found = re.search(rf"\b{re.escape(name)}\b", source)
    return len(source) if found is None else found.start()


def _texts(files: Collection[str], known: Mapping[str, str]) -> dict[str, str]:
    """Return the text of earlier cells, and of the running script."""
    texts = {}
    script = getattr(sys.modules["__main__"], "__file__", None)
    for file in sorted(files):
        entry = linecache.cache.get(file)
        if file in known:
            texts[file] = known[file]
        elif entry is not None and len(entry) == 4 and entry[1] is None:  # not a file on the disk
            texts[file] = "".join(entry[2])
        elif file == script:
            texts[file] = "".join(linecache.getlines(file))
    return {file: text for file, text in texts.items() if text}


def _sys_path() -> list[str]:
    """Return this process's module search path, without relative entries."""
    return list(dict.fromkeys(os.path.abspath(entry) for entry in sys.path if isinstance(entry, str)))

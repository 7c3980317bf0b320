"""Functions for a process with another version of Python.

Bytecode belongs to one version of Python. So a pickle has the bytecode of each function, and the place of the
function in a source text. A process with the same Python uses the bytecode. Another process compiles the text
and finds the function at its place.

| function of | text |
|---|---|
| a cell, the running script, a user's module | the notebook's text, which travels in the header |
| an installed library, the standard library | the other process's own library |
| text that nothing has kept | none: the function is refused if the versions differ |
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import linecache
import marshal
import os
import sys
import types
from collections.abc import Iterable
from typing import Any, NamedTuple

from . import cloudpickle_parts
from .by_reference import is_installed
from .source_index import Index, Place, compiled, future_flags, index, path_of
from .unpickling import HERE, current, syntax_of

__all__ = ["CodePlaces", "digest"]

_NOT_KEPT = "its source text was not kept"
_MAGIC = importlib.util.MAGIC_NUMBER
_KINDS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR
_KINDS |= inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def digest(text: str) -> str:
    """Return what tells texts of one file apart."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


class _InText(NamedTuple):
    """A place in a text that travels."""

    filename: str
    digest: str
    """A file can have several texts, one after the other."""
    flags: int
    optimize: int
    place: Place


class _InLibrary(NamedTuple):
    """A place in an installed module, which the other process has as well."""

    module: str
    path: str
    position: int
    """The position among the functions of the module with the same path and parameters."""
    among: int
    """The number of these functions."""


class CodePlaces:
    """The places of the functions in one pickle. `known`: file names with texts, before `linecache`."""

    def __init__(self, known: Iterable[tuple[str, str]] = ()) -> None:
        self._known = list(known)
        self.texts: dict[tuple[str, str], str] = {}
        """The texts that must travel: file name and digest → text."""
        self.missing: dict[str, str] = {}
        """Functions that only the same version of Python can load, with the reason."""
        self._texts: dict[str, list[str]] = {}
        self._modules: dict[str, str] | None = None
        self._made_again: set[int] = set()

    def made_again(self, functions: Iterable[Any]) -> None:
        """Record functions that a library makes again on a rank with another Python."""
        for function in functions:
            while isinstance(function, types.FunctionType):
                self._made_again.add(id(function.__code__))
                function = function.__dict__.get("__wrapped__")

    def reduce_code(self, code: types.CodeType) -> Any:
        """Reduce code to its bytecode and its place."""
        try:
            data: Any = marshal.dumps(code)
        except ValueError:  # some program has put a constant into the code that only pickle knows
            self._lacks(code, "its constants were changed after its compilation")
            return _changed_code, (_MAGIC, *cloudpickle_parts.code_reduce(code)[:2], _shape(code))
        return _code_at, (_MAGIC, data, self._place(marshal.loads(data), id(code)), _shape(code))

    def reduce_function(self, arguments: tuple[Any, ...]) -> Any:
        """Return how to make a function, from cloudpickle's arguments for it."""
        return _function_at, (*arguments, arguments[0].co_freevars)

    def _place(self, code: types.CodeType, original: int) -> tuple[Any, ...] | None:
        """Return the place of code.

        `code` is a copy of the original. Before Python 3.12, running code changes what the code equals.
        """
        if original in self._made_again:
            return None
        filename = code.co_filename
        texts = self._cell_texts(filename)
        module = "" if texts else self._module(filename)
        if module and is_installed(module):
            return self._in_library(module, code)
        texts = texts or self._file_texts(filename, module)
        flags, optimize = future_flags(code.co_flags), sys.flags.optimize
        for text in texts:
            place = _found(code, text, flags, optimize)
            if place is not None:
                known = digest(text)
                self.texts[filename, known] = text
                return tuple(_InText(filename, known, flags, optimize, place))
        changed = texts and filename != "<string>"  # all texts of exec and of `python -c` have this name
        self._lacks(code, f"its code is not in the text of {filename!r}" if changed else _NOT_KEPT)
        return None

    def _lacks(self, code: types.CodeType, reason: str) -> None:
        if code.co_name != "__annotate__":
            name = getattr(code, "co_qualname", code.co_name)
            self.missing.setdefault(f"{name} ({code.co_filename}:{code.co_firstlineno})", reason)

    def _cell_texts(self, filename: str) -> list[str]:
        """Return the texts of a cell or of the running script."""
        texts = self._texts.get(filename)
        if texts is None:
            texts = [text for file, text in self._known if file == filename]
            entry = linecache.cache.get(filename)
            if entry is not None and len(entry) == 4 and entry[1] is None:
                texts.append("".join(entry[2]))
            if filename == getattr(sys.modules["__main__"], "__file__", None):
                texts += _lines(filename)
            self._texts[filename] = texts = [text for text in dict.fromkeys(texts) if text]
        return texts

    def _file_texts(self, filename: str, module: str) -> list[str]:
        """Return the texts of a file: as it was when a traceback showed it, and as it is now."""
        if module or os.path.isfile(filename):
            self._texts[filename] = _lines(filename)
        return self._texts[filename]

    def _module(self, filename: str) -> str:
        """Return the name of the module with this file; an empty text if no module has it."""
        if self._modules is None:
            self._modules = {}
            for name, module in list(sys.modules.items()):
                with contextlib.suppress(Exception):  # some packages put other objects there
                    # Another way to ask would load a lazy module.
                    file = object.__getattribute__(module, "__dict__").get("__file__")
                    if isinstance(file, str) and name not in ("__main__", "__mp_main__"):
                        self._modules.setdefault(file, name)
        return self._modules.get(filename, "")

    def _in_library(self, module: str, code: types.CodeType) -> tuple[Any, ...] | None:
        path, shape = self._path(module, code), _shape(code)
        position, among = 0, 1
        if path is None or not _is_the_only_one(module, path, shape, code):
            alike = [] if path is None else _alike(module, path, shape)
            position, among = next((i for i, each in enumerate(alike) if each == code), -1), len(alike)
        if path is None or position < 0:
            self._lacks(code, f"it is not the function of this name that {module} has")
            return None
        return tuple(_InLibrary(module, path, position, among))

    def _path(self, module: str, code: types.CodeType) -> str | None:
        if sys.version_info >= (3, 11):
            return path_of(code.co_qualname)
        return next((path for known, path in _library(module) if known == code), None)


def _shape(code: types.CodeType) -> tuple[Any, ...]:
    """Return what the code of one function has in all versions of Python."""
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    count += bool(code.co_flags & inspect.CO_VARKEYWORDS)
    names = code.co_varnames[:count]
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    return code.co_name, *counts, code.co_flags & _KINDS, names, tuple(sorted(code.co_freevars))


def _versions() -> str:
    writer = current().writer.python
    return f"This process has Python {HERE.python}, and the pickle was made with Python {writer}"


def _in_text(place: _InText) -> types.CodeType | None:
    text = current().writer.texts.get((place.filename, place.digest))
    if text is None:
        return None
    with syntax_of(current().writer.python):
        found = _index(text, place.filename, place.flags, place.optimize)
    return found.codes.get(place.place)


def _index(text: str, filename: str, flags: int, optimize: int) -> Index:
    try:
        return index(text, filename, flags, optimize)
    except SyntaxError as error:
        try:  # a cell may have an import from __future__ in its middle
            return index(text, filename, flags, optimize, by_statement=True)
        except SyntaxError:
            raise error from None


def _found(code: types.CodeType, text: str, flags: int, optimize: int) -> Place | None:
    """Return the place of the code in a text. IPython may have compiled each statement alone."""
    for by_statement in (False, True):
        try:
            found = index(text, code.co_filename, flags, optimize, by_statement=by_statement)
        except (SyntaxError, ValueError, RecursionError):
            continue
        if code in found.places:
            return found.places[code]
    return None


def _lines(filename: str) -> list[str]:
    before = "".join(linecache.getlines(filename))
    linecache.checkcache(filename)
    now = "".join(linecache.getlines(filename))
    return [text for text in dict.fromkeys((before, now)) if text]


def _is_the_only_one(module: str, path: str, shape: tuple[Any, ...], code: types.CodeType) -> bool:
    """Return whether an installed module has the code, and no other such function. Reads no source text."""
    try:
        return [each for each, name in _bytecode(module) if name == path and _shape(each) == shape] == [code]
    except Exception:  # a loader of some package
        return False


@functools.cache
def _bytecode(module: str) -> list[tuple[types.CodeType, str]]:
    loaded = sys.modules[module]
    code = loaded.__loader__.get_code(loaded.__name__)  # type: ignore[union-attr]
    return [(code, path_of(name)) for code, name in compiled(code)]


def _alike(module: str, path: str, shape: tuple[Any, ...]) -> list[types.CodeType]:
    try:
        functions = _library(module)
    except Exception:  # loading the function's globals reports the module
        return []
    return [code for code, name in functions if name == path and _shape(code) == shape]


def _in_library(place: _InLibrary, shape: tuple[Any, ...]) -> types.CodeType | None:
    codes = _alike(place.module, place.path, shape)
    return codes[place.position] if len(codes) == place.among else None


@functools.cache
def _library(name: str) -> list[tuple[types.CodeType, str]]:
    """Return the code of the functions of an installed module, with their paths."""
    module = importlib.import_module(name)
    file = module.__file__
    text = "".join(linecache.getlines(file, vars(module))) if file is not None else ""
    if text:
        found: Index = index(text, str(file))
        return [(found.codes[place], path) for path, places in found.paths.items() for place in places]
    # Some installations have only the bytecode of their own version.
    get_code: Any = getattr(module.__loader__, "get_code", None)
    return [] if get_code is None else list(compiled(get_code(name)))


# A pickle calls these functions when it is loaded. Their names are part of the format.


def _code_at(magic: bytes, data: bytes, place: Any, shape: tuple[Any, ...]) -> types.CodeType:
    if magic == _MAGIC:
        code: types.CodeType = marshal.loads(data)
        return code
    code_there = None
    if place is not None:
        if len(place) == len(_InText._fields):
            code_there = _in_text(_InText(*place))
            if code_there is not None and _shape(code_there) != tuple(shape):
                code_there = None
        else:
            code_there = _in_library(_InLibrary(*place), tuple(shape))
    return _stub(shape, place) if code_there is None else code_there


def _changed_code(magic: bytes, make: Any, parts: tuple[Any, ...], shape: tuple[Any, ...]) -> types.CodeType:
    code: types.CodeType = make(*parts) if magic == _MAGIC else _stub(shape, None)
    return code


def _stub(shape: tuple[Any, ...], place: Any) -> types.CodeType:
    """Return code that raises an error which names the function."""
    name, variables = shape[0], shape[-1]
    is_library = place is not None and len(place) == len(_InLibrary._fields)
    why = f"{name}() has no source text that this Python can compile. {_versions()}."
    if is_library:
        why = f"{name}() is not in this process's version of {place[0]}. Call it in the cell itself."
    names = [variable for variable in variables if variable.isidentifier()]
    own = name if name.isidentifier() else "function"
    lines = ["def around():", *(f"    {variable} = None" for variable in names)]
    lines += [f"    def {own}(*_, **__):", *(f"        {variable}" for variable in names)]
    lines += [f"        raise RuntimeError({why!r})", ""]
    return index("\n".join(lines), "<jupyter-dist>").codes[1, own]


def _function_at(
    code: types.CodeType, space: dict[str, Any], name: Any, defaults: Any, cells: Any, names: tuple[str, ...]
) -> Any:
    if code.co_freevars != names:
        by_name = dict(zip(names, cells or ()))
        empty = cloudpickle_parts.make_empty_cell
        cells = tuple(by_name[name] if name in by_name else empty() for name in code.co_freevars) or None
    return cloudpickle_parts.make_function(code, space, name, defaults, cells)

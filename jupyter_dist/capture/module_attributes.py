"""Attributes that the notebook has set on modules, such as `config.LR = 3`.

Ranks import the modules and set them.

There are two sources. First, the cells that have run show assignments to attributes of a module, a class or
an entry. Second, a constant may differ from the value in the module's file. If the file has not changed since
its import, the constant was changed by some code.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import sys
import types
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .notebook_history import CELLS, tree

__all__ = ["Attribute", "changed"]


class Attribute(NamedTuple):
    """A changed attribute. `path` is its name below the module, or the names through a class or an object."""

    module: str
    path: tuple[str, ...]
    value: Any


_CHANGES = "add append clear discard extend insert pop popitem remove reverse setdefault sort update".split()
_MAYBE = re.compile(
    r"\b([A-Za-z_]\w*)(?:\.\w+)+(?:\[[^\n]*\])?[^\n=()]*=(?!=)"
    r"|\b(?:setattr|delattr|del)[ (]+(\w+)"
    rf"|\b([A-Za-z_]\w*)(?:\.\w+)+\.(?:{'|'.join(_CHANGES)})\("
)
_NOT_SET_HERE = {"builtins", "IPython", "ipykernel", "jupyter_dist", "logging", "os", "sys", "warnings"}
"""Modules of which each rank has its own state, or whose settings are captured elsewhere."""
_LIBRARIES_OPTIONS = {("matplotlib", "rcParams"), ("pyplot", "rcParams"), ("pandas", "options")}
_MAKES_NAMES = re.compile(r"\b(?:globals|vars|exec|modules)\b")
_LITERALS = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (list, tuple, set, dict)
_LARGEST = 1000


def changed(
    texts: Sequence[str],
    namespace: Mapping[str, Any],
    wanted: Collection[str],
    is_own: Callable[[str], bool],
) -> list[Attribute]:
    """Return what was set on the `wanted` top-level modules and their submodules, each attribute once.

    `is_own` returns whether a top-level module is the user's. Of the modules' code, only comparisons of
    constants run.
    """
    found: dict[tuple[str, tuple[str, ...]], Any] = {}
    own = _loaded({name for name in wanted if is_own(name)})
    held = {id(value) for module in own.values() for value in vars(module).values()}
    roots = frozenset(
        name
        for name in frozenset().union(*map(_roots, texts))
        if isinstance(namespace.get(name), types.ModuleType | type) or id(namespace.get(name, held)) in held
    )
    targets = [target for text in texts if _roots(text) & roots for target in _targets(text)]
    for target in dict.fromkeys(targets):
        place = _place(target, namespace, own)
        if place is None or place[0].partition(".")[0] not in wanted:
            continue
        try:
            *owners, name = place[1]
            owner = functools.reduce(_attribute, owners, sys.modules[place[0]])
            value = _attribute(owner, name)
        except (AttributeError, KeyError):
            continue  # deleted since, or never set, for example in a function that has not run
        if not isinstance(value, types.ModuleType) and not _was_born_there(owner, name, value):
            found[place] = value
    for name, module in own.items():
        for constant, value in _differing(module):
            found.setdefault((name, (constant,)), value)
    return [Attribute(module, path, value) for (module, path), value in found.items()]


def _attribute(owner: Any, name: str) -> Any:
    """Return an attribute set on the owner itself.

    A class would also search its bases. A lazy module would import.
    """
    if isinstance(owner, types.ModuleType | type) and name not in vars(owner):
        raise AttributeError(name)
    return getattr(owner, name)


def _was_born_there(owner: Any, name: str, value: Any) -> bool:
    """Return whether a function or class is where it was defined.

    A rank has its own, which may be patched there.
    """
    if not isinstance(value, types.FunctionType | type):
        return False
    of_module = isinstance(owner, types.ModuleType)
    home = owner.__name__ if of_module else getattr(owner, "__module__", None)
    born = name if of_module else f"{getattr(owner, '__qualname__', '')}.{name}"
    return (value.__module__, value.__qualname__) == (home, born)


@functools.lru_cache(CELLS)
def _roots(text: str) -> frozenset[str]:
    """Return the names below which a cell may assign something.

    Parsing would take a hundred times as long.
    """
    return frozenset(match[1] or match[2] or match[3] for match in _MAYBE.finditer(text))


@functools.lru_cache(CELLS)
def _targets(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the dotted names that a cell assigns to, deletes or changes in place."""
    parsed = tree(text)
    return tuple(dict.fromkeys(_dotted(parsed))) if parsed is not None else ()


def _dotted(parsed: ast.AST) -> Iterator[tuple[str, ...]]:
    for node in ast.walk(parsed):
        name: tuple[str, ...] | None = None
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            name = _name(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _CHANGES:
                name = _name(node.func.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
            owner, attribute = _name(node.args[0]), node.args[1]
            if node.func.id in ("setattr", "delattr") and owner and isinstance(attribute, ast.Constant):
                name = (*owner, str(attribute.value))
        if name is not None and len(name) > 1:
            yield name


def _name(node: ast.AST) -> tuple[str, ...] | None:
    """Return `a.b[0].c` as a, b: a change inside an entry changes the entry's container."""
    parts: list[str] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
        elif isinstance(node, ast.Subscript):
            parts.clear()
        else:
            return None
        node = node.value
    return (node.id, *reversed(parts))


def _loaded(tops: Collection[str]) -> dict[str, types.ModuleType]:
    """Return the imported modules below these top-level ones.

    In a large notebook this takes a millisecond.
    """
    names = [name for name in tops if isinstance(sys.modules.get(name), types.ModuleType)]
    packages = tuple(f"{name}." for name in names if "__path__" in vars(sys.modules[name]))
    if packages:
        names += [name for name in list(sys.modules) if name.startswith(packages)]
    return {name: sys.modules[name] for name in names if type(sys.modules[name]) is types.ModuleType}


def _place(
    target: tuple[str, ...], namespace: Mapping[str, Any], own: Mapping[str, types.ModuleType]
) -> tuple[str, tuple[str, ...]] | None:
    """Return the module in which a cell's dotted name begins, and the rest of the name.

    None for other names.
    """
    root, *path = target
    owner = namespace.get(root)
    if isinstance(owner, type):  # after `from config import Options`, or `from pandas import DataFrame`
        path = [*owner.__qualname__.split("."), *path]
        owner = None if owner.__module__ == "__main__" else sys.modules.get(owner.__module__)
    elif owner is not None and not isinstance(owner, types.ModuleType):
        owner, path = _holder(owner, path, own)
    while path and isinstance(owner, types.ModuleType):
        inner = vars(owner).get(path[0])  # not getattr, which would import a lazy module
        if not isinstance(inner, types.ModuleType):
            break
        owner = inner
        del path[0]
    name = getattr(owner, "__name__", "")
    if not path or not isinstance(owner, types.ModuleType) or sys.modules.get(name) is not owner:
        return None
    if name.partition(".")[0] in _NOT_SET_HERE or (name.rpartition(".")[2], path[0]) in _LIBRARIES_OPTIONS:
        return None
    return name, tuple(path)


def _holder(
    value: Any, path: Sequence[str], own: Mapping[str, types.ModuleType]
) -> tuple[types.ModuleType | None, list[str]]:
    """Return the user's module that contains an object, as after `from config import options`."""
    for module in own.values():
        for name, held in vars(module).items():
            if held is value:
                return module, [name, *path]
    return None, []


def _differing(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield constants of a module that are new, or that differ from the value in its file."""
    source = _source_at_import(module)
    if source is None:
        return
    constants, names = _constants(source)
    others_are_new = "*" not in names and not _MAKES_NAMES.search(source)
    for name, value in list(vars(module).items()):
        if name.startswith("_") or (name in names and name not in constants):
            continue
        if isinstance(value, types.ModuleType) and f"{module.__name__}.{name}" in sys.modules:
            continue  # the import of a submodule set this attribute
        if name in constants:
            # A value that is not plain contains objects that no constant has, such as functions.
            same_kind = type(value) is type(constants[name])
            if not _same(value, constants[name]) if _is_plain(value) else same_kind:
                yield name, value
        elif others_are_new:
            yield name, value


def _source_at_import(module: types.ModuleType) -> str | None:
    """Return a module's source if the file is still the imported one.

    Its compiled file has the file's time and size.

    https://peps.python.org/pep-0552/: after the magic number and the flags, the source's time and size.
    """
    # Python 3.15 no longer has the module attribute `__cached__`.
    file, cached = vars(module).get("__file__") or "", getattr(module.__spec__, "cached", None) or ""
    try:
        about = os.stat(file)
        with open(cached, "rb") as compiled:
            head = compiled.read(16)
        when, size = (int.from_bytes(head[at : at + 4], "little") for at in (8, 12))
        as_imported = (int(about.st_mtime) & 0xFFFFFFFF, about.st_size & 0xFFFFFFFF) == (when, size)
        if head[4:8] != bytes(4) or not as_imported or not file.endswith(".py"):
            return None
        with open(file, encoding="utf-8") as text:
            return text.read()
    except (OSError, ValueError):
        return None


@functools.lru_cache(200)
def _constants(source: str) -> tuple[dict[str, Any], frozenset[str]]:
    """Return names to which a file assigns a constant exactly once, and all names that it binds."""
    parsed = tree(source)
    names: set[str] = set()
    constants: dict[str, Any] = {}
    bound: Counter[str] = Counter()
    if parsed is None:
        return {}, frozenset()
    for node in ast.walk(parsed):
        if isinstance(node, ast.Global):
            names.update(node.names)
            bound.update([*node.names, *node.names])  # the module changes its own state itself
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
            bound[node.id] += 1
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler):
            names.add(node.name or "")
    for statement in parsed.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target: ast.expr = statement.targets[0]
        elif isinstance(statement, ast.AnnAssign):
            target = statement.target
        else:
            continue
        if isinstance(target, ast.Name) and statement.value is not None:
            try:
                constants[target.id] = ast.literal_eval(statement.value)
            except (ValueError, TypeError, SyntaxError, RecursionError):
                constants.pop(target.id, None)
    # A name that is bound in several places has the value of the last assignment that ran.
    return {name: value for name, value in constants.items() if bound[name] == 1}, frozenset(names)


def _is_plain(value: Any, left: int = 5) -> bool:
    """Return whether a value is a constant, or a small container of constants."""
    if type(value) in _LITERALS:
        return True
    if type(value) not in _CONTAINERS or not left or len(value) > _LARGEST:
        return False
    items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    return all(_is_plain(item, left - 1) for item in items)


def _same(value: Any, constant: Any) -> bool:
    return type(value) is type(constant) and bool(
        value == constant or (value != value and constant != constant)
    )

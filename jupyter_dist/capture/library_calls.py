"""Calls of earlier cells that have changed a library, such as `AutoConfig.register("tiny", TinyConfig)`.

A rank repeats these calls before its cell, in the notebook's order. `call_rules.py` decides which calls. One
note names the calls that a rank could not repeat correctly. Only statements at the top level of cells count:
the text of a function does not show whether it was called.
"""

from __future__ import annotations

import ast
import functools
import re
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..worker.pickling.used_names import code_names
from . import call_rules
from .call_rules import Callee, Import
from .known_modules import KnownModules
from .notebook_history import CELLS, RanCell
from .ran_statements import Place, RanStatements, Statement, first_line

__all__ = ["Found", "search"]

_SHOWN = 3


@dataclass
class Found:
    """Calls to repeat, as `worker/settings/library_calls.py` reads them, and a note on the others."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _Repeat(NamedTuple):
    """Code that repeats a statement on a rank."""

    callees: list[Callee]
    code: str | None
    """None if a rank cannot repeat it correctly."""
    handle: str = ""
    """A name to which the statement has assigned the handle of a hook."""
    binds: str = ""
    """A name that stays bound to what the statement defines on the rank, such as an operator of torch."""


@functools.lru_cache(CELLS)
def _may_call(text: str) -> bool:
    return _MAYBE.search(text) is not None


def search(
    cells: Sequence[RanCell],
    namespace: Mapping[str, Any],
    *,
    own_cell: Sequence[ast.stmt],
    hidden: Collection[str],
    used: Collection[str],
    here: bool,
    is_own: Callable[[str], bool],
    modules_of: Callable[[dict[str, Any]], set[str] | None],
) -> Found:
    """Return the calls of earlier cells that the libraries of a distributed cell need.

    Args:
        own_cell: statements of the distributed cell. A call that is also there is left to the cell.
        hidden: names that are not captured.
        used: top-level modules that the cell uses. Calls of other libraries are left out.
        here: whether ranks can import what this process can. Then the libraries count that those in `used`
            use in turn.
        is_own: returns whether a top-level module is the user's.
        modules_of: returns the modules that values need for unpickling. None if they cannot be pickled.
    """
    found = Found()
    if not any(_may_call(cell.text) for cell in cells):
        return found
    search = _Search(RanStatements(cells), namespace, hidden, is_own)
    in_cell = frozenset().union(*map(_registering, own_cell))
    known = KnownModules(used, here, is_own)
    missed: dict[str, str] = {}
    for place, statement in search.candidates():
        repeat = search.repeat(statement)
        if repeat is None or not in_cell.isdisjoint(_registering(statement.node)):
            continue
        callee = repeat.callees[0]
        if all(map(call_rules.is_in_table, repeat.callees)) or not known.has(callee.library):
            continue
        values = None if repeat.code is None else search.values(place, repeat)
        needed = None if values is None else modules_of(values[0])
        if values is not None and needed is not None and all(map(known.has, needed)):
            about = {"where": statement.where, "shown": callee.shown, "handle": repeat.handle}
            if repeat.binds:
                about["binds"] = repeat.binds
                search.made[repeat.binds] = callee.library
            code = {"code": repeat.code, "file": f"<In[{statement.cell.number}]>"}
            found.calls.append({**about, **code, "names": values[0], "imported": values[1]})
        elif not _needs_no_note(callee, statement.node):
            missed[f"{statement.where}: {callee.shown}"] = ""
    if missed:
        found.notes.append(_note(list(missed)))
    return found


def _note(places: list[str]) -> str:
    listed = ", ".join(places[:_SHOWN])
    if len(places) > _SHOWN:
        listed += f" and {len(places) - _SHOWN} more"
    it = "it" if len(places) == 1 else "them"
    return (
        f"{listed} ran in the notebook and not on the ranks. "
        f"Write {it} in the cell if the training needs {it}"
    )


def _needs_no_note(callee: Callee, node: ast.stmt) -> bool:
    """Return whether a switch has a row in the table of settings, or stands in a block that may not run."""
    switch = callee.shown.partition("(")[0].rpartition(".")[2].startswith(("set_", "enable_", "disable_"))
    return switch and (call_rules.has_row(callee.library) or isinstance(node, _BLOCKS))


class _Search:
    """The statements of a notebook, and the judgement of each."""

    def __init__(
        self,
        ran: RanStatements,
        namespace: Mapping[str, Any],
        hidden: Collection[str],
        is_own: Callable[[str], bool],
    ) -> None:
        self._ran, self._namespace, self._hidden, self._is_own = ran, namespace, hidden, is_own
        self.made: dict[str, str] = {}
        """Names that code for the ranks binds, and the library of each value."""
        self._imported: dict[str, Import] = {}
        for _, statement in ran.with_any({"import"}):
            if isinstance(statement.node, ast.ImportFrom) and statement.node.module:
                for alias in statement.node.names:
                    self._imported[alias.asname or alias.name] = (statement.node.module, alias.name)

    def candidates(self) -> Iterator[tuple[Place, Statement]]:
        """Yield the statements of the cells that may call or set something of a library."""
        aliases = {name for name, (_, original) in self._imported.items() if _may_be(original)}
        return self._ran.with_any(aliases, call_rules.MAYBE, subscripted=self._imported.keys())

    def repeat(self, statement: Statement) -> _Repeat | None:
        """Return how a rank repeats a statement. None for a statement that calls none of the functions."""
        node = statement.node
        names = {self._imported[word][1] for word in statement.words & self._imported.keys()}
        if not (_sets_entry(node) or any(map(_may_be, names | statement.words))):
            return None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return self._decorated(node, statement.cell)
        callees = list(self._callees(node))
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        handle = target.id if isinstance(target, ast.Name) and target.id != "_" else ""
        active = self._is_active(handle) if handle else True
        if not callees or active is False:
            return None
        code = _padded(ast.unparse(node), node) if active and self._is_repeatable(node) else None
        return _Repeat(callees, code, handle)

    def values(self, place: Place, repeat: _Repeat) -> tuple[dict[str, Any], dict[str, Import]] | None:
        """Return the values of the names that the code reads, and the objects to import instead.

        None if a value is not the statement's any more.
        """
        assert repeat.code is not None
        names = code_names(_compiled(repeat.code))
        found: dict[str, Any] = {}
        imported: dict[str, Import] = {}
        for name in sorted(names.reads - names.writes - self.made.keys() | ({repeat.handle} - {""})):
            if name in self._namespace and name not in self._hidden:
                if self._was_replaced(name, place):
                    return None
                value = self._namespace[name]
                if name in self._imported and call_rules.is_from(value, self._imported[name]):
                    imported[name] = self._imported[name]
                else:
                    found[name] = value
            elif name not in _BUILTINS:
                return None
        return found, imported

    def _was_replaced(self, name: str, place: Place) -> bool:
        """Return whether a later statement has given a variable another value.

        A function or a class that was defined anew is the one to register.
        """
        bound = self._ran.bindings(name)
        before = [node for at, node in bound if at <= place]
        last = bound[-1][1] if bound else None
        if not before or last is before[-1] or isinstance(last, _DEFINITIONS):
            return False
        assert last is not None
        return ast.dump(last) != ast.dump(before[-1])

    def _callee(self, node: ast.AST) -> Callee | None:
        names = call_rules.dotted(node) or [""]
        if names[0] in self.made and names[-1].startswith("register_"):
            return Callee(self.made[names[0]], f"{ast.unparse(node)}(...)")
        return call_rules.resolve(node, self._namespace, self._imported, self._is_own)

    def _callees(self, node: ast.stmt) -> Iterator[Callee]:
        """Yield the functions of libraries that the statement calls for their effect."""
        for inner in _effects(node):
            if isinstance(inner, ast.Call):
                callee = self._callee(inner.func)
                if callee is not None and call_rules.changes_argument(node, inner, self._namespace):
                    continue
            else:
                callee = call_rules.resolve_container(
                    inner.value, self._namespace, self._imported, self._is_own
                )
            if callee is not None:
                yield callee

    def _is_active(self, name: str) -> bool | None:
        """Return whether a name has the handle of a hook that was not removed. None without a handle."""
        handle = self._namespace.get(name)
        hooks = getattr(handle, "hooks_dict_ref", None)
        return getattr(handle, "id", None) in (hooks() or ()) if callable(hooks) else None

    def _is_repeatable(self, node: ast.stmt) -> bool:
        """Return whether a statement consists of calls that may be repeated, with plain arguments."""

        def plain(*nodes: ast.AST | None) -> bool:
            return all(item is None or call_rules.is_plain(item, self._namespace) for item in nodes)

        if isinstance(node, ast.Pass):
            return True
        if isinstance(node, ast.For):
            return plain(node.iter) and all(map(self._is_repeatable, [*node.body, *node.orelse]))
        if isinstance(node, ast.If):
            return plain(node.test) and all(map(self._is_repeatable, [*node.body, *node.orelse]))
        if isinstance(node, ast.Try):
            blocks = [*node.body, *node.orelse, *node.finalbody]
            blocks += [statement for handler in node.handlers for statement in handler.body]
            return all(map(self._is_repeatable, blocks))
        if not any(self._callees(node)):
            return False
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            return plain(node.targets[0].slice, node.value)
        named = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        call = node.value if isinstance(node, ast.Expr | ast.Assign) else None
        if not isinstance(call, ast.Call) or not (named or isinstance(node, ast.Expr)):
            return False
        if self._callee(call.func) is not None:
            return plain(*call.args, *call.keywords)
        inner = call.func  # a decorator that is called as a function: register("name")(function)
        return isinstance(inner, ast.Call) and plain(*inner.args, *inner.keywords, *call.args, *call.keywords)

    def _decorated(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, cell: RanCell
    ) -> _Repeat | None:
        found = [(item, self._callee(_function(item))) for item in node.decorator_list]
        callees = [callee for _, callee in found if callee is not None]
        if not callees:
            return None
        plain = all(
            call_rules.is_plain(argument, self._namespace)
            for item, callee in found
            if callee is not None and isinstance(item, ast.Call)
            for argument in (*item.args, *item.keywords)
        )
        if not plain:
            return _Repeat(callees, None)
        if self._is_product(node):
            # The rank registers the object that was sent, and not a second one like it.
            calls = [
                ast.Expr(ast.Call(item, [ast.Name(node.name, ast.Load())], []))
                for item, callee in reversed(found)
                if callee is not None
            ]
            return _Repeat(callees, _padded("; ".join(map(ast.unparse, calls)), node))
        if len(callees) < len(found) or isinstance(node, ast.ClassDef):
            return _Repeat(callees, None)
        # Its name has another value now, as with `def _`, or the decorator has made an object of the library.
        # So the rank defines the function again.
        first = first_line(node)
        lines = cell.text.splitlines()[first - 1 : node.end_lineno]
        home = str(type(self._namespace.get(node.name)).__module__).partition(".")[0]
        binds = node.name if home == callees[0].library and node.name not in self._hidden else ""
        return _Repeat(callees, "\n" * (first - 1) + "\n".join(lines), binds=binds)

    def _is_product(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
        """Return whether the name of a definition still has what this definition has made."""
        value = self._namespace.get(node.name)
        if node.name in self._hidden or getattr(value, "__module__", None) != "__main__":
            return False
        if isinstance(node, ast.ClassDef):
            return isinstance(value, type)
        line = first_line(node)
        code = getattr(value, "__code__", None)
        return isinstance(code, types.CodeType) and (code.co_name, code.co_firstlineno) == (node.name, line)


_MAYBE = re.compile(rf"{call_rules.MAYBE.pattern}|^\w+\[.+\] *=(?!=)", re.MULTILINE)
_BLOCKS = (ast.If, ast.For, ast.While, ast.Try, ast.With)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
_BUILTINS = frozenset(dir(__builtins__) if isinstance(__builtins__, types.ModuleType) else __builtins__)


@functools.lru_cache(10_000)
def _may_be(name: str) -> bool:
    return call_rules.MAYBE.fullmatch(name) is not None


def _sets_entry(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)


def _function(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _effects(node: ast.stmt) -> Iterator[ast.Call | ast.Subscript]:
    """Yield what a statement calls or sets at its top level, or in the blocks of an if, a loop or a try."""
    if isinstance(node, ast.Expr | ast.Assign):
        if isinstance(node.value, ast.Call):
            yield node.value
            if isinstance(node.value.func, ast.Call):
                yield node.value.func
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            yield node.targets[0]
    elif isinstance(node, _BLOCKS):
        for inner in ast.iter_child_nodes(node):
            blocks: Iterable[ast.AST] = inner.body if isinstance(inner, ast.ExceptHandler) else [inner]
            for statement in blocks:
                if isinstance(statement, ast.stmt):
                    yield from _effects(statement)


@functools.lru_cache(1000)
def _registering(node: ast.stmt) -> frozenset[str]:
    """Return calls and decorators with a name that may register something, as text."""
    found = set()
    for inner in ast.walk(node):
        for item in [inner] if isinstance(inner, ast.Call) else getattr(inner, "decorator_list", []):
            names = call_rules.dotted(_function(item))
            if names is not None and call_rules.MAYBE.fullmatch(names[-1]):
                found.add(ast.unparse(item))
    return frozenset(found)


@functools.lru_cache(1000)
def _compiled(code: str) -> types.CodeType:
    return compile(code, "<cell>", "exec", dont_inherit=True)


def _padded(code: str, node: ast.stmt) -> str:
    """Return code with the line number that it has in its cell, for tracebacks."""
    return "\n" * (first_line(node) - 1) + code

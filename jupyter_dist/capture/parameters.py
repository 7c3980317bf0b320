"""Parameters of a run: the small values that a cell uses, recorded without a line of code.

There are four sources, in order of priority:

1. literals that the cell passes to functions and classes of the notebook (`train(epochs=3)`),
2. literals that it assigns,
3. variables that it reads,
4. variables that its functions read.

Numbers, flags and short texts are recorded. A value in a dict, a dataclass or a namespace becomes
`config.lr`. A value that looks like a secret is never recorded (text/confidential.py). The number of values
is limited.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..text.confidential import is_confidential
from ..worker.pickling.annotation_values import signature

__all__ = ["Value", "of_call", "of_cell"]

Value = bool | int | float | str

_MOST = 60
_MOST_INSIDE = 30
_NAME, _TEXT = 60, 100
_EXACT = 1 << 53
"""A browser's numbers are exact only below this limit. Larger integers are names rather than counts."""
_CLOSED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def of_cell(
    body: Sequence[ast.stmt], values: Mapping[str, Any], inner: Mapping[str, Any]
) -> dict[str, Value]:
    """Return the parameters of a cell.

    Args:
        values: the notebook's names that the cell reads, with their values.
        inner: the names that its functions read, with their values.
    """
    found = _Found()
    own = list(_statements(body))
    for name, value in _arguments(own, values):
        found.add(name, value, several=True)
    for name, value in _assigned(own):
        found.add(name, value)
    found.take(values)
    found.take(inner)
    return found.values


def of_call(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], inner: Mapping[str, Any]
) -> dict[str, Value]:
    """Return the parameters of a call: its arguments, and the defaults of omitted arguments."""
    found = _Found()
    try:
        bound = signature(fn).bind(*args, **kwargs)
        bound.apply_defaults()
        named = {name: bound.arguments[name] for name in bound.signature.parameters}
        for name, one in bound.signature.parameters.items():
            if one.kind is inspect.Parameter.VAR_KEYWORD:
                named |= named.pop(name)
    except (TypeError, ValueError):
        named = dict(kwargs)  # a builtin without a signature
    found.take(named)
    found.take(inner)
    return found.values


class _Found:
    """Parameters so far. The first value of a name stays."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}

    def take(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if name.startswith("_"):
                continue
            if not self.add(name, value) and not is_confidential(name, ""):
                for key, inside in _inside(value):
                    self.add(f"{name}.{key}", inside)

    def add(self, name: str, value: object, *, several: bool = False) -> bool:
        """Add a value if it is small. Returns whether it is small.

        `several`: the name may already have a value, from another call.
        """
        small = _small(value)
        if small is None:
            return False
        if len(name) > _NAME or is_confidential(name, small):
            return True
        known = self.values.get(name)
        if known is None:
            if len(self.values) < _MOST:
                self.values[name] = small
        elif several and str(small) not in str(known).split(", "):
            both = f"{known}, {small}"
            self.values[name] = both if len(both) <= _TEXT else known
        return True


def _small(value: object) -> Value | None:
    if isinstance(value, bool):
        return value
    kind = type(value)
    if kind.__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        if kind.__name__ == "ndarray":
            return None
        text, value = str(value), value.item()
        if isinstance(value, float):
            value = float(text)  # a 32-bit 0.1 is 0.1 to the person who wrote it
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < _EXACT else None
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, str) and len(value) <= _TEXT and value.isprintable() and value.strip():
        return str(value)
    return None


def _inside(value: object) -> Iterator[tuple[str, Any]]:
    """Yield the values in a configuration, one level deep. Runs no code of the value's own."""
    held: Mapping[Any, Any] = getattr(value, "__dict__", {})
    if type(value) is dict:
        held = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = {one.name: held.get(one.name) for one in dataclasses.fields(value)}
    elif type(value).__name__ not in ("SimpleNamespace", "Namespace"):
        held = {}
    if len(held) <= _MOST_INSIDE:
        yield from (
            (key, inside) for key, inside in held.items() if isinstance(key, str) and key.isidentifier()
        )


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of a cell that run with it, without the bodies of its functions."""
    left = list(body)[::-1]
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, _CLOSED):
            left += _children(node)[::-1]


def _children(node: ast.AST) -> list[ast.AST]:
    """Return the child nodes without contexts such as `ast.Load`, in half the time of `iter_child_nodes`."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
            found.append(value)
    return found


def _assigned(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, Any]]:
    last: dict[str, Any] = {}
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and (value := _literal(node.value)) is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            last |= {target.id: value for target in targets if isinstance(target, ast.Name)}
    yield from ((name, value) for name, value in last.items() if not name.startswith("_"))


def _arguments(nodes: Sequence[ast.AST], values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield literals that the cell passes to what the notebook defines.

    A literal for a library, such as `tqdm(rows, leave=False)`, rarely describes a training.
    """
    made = {
        node.name: node
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        called = getattr(node.func, "id", "")
        if called not in made and not _is_own(node.func, values):
            continue
        for name, one in zip(_places(called, made, values), node.args, strict=False):
            if (value := _literal(one)) is not None:
                yield name, value
        for keyword in node.keywords:
            if keyword.arg and (value := _literal(keyword.value)) is not None:
                yield keyword.arg, value


def _is_own(called: ast.expr, values: Mapping[str, Any]) -> bool:
    """Return whether the notebook defines a called function, class or method."""
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        called = called.value
    value = values.get(called.id) if isinstance(called, ast.Name) else None
    if value is None:
        return False
    if inspect.isfunction(value) or isinstance(value, type):
        return value.__module__ == "__main__"
    # Runs no code of the value's own.
    return bool(inspect.getattr_static(value, "__module__", None) == "__main__")


def _places(called: str, made: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """Return the names of a function's positional parameters, if the notebook defines it."""
    if isinstance(made.get(called), ast.FunctionDef | ast.AsyncFunctionDef):
        own = made[called].args
        return [one.arg for one in (*own.posonlyargs, *own.args)]
    value = values.get(called)
    code = getattr(value, "__code__", None)
    if inspect.isfunction(value) and value.__module__ == "__main__" and code is not None:
        return list(code.co_varnames[: code.co_argcount])
    return []


def _literal(node: ast.AST | None) -> Any:
    """Return a literal's value. None for anything else, and for None itself."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _literal(node.operand)
        return -inner if isinstance(inner, int | float) and not isinstance(inner, bool) else None
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str):
        return node.value
    return None

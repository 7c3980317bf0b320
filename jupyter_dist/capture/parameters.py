"""The small values that a cell uses, recorded as the run's parameters without a line of code.

They come from where a notebook has them, the nearest first: literals that the cell gives to calls
(`train(epochs=3)`), literals that it assigns, variables that it reads, variables that its functions read.
Numbers, flags and short texts are taken, and those in a dict, a dataclass or a namespace as `config.lr`.
Nothing is taken that looks like a secret (text/confidential.py), and there are bounds to how much is.
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
"""A browser's numbers hold no larger whole ones, and these name something rather than count."""
_HOW_IT_LOOKS = {
    *(
        "end",
        "sep",
        "flush",
        "file",
        "desc",
        "keepdim",
        "keepdims",
        "dim",
        "axis",
        "exist_ok",
        "parents",
        "mode",
    ),
    *(
        "encoding",
        "errors",
        "indent",
        "inplace",
        "non_blocking",
        "verbose",
        "disable",
        "label",
        "title",
        "step",
    ),
}
"""Keywords that say how something is written or shaped, and nothing about a training."""
_SAYS_NOTHING = {"print", "display", "open", "log", "getLogger", "range"}
_CLOSED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def of_cell(
    body: Sequence[ast.stmt], values: Mapping[str, Any], inner: Mapping[str, Any]
) -> dict[str, Value]:
    """The parameters of a cell. `values`: the names of the notebook that it reads, as they are;
    `inner`: those that functions read that it uses."""
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
    """The parameters of a call: its arguments, with the defaults of those that it leaves out."""
    found = _Found()
    try:
        bound = signature(fn).bind(*args, **kwargs)
        bound.apply_defaults()
        named = {name: bound.arguments[name] for name in bound.signature.parameters}
        for name, one in bound.signature.parameters.items():
            if one.kind is inspect.Parameter.VAR_KEYWORD:
                named |= named.pop(name)
    except (TypeError, ValueError):
        named = dict(kwargs)  # a builtin that does not tell
    found.take(named)
    found.take(inner)
    return found.values


class _Found:
    """Parameters so far. What comes first stays."""

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
        """Take a value if it is a small one, and say whether it is. `several`: it may have been given before,
        to another call."""
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
            value = float(text)  # 0.1 of 32 bits is 0.1 to whoever wrote it
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
    """What a configuration holds, one level deep. Runs no code of the value's own."""
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
    """The nodes of a cell that run with it, without the insides of its functions."""
    left = list(body)[::-1]
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, _CLOSED):
            left += list(ast.iter_child_nodes(node))[::-1]


def _assigned(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, Any]]:
    last: dict[str, Any] = {}
    for node in nodes:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and (value := _literal(node.value)) is not None:
            last |= {target.id: value for target in targets if isinstance(target, ast.Name)}
    yield from ((name, value) for name, value in last.items() if not name.startswith("_"))


def _arguments(nodes: Sequence[ast.AST], values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What literals the cell gives to calls: by keyword, and by place to functions that one can look into."""
    made = {}
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            made[node.name] = node
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        called = getattr(node.func, "id", "")
        if (called or getattr(node.func, "attr", "")) in _SAYS_NOTHING:
            continue
        for name, one in zip(_places(called, made, values), node.args, strict=False):
            if (value := _literal(one)) is not None:
                yield name, value
        for keyword in node.keywords:
            value = _literal(keyword.value)
            if keyword.arg and keyword.arg not in _HOW_IT_LOOKS and value is not None:
                yield keyword.arg, value


def _places(called: str, made: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """The names of a function's parameters by place, where it is one of the cell's or the notebook's own."""
    if called in made:
        own = made[called].args
        return [one.arg for one in (*own.posonlyargs, *own.args)]
    value = values.get(called)
    code = getattr(value, "__code__", None)
    if inspect.isfunction(value) and value.__module__ == "__main__" and code is not None:
        return list(code.co_varnames[: code.co_argcount])
    return []


def _literal(node: ast.AST | None) -> Any:
    """A literal's value; None for all else, and for None."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _literal(node.operand)
        return -inner if isinstance(inner, int | float) and not isinstance(inner, bool) else None
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str):
        return node.value
    return None

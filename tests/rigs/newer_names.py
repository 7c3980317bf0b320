"""Print what files use and the Python that runs this program lacks: one line each. It imports no package.

    python3.9 tests/rigs/newer_names.py FILE...

It looks at names of the standard library, at keywords of its functions, and at `isinstance(x, A | B)`.
Code is left out if it asks for the version of Python itself.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import inspect
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["Use", "main"]

_LIBRARY = Path(sysconfig.get_path("stdlib"))
_ASKING = ("version_info", "TYPE_CHECKING", "hasattr")
_WITHOUT_KEYWORDS = {"zip"}
"""Functions that take no keywords here, and of which `inspect` knows nothing."""


def _module(name: str) -> ModuleType | None:
    """The module of the standard library; None for all others."""
    try:
        spec = importlib.util.find_spec(name.partition(".")[0])
        origin = getattr(spec, "origin", None) or ""
        own = origin in ("built-in", "frozen") or _LIBRARY in Path(origin).parents
        own = own and "-packages" not in origin
        return importlib.import_module(name) if own else None
    except ImportError:
        return None


class Use(ast.NodeVisitor):
    """The uses of the standard library in one file."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = dict(vars(builtins))
        self.lacking: list[tuple[int, str]] = []

    def note(self, node: Any, what: str) -> None:
        self.lacking.append((node.lineno, what))

    def visit_If(self, node: Any) -> None:
        if not any(word in ast.dump(node.test) for word in _ASKING):
            self.generic_visit(node)

    visit_IfExp = visit_If

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            module = _module(alias.name)
            if module is not None:
                top = alias.name if alias.asname else alias.name.partition(".")[0]
                self.known[alias.asname or top] = importlib.import_module(top)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = _module(node.module) if node.level == 0 and node.module else None
        for alias in node.names if module is not None else ():
            found = getattr(module, alias.name, None) or _module(f"{node.module}.{alias.name}")
            if found is None and not hasattr(module, alias.name):
                self.note(node, f"{node.module}.{alias.name}")
            self.known[alias.asname or alias.name] = found

    def found(self, node: ast.expr) -> Any:
        """The object of the standard library that an expression is, or None."""
        if isinstance(node, ast.Name):
            return self.known.get(node.id)
        if isinstance(node, ast.Attribute):
            return getattr(self.found(node.value), node.attr, None)
        return None

    def visit_Attribute(self, node: ast.Attribute) -> None:
        owner = self.found(node.value)
        read = isinstance(node.ctx, ast.Load)
        if read and inspect.ismodule(owner) and not hasattr(owner, node.attr):
            name = f"{owner.__name__}.{node.attr}"
            if _module(name) is None:
                self.note(node, name)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        function = self.found(node.func)
        name = getattr(function, "__name__", "")
        if name in ("isinstance", "issubclass") and isinstance(node.args[-1], ast.BinOp):
            self.note(node, f"{name}(…, A | B)")
        try:
            takes = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            if name not in _WITHOUT_KEYWORDS:
                return
            takes = []
        if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in takes):
            names = {parameter.name for parameter in takes}
            for keyword in node.keywords:
                if keyword.arg is not None and keyword.arg not in names:
                    self.note(node, f"{name}({keyword.arg}=)")


def main(paths: Iterable[str]) -> None:
    for path in paths:
        use = Use()
        use.visit(ast.parse(Path(path).read_text("utf-8"), path))
        for line, what in use.lacking:
            print(f"{path}:{line}: {what}")


if __name__ == "__main__":
    main(sys.argv[1:])

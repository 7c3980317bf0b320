"""Which modules of the package and of the tests import which, lazy imports included, read from their text."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

__all__ = ["MODULES", "ROOT", "TESTS", "closure", "imports"]

ROOT = Path(__file__).resolve().parents[2]


def _modules(folder: Path, root: Path) -> dict[str, Path]:
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(folder.rglob("*.py"))
    }


MODULES = _modules(ROOT / "jupyter_dist", ROOT)
"""Files of the package by their modules' names."""
TESTS = _modules(ROOT / "tests", ROOT)
"""Files of the tests by their modules' names."""


def imports(path: Path, *, everywhere: bool, typing: bool = False) -> Iterator[str]:
    """Absolute names of the modules that a file imports.

    `everywhere` includes the ones inside of functions, which run only when the function does; `typing` those
    for type checkers alone.
    """
    tree = ast.parse(path.read_text())
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if not typing and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes.extend(node.orelse)
            continue
        if not everywhere and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _imported_from(node, path)
        nodes.extend(ast.iter_child_nodes(node))


def _imported_from(node: ast.ImportFrom, path: Path) -> Iterator[str]:
    base = node.module or ""
    if node.level:
        folder = path.parents[node.level - 1].relative_to(ROOT)
        base = ".".join([*folder.parts, *filter(None, [node.module])])
    for alias in node.names:
        name = f"{base}.{alias.name}"
        yield name if name in MODULES or name in TESTS else base


@cache
def _imported(path: Path) -> tuple[Path, ...]:
    """Files of ours that a file imports, with the packages that they are in.

    The package's own `__init__` is left out: everybody imports it, and it imports all that people type.
    """
    found = set()
    for name in imports(path, everywhere=True):
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            module = ".".join(parts[:end])
            if module != "jupyter_dist" and (file := MODULES.get(module) or TESTS.get(module)):
                found.add(file)
    return tuple(found)


def closure(paths: Iterable[Path]) -> set[Path]:
    """These files and all that they import, directly or through others."""
    found: set[Path] = set()
    left = list(paths)
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left.extend(_imported(path))
    return found

"""Check of a cell's source before anything starts, and search for the notebook names that it needs."""

from __future__ import annotations

import ast
import functools
import shlex
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from ..errors import CaptureError
from ..worker.pickling.source_index import future_flags
from ..worker.pickling.used_names import statement_names

__all__ = ["Cell", "cell_flags", "parse"]


@dataclass(frozen=True)
class Cell:
    """A cell that compiles: plain Python, with the user's line numbers."""

    source: str
    filename: str
    flags: int
    """Compiler flags."""
    reads: frozenset[str]
    """Global names that the cell may read before it has certainly bound them itself."""
    optional: frozenset[str]
    """Those of `reads` that the cell may bind itself before it reads them."""
    writes: frozenset[str]
    """Global names that the cell binds."""
    assigns: frozenset[str]
    """Those of `writes` that the cell binds if it runs to its end: outside of branches and loops."""
    imports: frozenset[str]
    words: frozenset[str]
    texts: frozenset[str]
    """Words in the strings of the cell."""
    body: tuple[ast.stmt, ...] = ()
    """Parsed statements."""
    bound_before: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """For each of `reads`, the names that the cell has certainly bound before it reads this name."""


def cell_flags(flags: int) -> int:
    """Return the flags with which ranks compile a cell. `flags`: of the notebook's compiler."""
    return future_flags(flags) | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


@functools.lru_cache(4)
def parse(source: str, label: str, flags: int = 0) -> Cell:
    """Check a cell and find its names. `flags` are a compiler's, with the future statements of earlier cells.

    Raises CaptureError for a syntax error, and for lines that only IPython's shell can run.

    Nobody may change the result, because a session's cell is parsed for its names and again for its payload.
    """
    flags = cell_flags(flags)
    filename = f"<{label}>"
    parsed = _parse(source, filename, flags)
    if isinstance(parsed, SyntaxError):
        transformed = _transform(source)
        if transformed is None:
            raise CaptureError(_describe(parsed, source, label))
        plain = _parse(transformed, filename, flags)
        if isinstance(plain, SyntaxError):
            raise CaptureError(_describe(plain, transformed, label))
        _refuse_shell(plain[0], transformed, source, label)
        source, parsed = transformed, plain
    tree, code = parsed
    _refuse_shell(tree, source, source, label)
    scan = _Scan(filename, flags)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scan.block(tree.body, set())
        names = statement_names(code)
    reads_all = bool(names.words & _OF_NAMESPACE) and _reads_namespace(tree)
    optional = (scan.reads & names.writes) - scan.needed
    return Cell(
        source,
        filename,
        flags,
        frozenset(scan.reads | ({"globals"} if reads_all else set())),
        frozenset(optional),
        frozenset(names.writes),
        _surely_assigned(tree),
        names.imports,
        names.words,
        names.texts,
        tuple(tree.body),
        scan.bound_before,
    )


def _surely_assigned(tree: ast.Module) -> frozenset[str]:
    found: set[str] = set()
    waiting: list[ast.AST] = [*tree.body]
    while waiting:
        each = waiting.pop()
        if isinstance(each, ast.Name):
            found.add(each.id)
        elif isinstance(each, ast.Assign):
            waiting += each.targets
        elif isinstance(each, ast.AugAssign) or (isinstance(each, ast.AnnAssign) and each.value is not None):
            waiting.append(each.target)
        elif isinstance(each, ast.Tuple | ast.List):
            waiting += each.elts
        elif isinstance(each, ast.Starred):
            waiting.append(each.value)
        elif isinstance(each, ast.With | ast.AsyncWith):
            waiting += [] if _may_end_early(each) else each.body
            waiting += [item.optional_vars for item in each.items if item.optional_vars]
        elif isinstance(each, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in each.names}
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(each.name)
    return frozenset(found)


def _may_end_early(node: ast.With | ast.AsyncWith) -> bool:
    """Return whether a block may end after any statement without an error, as below `contextlib.suppress`."""
    called = [item.context_expr.func for item in node.items if isinstance(item.context_expr, ast.Call)]
    return any("suppress" in (getattr(each, "id", ""), getattr(each, "attr", "")) for each in called)


def _reads_namespace(tree: ast.Module) -> bool:
    """Return whether `vars()`, `locals()` or `dir()` may return what `globals()` does."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _OF_NAMESPACE
        and not node.args
        for node in ast.walk(tree)
    )


_OF_NAMESPACE = frozenset(("vars", "locals", "dir"))


def _parse(source: str, filename: str, flags: int) -> tuple[ast.Module, CodeType] | SyntaxError:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the rank shows these warnings when it compiles the cell
            tree = ast.parse(source, filename)
            try:
                return tree, compile(tree, filename, "exec", flags, dont_inherit=True, optimize=0)
            except SyntaxError:
                compile(source, filename, "exec", flags, dont_inherit=True)  # this error has the line's text
                raise
    except SyntaxError as error:
        return error
    except ValueError as error:  # null bytes, lone surrogates
        return SyntaxError(str(error), (filename, 1, None, None))
    except (RecursionError, MemoryError):
        return SyntaxError("the code is nested too deeply", (filename, 1, None, None))


def _transform(source: str) -> str | None:
    """Return the cell as IPython passes it to Python. None if IPython cannot convert it."""
    try:
        from IPython.core.inputtransformer2 import TransformerManager
    except ImportError:
        return None
    try:
        text: str = TransformerManager().transform_cell(source)
    except (SyntaxError, ValueError):
        return None
    lines = source.splitlines()
    blank = next((i for i, line in enumerate(lines) if line.strip()), len(lines))
    return "\n" * blank + text  # IPython drops empty first lines, but tracebacks count them


def _describe(error: SyntaxError, source: str, label: str) -> str:
    number = error.lineno or 1
    lines = source.split("\n")
    text = f"{label}, line {number}: {error.msg}"
    if 1 <= number <= len(lines) and lines[number - 1].strip():
        line = lines[number - 1]
        bare = line.lstrip()
        text += f"\n    {bare.rstrip()}"
        if error.offset:
            column = max(0, error.offset - 1 - (len(line) - len(bare)))
            wide = 1
            if error.end_lineno == number and error.end_offset and error.end_offset > error.offset:
                wide = error.end_offset - error.offset
            text += "\n    " + " " * column + "^" * wide
    return f"{text}\nNothing was started."


def _refuse_shell(tree: ast.Module, text: str, source: str, label: str) -> None:
    """Raise CaptureError for the first line that needs IPython's shell, which a rank does not have.

    `text`: of which `tree` was parsed. `source`: the cell as the user wrote it.
    """
    if "get_ipython" not in text:
        return
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "get_ipython"]
    if not calls:
        return
    first = min(calls, key=lambda node: (node.lineno, node.col_offset))
    lines = source.split("\n")
    line = lines[first.lineno - 1].strip() if first.lineno <= len(lines) else ""
    raise CaptureError(f"{label}, line {first.lineno}: {line}\n{_instead(line)}\nNothing was started.")


def _instead(line: str) -> str:
    """Return what to write instead of a line of IPython syntax."""
    head, assigned, command = line.partition("=")
    if assigned and head.strip().isidentifier() and command.strip()[:1] in ("!", "%"):
        target, line = f"{head.strip()} = ", command.strip()
    else:
        target = ""
    no_shell = "A rank has no IPython shell"
    if line.startswith("!"):
        call = f"{target}subprocess.run({_argv(line.lstrip('!').strip())}"
        call += ", capture_output=True, text=True, check=True).stdout" if target else ", check=True)"
        return f"{no_shell}. Run the command in a cell of its own, or on every rank with\n    {call}"
    if line.split()[:1] in (["%%time"], ["%%capture"]):
        return f"{no_shell}: write this line above the line with %%distribute."
    if line.startswith("%%"):
        return f"{no_shell}: give this cell magic a cell of its own."
    if line.startswith("%"):
        return f"{no_shell}: run {line.split()[0]} in a cell of its own, or leave it out here."
    if line.startswith("?") or line.endswith("?"):
        return f"{no_shell}: ask in a cell of its own, or use print({line.strip('? ')}.__doc__)."
    return f"{no_shell}: get_ipython() works in the notebook only. Leave it out of this cell."


def _argv(command: str) -> str:
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if not words or set(command) & set("|&;<>$`*?{}~()"):
        words = ["bash", "-c", command]
    return repr(words)


class _Scan:
    """Search for names that statements read before they have certainly bound them.

    A name bound in a branch, in a loop or after a possible exception is not certain. A function's body counts
    as read at the function's definition.
    """

    def __init__(self, filename: str, flags: int) -> None:
        self._filename = filename
        self._flags = flags
        self._seen_bound: set[str] = set()
        self._in_branch = 0
        self.reads: set[str] = set()
        self.bound_before: dict[str, frozenset[str]] = {}
        self.needed: set[str] = set()
        """Names that are certainly read before any statement can have bound them."""

    def block(self, statements: Iterable[ast.stmt], bound: set[str]) -> set[str]:
        """Scan statements. Returns the names certainly bound after them. Changes `bound`."""
        for statement in statements:
            self._statement(statement, bound)
        return bound

    def _branch(self, statements: Iterable[ast.stmt], bound: set[str]) -> set[str]:
        """Scan statements that may not run. Does not change `bound`."""
        self._in_branch += 1
        after = self.block(statements, set(bound))
        self._in_branch -= 1
        return after

    def _statement(self, node: ast.stmt, bound: set[str]) -> None:
        if isinstance(node, ast.If):
            self._expression(node.test, bound)
            bound |= self._branch(node.body, bound) & self._branch(node.orelse, bound)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self._expression(node.iter, bound)
            inside = set(bound)
            self._bind(node.target, inside)
            self._branch(node.body, inside)
            self._branch(node.orelse, bound)
        elif isinstance(node, ast.While):
            self._expression(node.test, bound)
            self._branch(node.body, bound)
            self._branch(node.orelse, bound)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                self._expression(item.context_expr, bound)
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, bound)
            if _may_end_early(node):
                self._branch(node.body, bound)
            else:
                self.block(node.body, bound)
        elif isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
            self._try(node, bound)
        elif not isinstance(node, ast.Pass | ast.Break | ast.Continue):
            # Compiled inside a loop, because the cases of a `match` may contain a `break`.
            if isinstance(node, ast.Match):
                node = ast.fix_missing_locations(ast.While(ast.Constant(True), [node], []))
            self._take(ast.Module([node], []), "exec", bound)
            self._bound_by(node, bound)

    def _try(self, node: Any, bound: set[str]) -> None:
        after = self._branch(node.orelse, self._branch(node.body, bound))
        for handler in node.handlers:
            if handler.type is not None:
                self._expression(handler.type, bound)
            named = {handler.name} if handler.name else set()
            handled = self._branch(handler.body, bound | named) - named
            if not isinstance(handler.body[-1], ast.Raise | ast.Break | ast.Continue):
                after &= handled
        bound |= after | self._branch(node.finalbody, bound)

    def _bind(self, target: ast.expr, bound: set[str]) -> None:
        assignment = ast.Assign([target], ast.Constant(None))
        self._statement(ast.fix_missing_locations(assignment), bound)

    def _expression(self, node: ast.expr, bound: set[str]) -> None:
        self._take(ast.Expression(node), "eval", bound)

    def _take(self, tree: ast.Module | ast.Expression, mode: str, bound: set[str]) -> None:
        code = compile(tree, self._filename, mode, self._flags, True, 0)
        names = statement_names(code)
        self.reads |= names.reads - bound
        for name in names.reads - bound:
            self.bound_before[name] = self.bound_before.get(name, frozenset(bound)) & bound
        if not self._in_branch:
            self.needed |= statement_names(code, later=False).reads - bound - self._seen_bound
        self._seen_bound |= names.writes

    def _bound_by(self, node: ast.stmt, bound: set[str]) -> None:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Delete):
            bound -= {target.id for target in node.targets if isinstance(target, ast.Name)}
        for target in targets:
            bound |= {
                part.id
                for part in ast.walk(target)
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
            }

"""What the tests themselves must not do: habits that make a test fail by chance, found in their source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
OTHERS = ("end_to_end/upstream", "backends/sagemaker/examples", "golden")
"""Folders of cells and data, which are no tests."""
SOURCES = [
    path for path in sorted(TESTS.rglob("*.py")) if not path.relative_to(TESTS).as_posix().startswith(OTHERS)
]

WAITS = {"wait_for", "wait_until", "until"}
SETTLES = {*WAITS, "ended", "rank_pids", "until_up", "wait", "wait_for_end", "finish"}
"""Calls after which the state is as the test needs it."""
LINES = re.compile(r"\b(logs?|output)\(")
STATE = re.compile(r"\bstat(e|us)\b")


def state_read_right_after_lines(source: str) -> Iterator[str]:
    """The places where a function waits for lines and then reads the state of the run at once."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            only_lines = False
            for node in _in_order(function):
                if isinstance(node, ast.Call) and _name(node) in SETTLES:
                    asked = "".join(ast.unparse(each) for each in node.args if isinstance(each, ast.Lambda))
                    only_lines = bool(LINES.search(asked)) and not STATE.search(asked)
                elif only_lines and _reads_state(node):
                    yield f"{function.name}, line {node.lineno}: {ast.unparse(node)}"


def _in_order(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """What a function does, in the order of its lines; what it waits for is not looked into."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.expr | ast.stmt):
            yield child
        if not (isinstance(child, ast.Call) and _name(child) in WAITS):
            yield from _in_order(child)


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _reads_state(node: ast.AST) -> bool:
    """Which process supervises the run is known before there are ranks: that may be read at any time."""
    text = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
    return bool(re.fullmatch(r"(reader\.status\(\w+\)|\w+\.status)\.(?!supervisor)\w+|run\.state", text))


def answers_left_to_the_collector(source: str) -> Iterator[str]:
    """The places where an answer of http.client's is not closed by a `with`.

    Where the server ends the connection, HTTPConnection.close() does not close the answer. What then fails
    in `read` leaves the socket to the garbage collector, which warns in whatever test comes to run it."""
    tree = ast.parse(source)
    closed = {
        id(item.context_expr) for node in ast.walk(tree) if isinstance(node, ast.With) for item in node.items
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node) == "getresponse" and id(node) not in closed:
            yield f"line {node.lineno}: {ast.unparse(node)}"


def test_answers_of_http_servers_are_closed() -> None:
    assert list(answers_left_to_the_collector("answer = connection.getresponse()"))
    ours = [*SOURCES, *sorted((TESTS.parent / "jupyter_dist").rglob("*.py"))]
    asking = [path for path in ours if "getresponse" in path.read_text()]
    assert {path.name: list(answers_left_to_the_collector(path.read_text())) for path in asking} == {
        path.name: [] for path in asking
    }


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(TESTS)))
def test_who_has_waited_for_lines_waits_for_the_state_too(path: Path) -> None:
    """Use `until` or `until_up` of launching.py: the state of a run may come after its ranks' lines."""
    assert list(state_read_right_after_lines(path.read_text())) == []


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["wait_for(lambda: 'up' in logs(run, 0))", "reader.status(run).ranks[0].pid"], 1),
        (["wait_for(lambda: 'up' in logs(run, 0), what='up')", "assert run.state is RUNNING"], 1),
        (["wait_for(lambda: 'up' in logs(run, 0))", "reader.status(run).supervisor.pid"], 0),
        (["wait_for(lambda: 'up' in logs(run, 0))", "ended(run)", "reader.status(run).reason"], 0),
        (["wait_for(lambda: 'up' in logs(run, 0))", "wait_for(lambda: run.state)", "run.state"], 0),
        (["wait_for(lambda: run.state and 'up' in logs(run, 0))", "assert run.state"], 0),
        (["until(lambda: run.log(1), f'{run.status}')", "def later(): return run.state"], 0),
    ],
)
def test_what_is_found(lines: list[str], found: int) -> None:
    source = "def test():\n" + "".join(f"    {line}\n" for line in lines)
    assert len(list(state_read_right_after_lines(source))) == found

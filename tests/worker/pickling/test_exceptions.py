"""Exceptions as results, and inside of results: their constructors are not called again."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tests.rigs.notebook_cells import Notebook

CLASSES = """
class Diverged(Exception):
    def __init__(self, step, loss):
        super().__init__(f"loss {loss} at step {step}")
        self.step, self.loss = step, loss
class Keyword(ValueError):
    def __init__(self, *, code): self.code = code
class Missing(FileNotFoundError):
    def __init__(self, shard): super().__init__(2, "no such shard", f"shard-{shard}"); self.shard = shard
class Slotted(Exception):
    __slots__ = ("rank",)
    def __init__(self, rank, why): super().__init__(why); self.rank = rank
class Made(Exception):
    def __new__(cls, a, b): return super().__new__(cls, a)
    def __init__(self, a, b): self.b = b
class Stop(StopIteration):
    def __init__(self, value, extra): super().__init__(value); self.extra = extra
class Below(Diverged): pass
class OfItsOwn(Exception):
    def __init__(self, a): super().__init__("said"); self.a = a
    def __reduce__(self): return OfItsOwn, (self.a,)
class Plain(Exception): pass
class Undone(UnicodeDecodeError):
    def __init__(self, data): super().__init__("utf-8", data, 0, 1, "odd"); self.more = 4
"""
SINCE_3_11 = """
class Many(ExceptionGroup):
    def __new__(cls, rank, found): return super().__new__(cls, f"rank {rank}", found)
    def __init__(self, rank, found): self.rank = rank
def noted(error, note):
    error.add_note(note)
    return error
"""
ROWS = [
    ("Diverged(3, float('inf'))", "str(e), e.step, e.loss, e.args"),
    ("Keyword(code=5)", "e.code, e.args, str(e)"),
    ("Missing(4)", "e.shard, e.filename, e.errno, str(e)"),
    ("Slotted(1, 'late')", "e.rank, str(e)"),
    ("Made(1, 2)", "e.args, e.b"),
    ("Stop(7, 8)", "e.value, e.extra"),
    ("Below(1, 2)", "str(e), e.loss"),
    ("OfItsOwn(1)", "e.a"),
    ("Plain('x', 3)", "e.args"),
    ("Undone(b'\\xff')", "e.reason, e.object, e.more, str(e)"),
]
if hasattr(BaseException, "add_note"):
    CLASSES += SINCE_3_11
    ROWS += [
        ("Many(3, [ValueError('a'), Diverged(1, 2)])", "e.message, e.rank, e.exceptions[1].step, str(e)"),
        ("noted(Diverged(1, 2), 'see the log')", "e.__notes__, e.step"),
    ]


@pytest.mark.parametrize(("made", "asked"), ROWS, ids=[row[0] for row in ROWS])
def test_come_back_as_they_were(notebook: Notebook, made: str, asked: str) -> None:
    notebook.cell(CLASSES)
    there = notebook.run(f"result = {{'first': {made}, 'list': [{made}], 'loss': 0.5}}")
    notebook.cell(f"here = {made}")
    names = notebook.names
    expected = eval(asked, {**names, "e": names["here"]})
    for error in (there["first"], *there["list"]):
        assert type(error) is type(names["here"])
        assert eval(asked, {**names, "e": error}) == expected


def test_go_out_too(notebook: Notebook) -> None:
    notebook.cell(CLASSES + "known = [Diverged(1, 2), Missing(3)]")
    assert notebook.run("result = [str(e) for e in known]") == [str(e) for e in notebook.names["known"]]


def test_of_a_library(notebook: Notebook, monkeypatch: Any) -> None:
    (notebook.folder / "te_client.py").write_text(
        "class ClientError(Exception):\n  def __init__(self, response, operation):\n"
        "    super().__init__(f'{operation}: {response}'); self.response = response"
    )
    monkeypatch.syspath_prepend(str(notebook.folder))
    notebook.cell("import te_client")
    error = notebook.run("result = te_client.ClientError({'code': 5}, 'Put')")
    assert (str(error), error.response) == ("Put: {'code': 5}", {"code": 5})
    with pytest.raises(TypeError):
        pickle.loads(pickle.dumps(error))  # what Python does by itself

"""Functions that another version of Python loads.

Here this Python stands in for another one. test_across_pythons.py has real ones.
"""

from __future__ import annotations

import functools
import linecache
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.capture.payload_builder import capture_cell
from jupyter_dist.worker import payload
from jupyter_dist.worker.pickling import code_places, namespaces
from jupyter_dist.worker.pickling.unpickling import Writer, loading

Load = Callable[[str, str], dict[str, Any]]
FILE = "/tmp/ipykernel_7/7.py"
AT = FILE, "text", 0, 0, (0, "f")


def writer(text: str) -> Writer:
    return Writer("3.99", {(FILE, "text"): text})


def captured(text: str, cell: str, folder: Path) -> Any:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    linecache.cache[FILE] = (len(text), None, text.splitlines(True), FILE)
    exec(compile(text, FILE, "exec", dont_inherit=True), namespace)
    return capture_cell(cell, namespace, label="In[2]", directory=folder, here=False, other_python=True)


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """`load(text, cell)`: the names of the cell as a rank with another Python loads them."""

    def play(text: str, cell: str) -> dict[str, Any]:
        captured(text, cell, tmp_path).write(tmp_path / "payload.pkl")
        payload.rewrite_header(tmp_path / "payload.pkl", tmp_path / "other.pkl", {"python": "3.99"})
        monkeypatch.setattr(code_places, "_MAGIC", b"another")
        main: dict[str, Any] = {"__name__": "__main__"}
        main.update(payload.load(tmp_path / "other.pkl", main=main))
        return main

    return play


def test_functions_are_compiled_from_their_texts(load: Load) -> None:
    main = load(
        "def make(b, a):\n    def f(x, *, y=[a]):\n        return x, a, b, y\n    return f\n"
        "f = make(1, 2)\nfs = [lambda x: x, lambda x: -x]",
        "f, fs",
    )
    assert main["f"](0) == (0, 2, 1, [2])
    assert [f(3) for f in main["fs"]] == [3, -3]
    assert main["f"].__code__.co_filename == FILE


def test_bytecode_is_not_used_by_another_python(load: Load) -> None:
    """The text in the header decides: there a word was changed after the capture."""
    assert load("def f():\n    return 'text'\n", "f")["f"]() == "text"
    header = writer("def f():\n    return 'changed'\n")
    with loading(None, writer=header):
        code = code_places._code_at(b"x", b"", AT, ("f", 0, 0, 0, 0, (), ()))
    assert types.FunctionType(code, {})() == "changed"


def test_the_same_python_uses_the_bytecode(tmp_path: Path) -> None:
    captured("def f():\n    return 1\n", "f", tmp_path).write(tmp_path / "payload.pkl")
    header = payload.read_header(tmp_path / "payload.pkl")
    wrong = dict.fromkeys(header["sources"], "def g(): pass")
    more = {"sources": wrong, "texts": []}
    payload.rewrite_header(tmp_path / "payload.pkl", tmp_path / "other.pkl", more)
    main: dict[str, Any] = {}
    assert payload.load(tmp_path / "other.pkl", main=main)["f"]() == 1


@pytest.mark.parametrize("texts", [True, False], ids=["with texts", "bytecode alone"])
def test_functions_of_a_library_are_the_other_python_s_own(
    load: Load, monkeypatch: pytest.MonkeyPatch, texts: bool
) -> None:
    if not texts:
        monkeypatch.setattr(linecache, "getlines", lambda *_: [])
    code_places._library.cache_clear()
    main = load(
        "import contextlib, functools\n@contextlib.contextmanager\ndef opened(x):\n    yield x\n"
        "@functools.total_ordering\nclass C:\n    def __init__(self, x): self.x = x\n"
        "    def __eq__(self, o): return self.x == o.x\n    def __lt__(self, o): return self.x < o.x\n",
        "opened, C",
    )
    with main["opened"](4) as x:
        assert x == 4
    assert main["opened"].__code__ is not None
    assert main["C"](2) >= main["C"](1)
    assert main["opened"].__globals__ is vars(__import__("contextlib"))


@pytest.mark.parametrize(
    ("text", "cell", "name"),
    [
        ("exec('def f(): pass')", "f", "f"),
        ("f = eval('lambda: 1')", "f()", "<lambda>"),
        ("import types\nm = types.ModuleType('m')\nexec('def g(): pass', vars(m))", "m.g()", "g"),
    ],
)
def test_a_function_without_a_text_is_named_in_the_header(
    tmp_path: Path, text: str, cell: str, name: str
) -> None:
    found = captured(text, cell, tmp_path).header["same_python"]
    assert found == {f"{name} (<string>:1)": "its source text was not kept"}


def test_a_text_that_has_changed_is_not_used(tmp_path: Path) -> None:
    text = "def f(): return 1"
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, FILE, "exec", dont_inherit=True), namespace)
    changed = text.replace("1", "2")
    linecache.cache[FILE] = (len(changed), None, [changed], FILE)
    found = capture_cell("f()", namespace, label="In[2]", directory=tmp_path, here=False, other_python=True)
    assert found.header["same_python"] == {f"f ({FILE}:1)": f"its code is not in the text of {FILE!r}"}


def test_a_function_without_a_text_fails_only_when_it_is_called(load: Load) -> None:
    main = load("def outer(a):\n    exec('def f(): pass', globals())\n    return f\nf = outer(1)", "f")
    with pytest.raises(RuntimeError, match=r"^f\(\) has no source text .* made with Python 3\.99"):
        main["f"]()


def test_a_syntax_that_this_python_does_not_know_is_named_with_its_line() -> None:
    with (
        loading(None, writer=writer("def f():\n    return 1\n\nnew syntax here\n")),
        pytest.raises(SyntaxError, match="does not know this syntax") as told,
    ):
        code_places._code_at(b"x", b"", AT, ("f", 0, 0, 0, 0, (), ()))
    assert (told.value.filename, told.value.lineno) == (FILE, 4)


def test_a_function_that_another_version_of_a_library_lacks_fails_only_when_it_is_called() -> None:
    place = ("cloudpickle.gone", "f", 0, 1)
    with loading(None, writer=writer("")):
        code = code_places._code_at(b"x", b"", place, ("f", 0, 0, 0, 0, (), ()))
        space = namespaces._globals_of("cloudpickle.gone", None)
        with pytest.raises(ModuleNotFoundError):
            namespaces._globals_of("no_such_package.module", None)
    with pytest.raises(RuntimeError, match=r"^f\(\) is not in this process.s version of cloudpickle\.gone"):
        types.FunctionType(code, space)()


def test_a_library_that_lacks_what_it_imports_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_a_library.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(tmp_path)
    with loading(None, writer=writer("")), pytest.raises(ModuleNotFoundError, match="no_such_package"):
        namespaces._globals_of("half_a_library", None)


def test_code_that_only_resembles_the_function_is_not_used() -> None:
    shape = ("f", 1, 0, 0, 0, ("y",), ())
    with loading(None, writer=writer("def f(x):\n    return x\n")):
        code = code_places._code_at(b"x", b"", AT, shape)
    with pytest.raises(RuntimeError, match="has no source text"):
        types.FunctionType(code, {})(1)


def test_variables_of_a_closure_are_found_by_their_names() -> None:
    def outer(a: int, b: int) -> Callable[[], tuple[int, int]]:
        return lambda: (a, b)

    inner = outer(1, 2)
    names, cells = inner.__code__.co_freevars, inner.__closure__ or ()
    assert names == ("a", "b")
    made = code_places._function_at(inner.__code__, {}, None, None, cells[::-1], names[::-1])
    assert made() == (1, 2)


@pytest.mark.parametrize("here", [True, False])
def test_nothing_of_it_is_in_a_payload_without_the_option(tmp_path: Path, here: bool) -> None:
    namespace: dict[str, Any] = {"f": functools.partial(print)}
    found = capture_cell("f", namespace, label="In[2]", directory=tmp_path, here=here)
    assert not {"texts", "same_python"} & found.header.keys()
    assert b"code_places" not in found.body

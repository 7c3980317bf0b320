"""The texts of functions for ranks with another Python: files that change, timed cells, libraries.

Here this Python stands in for another one, as in test_code_places.py.
"""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.capture.payload_builder import capture_cell
from jupyter_dist.worker import payload
from jupyter_dist.worker.pickling import code_places
from jupyter_dist.worker.pickling.code_places import CodePlaces
from jupyter_dist.worker.pickling.lazy_names import load_all

Ranks = Callable[[dict[str, Any], str], dict[str, Any]]
AMBIGUOUS = """
def retry(again):
    if again:
        def call(): return "again"
    else:
        def call(): return "once"
    return call
"""


def captured(namespace: dict[str, Any], cell: str, folder: Path) -> Any:
    return capture_cell(cell, namespace, label="In[2]", directory=folder, here=False, other_python=True)


@pytest.fixture
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ranks:
    """`ranks(namespace, cell)`: all names as a rank with another Python has them."""

    def load(namespace: dict[str, Any], cell: str) -> dict[str, Any]:
        captured(namespace, cell, tmp_path).write(tmp_path / "payload.pkl")
        payload.rewrite_header(tmp_path / "payload.pkl", tmp_path / "other.pkl", {"python": "3.99"})
        main: dict[str, Any] = {"__name__": "__main__"}
        with monkeypatch.context() as patch:
            patch.setattr(code_places, "_MAGIC", b"another")
            main.update(payload.load(tmp_path / "other.pkl", main=main))
            load_all(main)
        return main

    return load


def loaded(path: Path) -> types.ModuleType:
    """A module that no rank can import, loaded by its path."""
    spec = importlib.util.spec_from_file_location("by_path", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_file_that_was_edited_between_two_definitions(tmp_path: Path, ranks: Ranks) -> None:
    """Each function is compiled from the text that it had, though both texts have one file name."""
    path = tmp_path / "by_path.py"
    path.write_text("def first(): return 'A'\n")
    namespace: dict[str, Any] = {"__name__": "__main__", "first": loaded(path).first}
    captured(namespace, "1", tmp_path)
    path.write_text("def other(): return 'another text'\n")
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        namespace["other"] = loaded(path).other
    finally:
        sys.dont_write_bytecode = before
    main = ranks(namespace, "other()")
    assert main["other"]() == "another text"
    assert main["first"]() == "A"


def test_a_file_that_was_edited_is_read_again(tmp_path: Path, ranks: Ranks) -> None:
    path = tmp_path / "script.py"
    path.write_text("def old(): return 1\n")
    assert linecache.getlines(str(path))
    text = "def new(x): return [x, 'of the new text']\n"
    path.write_text(text)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, str(path), "exec", dont_inherit=True), namespace)  # as %run does
    assert ranks(namespace, "new")["new"](3) == [3, "of the new text"]


def test_a_function_of_a_timed_cell(ranks: Ranks) -> None:
    text = "base = 2\ndef f(x): return x + base\n"
    magic = f"get_ipython().run_cell_magic('time', '', {text!r})\n"
    older = magic.replace("x + base", "x - base")
    namespace: dict[str, Any] = {"__name__": "__main__", "In": ["", older, magic, older, "f(1)"]}
    exec(compile(text, "<timed exec>", "exec", dont_inherit=True), namespace)
    assert ranks(namespace, "f")["f"](1) == 3


def test_a_lazy_module_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            raise ImportError(name)

    monkeypatch.setitem(sys.modules, "lazy_one", Lazy("lazy_one"))
    monkeypatch.setitem(sys.modules, "odd_one", object())
    assert CodePlaces()._module("/no/such/file.py") == ""


def test_one_of_several_functions_of_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: Ranks
) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "several_of_a_kind.py").write_text(AMBIGUOUS)
    monkeypatch.syspath_prepend(str(folder))
    library = importlib.import_module("several_of_a_kind")
    namespace = {"__name__": "__main__", "once": library.retry(False), "again": library.retry(True)}
    main = ranks(namespace, "once, again")
    assert (main["once"](), main["again"]()) == ("once", "again")


def test_a_function_that_only_looks_like_one_of_a_library_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "of_another_kind.py").write_text("def make():\n    def call(): return 1\n    return call\n")
    monkeypatch.syspath_prepend(str(folder))
    library = importlib.import_module("of_another_kind")
    space: dict[str, Any] = {"__name__": "__main__"}
    changed = "def make():\n    def call(): return 2\n    return call\n"
    exec(compile(changed, str(library.__file__), "exec", dont_inherit=True), space)
    for make, refused in ((library.make, False), (space["make"], True)):
        namespace = {"__name__": "__main__", "call": make()}
        assert bool(captured(namespace, "call()", tmp_path).header["same_python"]) == refused


def test_code_with_other_constants_is_refused(tmp_path: Path) -> None:
    def f() -> Any:
        return "constant"

    f.__code__ = f.__code__.replace(
        co_consts=tuple(Path("/x") if one == "constant" else one for one in f.__code__.co_consts)
    )
    found = captured({"__name__": "__main__", "f": f}, "f()", tmp_path).header["same_python"]
    assert set(found.values()) == {"its constants were changed after its compilation"}


def test_a_text_that_comes_later_is_found(tmp_path: Path, ranks: Ranks) -> None:
    """What a capture of the second part kept without a place is not kept."""
    text, file = "def late(): return 'late'\n", "<a cell of a console>"
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, file, "exec", dont_inherit=True), namespace)
    captured(namespace, "1", tmp_path)
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    assert ranks(namespace, "1")["late"]() == "late"

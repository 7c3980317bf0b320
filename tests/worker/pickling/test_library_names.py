"""Names of the standard library that one version of Python has, and another lacks (other_pythons.py)."""

from __future__ import annotations

import _thread
import copyreg
import io
import pathlib
import queue
import sys
import threading
import types
from typing import Any

import pytest

from jupyter_dist.worker.pickling import dump, loading, namespaces, other_pythons
from jupyter_dist.worker.pickling.code_places import CodePlaces
from jupyter_dist.worker.pickling.other_pythons import Absent, is_of_python
from jupyter_dist.worker.pickling.unpickling import Unpickler, Writer


def find(module: str, name: str, python: str = "3.99") -> Any:
    with loading({}, writer=Writer(python, {})):
        return Unpickler(io.BytesIO(b"")).find_class(module, name)


def test_a_name_that_moved_is_found() -> None:
    assert find("pathlib._local", "PurePosixPath") is pathlib.PurePosixPath
    assert type(find("_thread", "lock")()) is type(threading.Lock())
    assert find("_thread", "allocate_lock") is _thread.allocate_lock


def test_a_name_that_is_gone_fails_only_when_it_is_used() -> None:
    gone = find("dataclasses", "no_such_function")
    with pytest.raises(
        RuntimeError, match=r"^The notebook uses dataclasses\.no_such_function, which Python 3"
    ):
        gone(1)
    assert isinstance(find("annotationlib.none", "X"), Absent)


def test_a_name_of_no_python_is_an_error_at_once() -> None:
    with pytest.raises(AttributeError):
        find("pytest", "no_such_function")
    with pytest.raises(ModuleNotFoundError):
        find("no_such_package", "f")
    assert not is_of_python("no_such_package.part")


def test_the_same_python_finds_names_as_pickle_does() -> None:
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    with pytest.raises(AttributeError):
        find("dataclasses", "no_such_function", here)
    assert find("builtins", "getattr", here) is getattr


def test_a_method_that_this_python_s_object_lacks() -> None:
    lock = threading.RLock()
    pickled = dump(lock.acquire, places=CodePlaces()).body
    assert b"getattr" not in pickled
    with loading({}, writer=Writer("3.99", {})):
        assert Unpickler(io.BytesIO(pickled)).load()()
        assert isinstance(other_pythons._method(lock, "no_such_method"), Absent)
        assert isinstance(namespaces._at("threading", "no_such_thing"), Absent)
    with pytest.raises(AttributeError):
        namespaces._at("threading", "no_such_thing")


def test_the_notebook_s_getattr_is_the_builtin() -> None:
    get = find("builtins", "getattr")
    assert get([], "nothing", 5) == 5
    with pytest.raises(AttributeError):
        get(queue.Queue(), "nothing")


def test_an_absent_class_is_named_where_it_is_a_base_or_is_made() -> None:
    gone: Any = find("dataclasses", "NoSuchClass")
    for use in (lambda: types.new_class("C", (gone,)), lambda: copyreg.__newobj__(gone), gone):  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError, match=r"uses dataclasses\.NoSuchClass, which Python 3"):
            use()


def test_an_older_queue_works_here() -> None:
    waiting: queue.Queue[int] = queue.Queue()
    assert find("queue", "Queue") is queue.Queue
    vars(waiting).pop("is_shutdown", None)  # as Python 3.12 has it
    waiting.put(1)
    assert waiting.get() == 1

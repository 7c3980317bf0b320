"""What cannot be pickled: each refusal names the path to it and a cure."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_dist.capture.payload_builder import capture_call
from jupyter_dist.errors import CaptureError
from tests.rigs.notebook_cells import Notebook

UNPICKLABLE = """
import collections, functools, queue, socket, sqlite3, threading, zlib
class Model:
    def __init__(self): self.stream = zlib.compressobj()
    def go(self): return 1
class Slotted:
    __slots__ = ("a", "b")
    def __init__(self): self.a, self.b = 1, zlib.compressobj()
class Stateful:
    def __getstate__(self): return {"inner": [zlib.compressobj()]}
class Reduced:
    def __reduce__(self): return Reduced, (zlib.compressobj(),)
class Raises:
    def __reduce__(self): raise ZeroDivisionError("no way")
model = Model()
class Holder:
    stream = zlib.compressobj()
class User:
    @property
    def ready(self): return model
config = {"streams": [1, 2, zlib.compressobj()], 3: 4}
keyed = {threading.current_thread(): 1}
def train(): return model.go()
def outer(): return train()
def closure():
    connection = sqlite3.connect(":memory:")
    def query(): return connection
    return query
query = closure()
def default(x, event=Model()): pass
def named(*, event=zlib.compressobj()): pass
def tagged(): pass
tagged.stream = zlib.compressobj()
@functools.lru_cache
def cached(): return model
numbers = (i for i in range(3))
async def work(): pass
sock = socket.socket()
slotted, stateful, reduced, raises = Slotted(), Stateful(), Reduced(), Raises()
part = functools.partial(print, config)
method = model.go
ordered = collections.OrderedDict(a=collections.deque([0, zlib.compressobj()]))
jobs = queue.Queue()
jobs.put(zlib.compressobj())
shell_lambda = lambda: sock
deep = []
for _ in range(100_000): deep = [deep]
good = 1
"""
STREAM = "cannot pickle 'zlib.Compress' object"
PATHS = [
    ("model", f"model.stream: {STREAM}", "Create model inside the cell"),
    ("config", f"config['streams'][2]: {STREAM}", "Create config inside the cell"),
    ("train()", f"train() uses model.stream: {STREAM}", "Create model inside the cell"),
    ("outer()", f"outer() uses train() uses model.stream: {STREAM}", "Create model inside"),
    ("query()", "query() uses connection: cannot pickle 'sqlite3.Connection' object", "Connect inside"),
    ("default()", f"default()'s default for event.stream: {STREAM}", "Create it inside"),
    ("named()", f"named()'s default for event: {STREAM}", "Create it inside"),
    ("tagged()", f"tagged.stream: {STREAM}", "Create tagged inside"),
    ("cached()", f"cached() uses model.stream: {STREAM}", "Create model inside"),
    ("numbers", "numbers: cannot pickle 'generator' object", "Make the generator inside the cell"),
    ("sock", "sock: cannot pickle 'socket' object", "Connect inside the cell"),
    ("slotted", f"slotted.b: {STREAM}", "Create slotted inside"),
    ("stateful", f"stateful.__getstate__()['inner'][0]: {STREAM}", "Create it inside"),
    ("reduced", f"reduced.__reduce__()[0]: {STREAM}", "Create it inside"),
    ("raises", "raises: cannot pickle 'Raises' object (ZeroDivisionError: no way)", "Create raises"),
    ("part", f"part.args[0]['streams'][2]: {STREAM}", "Create part inside"),
    ("method", f"method.__self__.stream: {STREAM}", "Create method inside"),
    ("ordered", f"ordered['a'][1]: {STREAM}", "Create ordered inside"),
    ("jobs", f"jobs.queue[0]: {STREAM}", "Create jobs inside"),
    ("Holder", f"Holder.stream: {STREAM}", "Create Holder inside"),
    ("User", f"User.ready() uses model.stream: {STREAM}", "Create model inside"),
    ("User()", f"User.ready() uses model.stream: {STREAM}", "Create model inside"),
    ("shell_lambda", "shell_lambda() uses sock: cannot pickle 'socket' object", "Connect inside"),
    ("deep", "deep: nested too deeply to be pickled", "Keep deep in a flat list or dict"),
]


class TestRefusal:
    @pytest.fixture
    def filled(self, notebook: Notebook, recwarn: pytest.WarningsRecorder) -> Any:
        notebook.cell(UNPICKLABLE)
        yield notebook
        notebook.names["sock"].close()
        notebook.names["query"]().close()
        notebook.names["closure"] = notebook.names["query"] = None
        while notebook.names["deep"]:  # freed step by step, not by recursion
            notebook.names["deep"] = notebook.names["deep"].pop()

    @pytest.mark.parametrize(("source", "path", "cure"), PATHS)
    def test_names_the_path_and_a_cure(self, filled: Notebook, source: str, path: str, cure: str) -> None:
        first, second, *rest = filled.error(source).split("\n")
        assert first == path
        assert second.strip().startswith(cure)
        assert rest == ["Nothing was started."]

    def test_names_an_instance_whose_class_is_to_blame(self, filled: Notebook) -> None:
        filled.cell("user = User()")
        assert filled.error("user").startswith(f"user's class User.ready() uses model.stream: {STREAM}")

    def test_finds_what_lies_deep(self, filled: Notebook) -> None:
        filled.cell("nest = [zlib.compressobj()]\nfor _ in range(250): nest = [nest]")
        assert filled.error("nest").startswith(f"nest{'[0]' * 251}: {STREAM}")

    def test_names_open_files(self, filled: Notebook) -> None:
        (filled.folder / "data").write_text("x")
        with open(filled.folder / "data") as text, open(filled.folder / "data", "rb") as binary:
            filled.names.update(text=text, binary=binary)
            assert filled.error("text").startswith("text: cannot pickle the open file '")
            message = filled.error("binary")
        assert message.startswith("binary: cannot pickle '")
        assert "BufferedReader" in message
        assert "\n    Open the file" in message

    @pytest.mark.needs("torch")
    def test_names_data_loader_iterators(self, filled: Notebook) -> None:
        filled.cell("import torch.utils.data\nbatches = iter(torch.utils.data.DataLoader([1, 2]))")
        first, second, _ = filled.error("batches").split("\n")
        assert first == "batches: cannot pickle '_SingleProcessDataLoaderIter' object"
        assert "call iter() on it" in second

    def test_names_all_at_once_in_the_order_of_the_cell(self, filled: Notebook) -> None:
        message = filled.error("good, sock, train(), numbers, model")
        assert [line for line in message.split("\n") if not line.startswith(" ")] == [
            "sock: cannot pickle 'socket' object",
            "numbers: cannot pickle 'generator' object",
            f"model.stream: {STREAM}",
            "Nothing was started.",
        ]

    def test_names_five_at_most(self, filled: Notebook) -> None:
        message = filled.error("config, numbers, sock, slotted, jobs, Holder, ordered")
        assert message.count(": cannot pickle") == 5
        assert message.endswith("\nand 2 more\nNothing was started.")

    def test_of_an_argument(self, filled: Notebook) -> None:
        names = filled.names
        with pytest.raises(CaptureError) as caught:
            capture_call(
                names["outer"],
                (1, names["config"]),
                {"n": names["numbers"]},
                label="outer",
                directory=filled.folder,
            )
        lines = str(caught.value).split("\n")
        assert lines[0] == f"outer() uses train() uses model.stream: {STREAM}"
        assert lines[2] == f"args[1]['streams'][2]: {STREAM}"
        assert lines[4] == "kwargs['n']: cannot pickle 'generator' object"

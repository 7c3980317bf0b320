"""The container: what goes in comes out, elsewhere too; what is damaged or foreign is refused."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_dist.worker import payload
from jupyter_dist.worker.payload import ContainerError, UntrustedContainer
from jupyter_dist.worker.pickling import tensors
from jupyter_dist.worker.pickling.lazy_names import LazyNames
from jupyter_dist.worker.pickling.unpickling import Unpickler

ROOT = Path(__file__).parents[2]


def save(path: Path, value: Any, mains: tuple[dict[str, Any], ...] = ()) -> payload.Dumped:
    dumped = payload.dump(value, mains=mains)
    payload.write(path, {"kind": "test"}, dumped.body, dumped.buffers)
    return dumped


def there_and_back(path: Path, value: Any) -> Any:
    save(path, value)
    return payload.load(path)


def python(code: str, *args: object, **env: str) -> str:
    """Run code in a fresh interpreter; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


RANK = """
import sys, types
from pathlib import Path
from jupyter_dist.worker import payload
here = Path(sys.argv[1])
main = types.ModuleType("__main__")
sys.modules["__main__"] = main
main.__dict__.update(payload.load(here / "payload.pkl", main=main.__dict__))
exec(sys.argv[2], main.__dict__)
payload.write_value(here / "result.pkl", main.result)
"""


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The namespace of a fresh `__main__`, as a kernel has."""
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module.__dict__


@pytest.fixture
def on_rank(tmp_path: Path, notebook: dict[str, Any]) -> Callable[..., Any]:
    """`on_rank(cell, name, …)`: run a cell that sets `result` in another process, with those names."""

    def run(cell: str, *names: str) -> Any:
        save(tmp_path / "payload.pkl", {name: notebook[name] for name in names}, (notebook,))
        python(RANK, tmp_path, textwrap.dedent(cell))
        return payload.load(tmp_path / "result.pkl")

    return run


def define(notebook: dict[str, Any], source: str) -> None:
    exec(textwrap.dedent(source), notebook)


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=6000)
)
arrays = st.builds(
    lambda *how: make_array(*how),
    st.lists(st.integers(0, 40), min_size=0, max_size=3),
    st.sampled_from(["u1", "<i8", ">f4", "c16", "?", "M8[s]", "S3", "U2", [("a", "i4"), ("b", "f8")]]),
    st.sampled_from("CF"),
    st.booleans(),
    st.booleans(),
)
values = st.recursive(
    scalars | arrays,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)


def make_array(shape: list[int], dtype: Any, order: Any, read_only: bool, sliced: bool) -> Any:
    count = int(np.prod(shape))
    simple = np.dtype(dtype).kind in "uifc"
    array: Any = np.arange(count).astype(dtype) if simple else np.zeros(count, dtype)
    array = array.reshape(shape, order=order)
    if sliced and array.ndim:
        array = array[..., ::2]
    array.setflags(write=not read_only)
    return array


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        # numpy itself swaps the bytes of a small slice of a foreign byte order.
        kinds = [(x.dtype.newbyteorder("="), x.shape, x.tolist()) for x in (a, b)]
        return kinds[0] == kinds[1] and bool(b.flags.writeable >= a.flags.writeable)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and bool(a == b)


class TestContainer:
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(value=st.lists(arrays, max_size=3) | values)
    def test_gives_back_what_it_was_given(self, tmp_path: Path, value: Any) -> None:
        assert same(value, there_and_back(tmp_path / "p.pkl", value))

    @pytest.mark.parametrize("module", ["numpy._core.numeric", "numpy.core.numeric"])
    def test_arrays_of_other_versions_of_numpy_are_loaded(self, module: str) -> None:
        """numpy 1 has another module. numpy before 2.3 reads no order of the axes."""
        array = np.arange(24).reshape(2, 3, 4)
        make = Unpickler(io.BytesIO()).find_class(module, "_frombuffer")
        for arguments, made in (
            (((2, 3, 4), "C"), array),
            (((4, 3, 2), "F"), array.T),
            (((2, 3, 4), "K", (1, 0, 2)), array.transpose(1, 0, 2)),
        ):
            found = make(array.tobytes(), array.dtype, *arguments)
            assert found.tolist() == made.tolist()
            assert found.strides == made.strides
        part: Any = {"pickles": {"a": f"c{module}\n_frombuffer\n.".encode()}, "needs": {}, "submodules": {}}
        assert LazyNames({}, {}, [], part, {}).get("a") is make

    def test_arrays_come_out_as_writable_as_they_went_in(self, tmp_path: Path) -> None:
        for size in (10_000, 1_000_000):
            frozen = np.arange(size)
            frozen.setflags(write=False)
            free, kept = there_and_back(tmp_path / "p.pkl", [np.arange(size), frozen])
            free[0] = 7
            with pytest.raises(ValueError, match="read-only"):
                kept[0] = 7

    def test_large_arrays_are_not_copied_and_small_ones_stay_inside(self) -> None:
        large, small = np.arange(100_000), np.arange(10)
        dumped = payload.dump([large, small, large])
        assert [view.nbytes for view in dumped.buffers] == [large.nbytes]
        assert len(dumped.body) < 2000
        large[0] = 42
        assert bytes(dumped.buffers[0][:8]) == (42).to_bytes(8, "little")

    @pytest.mark.parametrize("kind", ["slice", "memmap"])
    def test_what_numpy_would_copy_into_the_body_goes_aside(self, tmp_path: Path, kind: str) -> None:
        array: Any = np.arange(1_000_000).reshape(1000, 1000)
        if kind == "slice":
            array = array[:, 5:]
        else:
            array.tofile(tmp_path / "data")
            array = np.memmap(tmp_path / "data", array.dtype, "r", shape=(1000, 1000))
        dumped = payload.dump(array)
        assert len(dumped.body) < 2000
        assert np.array_equal(there_and_back(tmp_path / "p.pkl", array), array)

    def test_buffers_lie_on_multiples_of_64(self, tmp_path: Path) -> None:
        save(tmp_path / "p.pkl", [np.zeros(5001, "u1"), np.zeros(70_001, "u1"), np.ones(9999, "u1")])
        places = payload.read_header(tmp_path / "p.pkl")["buffers"]
        assert [length for _, length in places] == [5001, 70_001, 9999]
        assert [offset % 64 for offset, _ in places] == [0, 0, 0]

    def test_readers_share_memory_and_write_for_themselves(self, tmp_path: Path) -> None:
        megabytes = 200
        save(tmp_path / "p.pkl", np.ones(megabytes << 17))
        used = python(
            """
            import sys
            from pathlib import Path
            import numpy
            from jupyter_dist.worker import payload
            def anonymous():
                status = Path("/proc/self/status").read_text()
                return int(status.split("RssAnon:")[1].split()[0]) >> 10
            before = anonymous()
            array = payload.load(Path(sys.argv[1]))
            assert array.sum() == array.size
            array[0] = 5
            print(anonymous() - before)
            """,
            tmp_path / "p.pkl",
        )
        assert int(used) < megabytes / 4
        assert payload.load(tmp_path / "p.pkl")[0] == 1

    def test_the_header_is_read_without_importing_anything(self, tmp_path: Path) -> None:
        save(tmp_path / "p.pkl", np.arange(10_000))
        shown = python(
            """
            import sys
            from pathlib import Path
            from jupyter_dist.worker import payload
            print(payload.read_header(Path(sys.argv[1]))["kind"], "numpy" in sys.modules)
            """,
            tmp_path / "p.pkl",
        )
        assert shown.split() == ["test", "False"]

    def test_files_are_private_whatever_the_umask(self, tmp_path: Path) -> None:
        before = os.umask(0)
        try:
            save(tmp_path / "open.pkl", np.arange(10_000))
            os.umask(0o777)
            save(tmp_path / "shut.pkl", np.arange(10_000))
        finally:
            os.umask(before)
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("*.*")}
        assert modes == dict.fromkeys(("open.pkl", "open.buffers", "shut.pkl", "shut.buffers"), 0o600)

    def test_a_full_disk_leaves_the_old_file_and_nothing_half_written(self, tmp_path: Path) -> None:
        save(tmp_path / "p.pkl", "old")
        python(
            """
            import resource, sys
            from pathlib import Path
            import numpy
            from jupyter_dist.worker import payload
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
            for value in (numpy.ones(1 << 20), list(range(1 << 20))):
                dumped = payload.dump(value)
                try:
                    payload.write(Path(sys.argv[1]), {}, dumped.body, dumped.buffers)
                except OSError:
                    continue
                sys.exit("it did not fail")
            """,
            tmp_path / "p.pkl",
        )
        assert [path.name for path in tmp_path.glob("*.*")] == ["p.pkl"]
        assert not list(tmp_path.glob(".p*"))
        assert payload.load(tmp_path / "p.pkl") == "old"

    def test_the_space_for_a_report_of_a_failure_remains(self, tmp_path: Path) -> None:
        room = tmp_path / ".error.json"
        room.write_bytes(bytes(1 << 15))
        with pytest.raises(TypeError):
            payload.write(tmp_path / "result.pkl", {}, "no bytes", prepared=room)  # type: ignore[arg-type]
        assert [path.name for path in tmp_path.iterdir()] == [room.name]
        assert room.stat().st_size == 1 << 15
        payload.write_value(tmp_path / "result.pkl", 3, prepared=room)
        assert [path.name for path in tmp_path.iterdir()] == ["result.pkl"]
        assert payload.load(tmp_path / "result.pkl") == 3

    def test_a_value_that_cannot_be_pickled_writes_nothing(
        self, tmp_path: Path, notebook: dict[str, Any]
    ) -> None:
        with pytest.raises(TypeError, match="generator"):
            payload.write_value(tmp_path / "result.pkl", (i for i in range(3)))
        assert not list(tmp_path.iterdir())


class TestRefusal:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        save(tmp_path / "p.pkl", [np.arange(300_000), "x" * 5000])
        return tmp_path / "p.pkl"

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(at=st.floats(0, 1, exclude_max=True), aside=st.booleans())
    def test_of_a_truncated_file(self, path: Path, at: float, aside: bool) -> None:
        save(path, [np.arange(3_000), "x" * 5000])
        target = path.with_suffix(".buffers") if aside else path
        content = target.read_bytes()
        target.write_bytes(content[: int(at * len(content))])
        with pytest.raises(ContainerError, match=r"cut off|empty|damaged"):
            payload.load(path)

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(content=st.binary(max_size=300) | st.builds(pickle.dumps, values))
    def test_of_a_foreign_file(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        for read in (payload.read_header, payload.load):
            with pytest.raises(ContainerError):
                read(path)

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
    def test_of_a_header_with_a_flipped_bit_raises_nothing_else(
        self, path: Path, at: float, bit: int
    ) -> None:
        save(path, np.arange(3_000))
        content = bytearray(path.read_bytes())
        body = payload.read_header(path)["body"]
        content[int(at * (len(content) - body))] ^= 1 << bit
        path.write_bytes(content)
        with contextlib.suppress(ContainerError):
            payload.read_header(path)

    def test_of_another_containers_buffers(self, path: Path, tmp_path: Path) -> None:
        save(tmp_path / "other.pkl", [np.arange(300_000), "x" * 5000])
        os.replace(tmp_path / "other.buffers", path.with_suffix(".buffers"))
        with pytest.raises(ContainerError, match="belongs to another container"):
            payload.load(path)

    def test_of_missing_buffers(self, path: Path) -> None:
        path.with_suffix(".buffers").unlink()
        with pytest.raises(ContainerError, match="missing"):
            payload.load(path)

    def test_of_a_header_that_would_run_something(self, path: Path, tmp_path: Path) -> None:
        class Evil:
            def __reduce__(self) -> Any:
                return os.mkdir, (str(tmp_path / "ran"),)

        path.write_bytes(pickle.dumps({"version": 1, "body": 0, "x": Evil()}))
        with pytest.raises(ContainerError, match="damaged, or not a jupyter-dist file"):
            payload.read_header(path)
        assert not (tmp_path / "ran").exists()

    def test_of_another_version(self, path: Path) -> None:
        payload.write(path, {"version": 99}, b"")
        with pytest.raises(ContainerError, match="format 99"):
            payload.load(path)

    @pytest.mark.parametrize("suffix", [".pkl", ".buffers"])
    @pytest.mark.parametrize("mode", [0o620, 0o602])
    def test_of_a_file_that_others_can_write(self, path: Path, suffix: str, mode: int) -> None:
        path.with_suffix(suffix).chmod(mode)
        with pytest.raises(UntrustedContainer, match=f"mode 0{mode:o}"):
            payload.load(path)

    def test_of_a_file_of_somebody_else(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
        with pytest.raises(UntrustedContainer, match=f"user id {me}"):
            payload.load(path)

    def test_of_a_link(self, path: Path, tmp_path: Path) -> None:
        (tmp_path / "link.pkl").symlink_to(path)
        with pytest.raises(UntrustedContainer, match="is a symbolic link"):
            payload.load(tmp_path / "link.pkl")

    def test_of_a_folder_and_a_pipe(self, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir(0o700)
        os.mkfifo(tmp_path / "pipe", 0o600)
        for name in ("folder", "pipe"):
            with pytest.raises(ContainerError, match=r"not a file|Is a directory"):
                payload.load(tmp_path / name)

    def test_not_of_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            payload.load(tmp_path / "p.pkl")


class TestFunctions:
    def test_see_what_the_cell_assigns(self, notebook: dict[str, Any], on_rank: Any) -> None:
        define(
            notebook,
            """
            LR = 1
            count = 0
            def step():
                global count
                count += 1
                return LR
            def train():
                return [step(), step()]
            """,
        )
        assert on_rank("LR = 5; result = (train(), count)", "train") == ([5, 5], 2)
        assert (notebook["LR"], notebook["count"]) == (1, 0)

    def test_recurse(self, notebook: dict[str, Any], on_rank: Any) -> None:
        define(
            notebook,
            """
            import functools
            def even(n): return n == 0 or odd(n - 1)
            def odd(n): return n != 0 and even(n - 1)
            @functools.lru_cache(maxsize=5)
            def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
            """,
        )
        cell = "result = (even(10), fib(50), fib.cache_parameters()['maxsize'])"
        assert on_rank(cell, "even", "fib") == (True, 12586269025, 5)

    def test_read_globals_in_a_nested_class_body(self, notebook: dict[str, Any], on_rank: Any) -> None:
        define(
            notebook,
            """
            RATE = 3
            data = object()
            def make():
                class Inner:
                    rate = RATE
                    rates = [RATE * i for i in range(2)]
                    @property
                    def data(self): return 1
                    @data.setter
                    def data(self, value): pass
                return Inner.rate, Inner.rates
            """,
        )
        assert on_rank("result = (make(), 'data' in globals())", "make") == ((3, [0, 3]), False)

    def test_of_a_result_work_and_leave_the_notebook_alone(
        self, notebook: dict[str, Any], on_rank: Any
    ) -> None:
        define(notebook, "LR = 1\ndef train(): return LR")
        returned = on_rank("LR = 5\ndef twice(): return 2 * train()\nresult = [twice, train]", "train")
        assert [function() for function in returned] == [10, 5]
        assert notebook["LR"] == 1
        assert "twice" not in notebook

    def test_the_standard_librarys_wrappers_travel(self, notebook: dict[str, Any], on_rank: Any) -> None:
        define(
            notebook,
            """
            import functools, sys
            @functools.singledispatch
            def kind(x): return "object"
            @kind.register
            def _(x: int): return "int"
            class Model:
                @functools.cached_property
                def size(self): return 4
            def write(text, out=sys.stdout): return out is sys.stdout
            plus = functools.partial(lambda a, b: a + b, 1)
            """,
        )
        cell = "result = [kind(1), kind(''), Model().size, write(''), plus(2)]"
        assert on_rank(cell, "kind", "Model", "write", "plus") == ["int", "object", 4, True, 3]

    def test_an_open_file_does_not_travel(self, tmp_path: Path) -> None:
        with (
            open(tmp_path / "f", "w+") as file,
            pytest.raises(pickle.PicklingError, match="the open file"),
        ):
            payload.dump(file)

    def test_a_closed_file_travels_as_one(self, tmp_path: Path) -> None:
        # keras.callbacks.CSVLogger has one after a training in the notebook.
        with open(tmp_path / "f", "w") as file:
            pass
        arrived = pickle.loads(payload.dump(file)[0])
        assert (arrived.closed, arrived.name) == (True, file.name)


class TestClasses:
    SOURCE = """
    import dataclasses, enum
    LR = 1
    class Colour(enum.Enum):
        RED = 1
    @dataclasses.dataclass
    class Point:
        x: int
        colour: Colour = Colour.RED
        def scaled(self): return self.x * LR
    """

    def test_of_the_notebook_come_back_as_its_own(self, notebook: dict[str, Any], on_rank: Any) -> None:
        define(notebook, self.SOURCE)
        point, scaled = on_rank("LR = 5; result = Point(3), Point(3).scaled()", "Point")
        assert scaled == 15
        assert type(point) is notebook["Point"]
        assert point.colour is notebook["Colour"].RED
        assert point == notebook["Point"](3)

    def test_of_the_notebook_stay_as_they_are(self, notebook: dict[str, Any], on_rank: Any) -> None:
        define(notebook, self.SOURCE)
        point = on_rank("LR = 5; result = Point(3)", "Point")
        assert notebook["Point"].scaled.__globals__ is notebook
        notebook["LR"] = 7
        assert point.scaled() == 21

    def test_are_loaded_by_a_kernel_that_never_had_them(
        self, notebook: dict[str, Any], on_rank: Any, tmp_path: Path
    ) -> None:
        define(notebook, self.SOURCE)
        on_rank("LR = 5; result = Point(3)", "Point")
        shown = python(
            """
            import sys
            from pathlib import Path
            from jupyter_dist.worker import payload
            point = payload.load(Path(sys.argv[1]))
            print(point, point.scaled())
            """,
            tmp_path / "result.pkl",
        )
        assert shown == "Point(x=3, colour=<Colour.RED: 1>) 15\n"

    def test_of_the_cell_are_the_same_for_all_ranks(self, tmp_path: Path, notebook: dict[str, Any]) -> None:
        cell = """
        import dataclasses
        @dataclasses.dataclass
        class Score:
            value: float
        if RANK < 2:
            class Model:
                def size(self): return 1
        else:
            class Model:
                def size(self): return 2
        result = Score(0.5), Model()
        """
        results = []
        for rank in range(3):
            save(tmp_path / "payload.pkl", {"RANK": rank})
            python(RANK, tmp_path, textwrap.dedent(cell), JUPYTER_DIST_RUN="/runs/1")
            results.append(payload.load(tmp_path / "result.pkl"))
        assert results[0][0] == results[1][0] == results[2][0]
        assert type(results[0][1]) is type(results[1][1])
        assert [model.size() for _, model in results] == [1, 1, 2]


@pytest.mark.needs("torch")
class TestTensors:
    @pytest.fixture(autouse=True)
    def torch(self) -> Any:
        return pytest.importorskip("torch")

    @pytest.mark.parametrize("size", [0, 1, 10_000, 1_000_000])
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "complex64", "uint16"])
    def test_come_back_equal(self, torch: Any, tmp_path: Path, dtype: str, size: int) -> None:
        tensor = torch.arange(size).to(getattr(torch, dtype))
        back = there_and_back(tmp_path / "p.pkl", tensor)
        assert back.dtype == tensor.dtype
        assert torch.equal(back, tensor)

    def test_go_aside_without_a_copy(self, torch: Any) -> None:
        tensor = torch.zeros(100_000, dtype=torch.bfloat16)
        dumped = payload.dump(tensor)
        tensor[0] = 1
        assert [view.nbytes for view in dumped.buffers] == [200_000]
        assert bytes(dumped.buffers[0][:2]) == b"\x80\x3f"
        assert len(dumped.body) < 2000

    def test_the_views_outlive_the_tensor(self, torch: Any) -> None:
        dumped = payload.dump(torch.full((100_000,), 7, dtype=torch.uint8))
        assert bytes(dumped.buffers[0]) == b"\x07" * 100_000

    def test_two_storages_of_one_memory_stay_so(self, torch: Any, tmp_path: Path) -> None:
        """As torch before 2.1 has them for each view. A part of the memory is another storage."""
        memory, other = np.zeros(2000), np.zeros(2000)
        tensors = [torch.from_numpy(each) for each in (memory, memory, memory[:1000], other)]
        there = [tensor.untyped_storage() for tensor in there_and_back(tmp_path / "v", tensors)]
        assert [storage.data_ptr() == there[0].data_ptr() for storage in there] == [True, True, False, False]
        assert [storage.nbytes() for storage in there] == [16000, 16000, 8000, 16000]

    def test_views_and_tied_weights_stay_so(self, torch: Any, tmp_path: Path) -> None:
        base = torch.arange(100_000.0).reshape(1000, 100)
        net = torch.nn.Sequential(torch.nn.Linear(100, 100), torch.nn.Linear(100, 100))
        net[1].weight = net[0].weight
        dumped = save(tmp_path / "p.pkl", [base, base.T, base[3:5, ::2], net, net[0].weight.detach()])
        assert len(dumped.buffers) == 2
        first, turned, part, same_net, weight = payload.load(tmp_path / "p.pkl")
        first[4, 2] = -1
        assert turned[2, 4] == -1
        assert part[1, 1] == -1
        assert same_net[1].weight is same_net[0].weight
        with torch.no_grad():
            same_net[0].weight[0, 0] = 42
        assert weight[0, 0] == 42
        assert net[0].weight[0, 0] != 42

    @pytest.mark.filterwarnings("ignore:.*quantize.*:UserWarning", "ignore:TypedStorage:UserWarning")
    def test_keep_their_kind(self, torch: Any, tmp_path: Path) -> None:
        leaf = torch.zeros(5000, requires_grad=True)
        parameter = torch.nn.Parameter(torch.ones(5000), requires_grad=False)
        quantized = torch.quantize_per_tensor(torch.ones(5000), 0.1, 0, torch.qint8)
        sparse = torch.eye(100).to_sparse()
        storage = torch.arange(5000).untyped_storage()
        sent = [leaf, parameter, quantized, sparse, storage]
        back = there_and_back(tmp_path / "p.pkl", sent)
        assert [type(value) for value in back] == [type(value) for value in sent]
        assert [value.requires_grad for value in back[:2]] == [True, False]
        assert torch.equal(back[2].dequantize(), quantized.dequantize())
        assert torch.equal(back[3].to_dense(), sparse.to_dense())
        assert bytes(back[4]) == bytes(storage)

    def test_a_module_trains_on_the_other_side(self, torch: Any, tmp_path: Path) -> None:
        net = torch.nn.Sequential(torch.nn.Linear(50, 50), torch.nn.BatchNorm1d(50), torch.nn.Linear(50, 1))
        back = there_and_back(tmp_path / "p.pkl", net)
        optimizer = torch.optim.Adam(back.parameters())
        back(torch.randn(4, 50)).square().sum().backward()
        optimizer.step()
        assert not torch.equal(back[0].weight, net[0].weight)
        assert all(parameter.grad is None for parameter in net.parameters())

    def test_a_cuda_storage_travels_through_cpu_memory(self, torch: Any) -> None:
        on_cpu = torch.arange(5000).untyped_storage()

        class FakeStorage:
            device = types.SimpleNamespace(type="cuda")

            def cpu(self) -> Any:
                return on_cpu

        found = tensors.Tensors()
        assert found.reduce_storage(FakeStorage()) == (tensors._cuda_storage, (on_cpu,))

    def test_cuda_tensors_are_counted(self, torch: Any) -> None:
        class OnGpu(torch.Tensor):  # type: ignore[misc]
            is_cuda = True

        found = tensors.Tensors()
        for tensor in (torch.zeros(1), torch.zeros(1).as_subclass(OnGpu)):
            found.reduce(tensor)
        assert found.on_gpu == 1

    @pytest.mark.parametrize(("on_rank", "available"), [(True, True), (True, False), (False, True)])
    def test_only_a_rank_with_a_gpu_puts_them_back_on_one(
        self, torch: Any, on_rank: bool, available: bool
    ) -> None:
        fake = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: available))
        assert tensors._goes_to_gpu(on_rank, fake) == (on_rank and available)


def test_results_of_earlier_versions_find_what_they_call() -> None:
    """A container calls functions by their module and name, which were all in one module once."""
    called = "_main _class _set_class_state _lru_cache _cached_property _storage _typed_storage _cuda_storage"
    from jupyter_dist.worker import pickling

    assert all(callable(getattr(pickling, name)) for name in called.split())

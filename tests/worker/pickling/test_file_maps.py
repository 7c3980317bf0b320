"""Arrays in mapped files stay in their files: a rank maps the same file, and no copy travels.

Each test runs cells, captures another one, and runs it in a fresh process.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_dist.backends.interface import Capabilities
from jupyter_dist.capture import payload_size
from jupyter_dist.start import run_start
from jupyter_dist.worker import payload
from tests.rigs.notebook_cells import Notebook

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the mappings of a process in /proc")

ROWS = """
import numpy as np
rows = np.memmap(folder / "rows of 'mine'.bin", dtype="int32", mode="w+", shape=(4_000_000, 2), offset=128)
rows[:4] = [[1, 2], [3, 4], [5, 6], [7, 8]]
"""


@pytest.fixture
def cells(notebook: Notebook, tmp_path: Path) -> Notebook:
    notebook.names["folder"] = tmp_path
    return notebook


VIEWS = [
    ("rows", "rows[2, 1] = 60", (2, 1), 60),
    ("rows[2:4]", "view[1] = 9", (3, 0), 9),
    ("rows.T", "view[1, 0] = 11", (0, 1), 11),
    ("rows[::-2, ::-1]", "view[-1, 0] = 12", (1, 1), 12),
    ("np.asarray(rows)[1:][1:]", "view[0, 0] = 13", (2, 0), 13),
    ("rows.reshape(-1)[:8].reshape(2, 4)", "view[1, 3] = 14", (3, 1), 14),
    ("rows.view('int64')[1:2]", "view[0] = 5 + (6 << 32)", (1, 1), 6),
    ("rows.view([('a', 'int32'), ('b', 'int32')])[3]", "view['b'] = 15", (3, 1), 15),
    ("{'of': [rows[3]]}", "view['of'][0][0] = 16", (3, 0), 16),
    ("(lambda part: lambda at, to: part.__setitem__(at, to))(rows[1])", "view(0, 17)", (1, 0), 17),
]


@pytest.mark.parametrize(("view", "write", "place", "value"), VIEWS)
def test_what_a_rank_writes_is_in_the_file(
    cells: Notebook, view: str, write: str, place: tuple[int, int], value: int
) -> None:
    cells.cell(ROWS)
    cells.cell(f"view = {view}")
    captured = cells.capture(f"{write}\nresult = (view.tolist()[0] if hasattr(view, 'tolist') else 0)")
    assert captured.nbytes < 100_000
    cells.run_payload(captured)
    assert cells.names["rows"][place] == value


def test_kinds_flags_and_sharing_are_as_in_the_notebook(cells: Notebook) -> None:
    cells.cell(ROWS + "rows.flush()\nread = np.memmap(rows.filename, dtype='int32', mode='r', offset=128)")
    cells.cell("part, plain = rows[1:3], np.asarray(read)\ndef total(): return int(plain[:8].sum())")
    found = cells.run(
        "before = total()\nrows[0, 0] = 101\nrows.flush()\n"
        "result = [type(part).__name__, type(plain).__name__, "
        "part.mode, plain.flags.writeable, read.flags.writeable, total() - before, part.tolist(), "
        "int(read[0]), type(rows[0]).__name__, type(rows + 1).__name__]"
    )
    kinds = ["memmap", "ndarray", "w+", False, False, 100, [[3, 4], [5, 6]], 101, "memmap", "ndarray"]
    assert found == kinds


@pytest.mark.needs("pandas", "pyarrow", "torch")
def test_frames_tables_and_tensors_over_mapped_files(cells: Notebook) -> None:
    cells.cell(
        """
        import numpy as np, pandas as pd, pyarrow as pa, torch, multiprocessing.shared_memory as sm
        np.save(folder / "x.npy", np.arange(600_000.0).reshape(-1, 3))
        frame = pd.DataFrame(np.load(folder / "x.npy", mmap_mode="r"), columns=list("abc"), copy=False)
        with pa.ipc.new_file(folder / "t.arrow", pa.schema([("n", pa.int64())])) as file:
            file.write_table(pa.table({"n": np.arange(500_000)}))
        table = pa.ipc.open_file(pa.memory_map(str(folder / "t.arrow"))).read_all()
        whole = torch.from_file(str(folder / "w.bin"), shared=True, size=900_000, dtype=torch.float32)
        tail = whole[-2:]
        over = torch.from_numpy(np.memmap(folder / "o.bin", dtype="float64", mode="w+", shape=(900_000,)))
        memory = sm.SharedMemory(create=True, size=8)
        counter = np.ndarray((1,), "int64", memory.buf)
        """
    )
    captured = cells.capture(
        """
        tail += 5; over[3] = 7; counter += 1
        result = [float(frame.b.iloc[1]), table["n"][9].as_py(), whole[-1].item(), len(table)]
        """
    )
    assert captured.nbytes < 100_000
    try:
        assert cells.run_payload(captured) == [4.0, 9, 5.0, 500_000]
        names = cells.names
        assert (names["whole"][-2].item(), names["over"][3].item(), names["counter"][0]) == (5.0, 7.0, 1)
    finally:
        cells.names.pop("counter")
        cells.names["memory"].close()
        cells.names["memory"].unlink()


def test_private_mappings_and_removed_files_travel_with_their_contents(cells: Notebook) -> None:
    cells.cell(ROWS)
    cells.cell("own = np.memmap(rows.filename, dtype='int32', mode='c', offset=128)[:400_000]\nown[0] = 77")
    assert cells.run("own[1] = 5\nresult = [int(own[0]), int(own[1])]") == [77, 5]
    assert cells.names["rows"][0].tolist() == [1, 2]
    cells.cell("import os\nos.unlink(rows.filename)\nrows[0, 0] = 78")
    assert cells.run("result = int(rows[0, 0])") == 78


def test_a_host_without_the_file(cells: Notebook) -> None:
    cells.cell(ROWS)
    cells.cell("part = rows[1:]")
    here = cells.capture("result = int(rows[1, 1])")
    there = cells.capture("rows[2] = 9\nresult = part.tolist()[:2]", here=False)
    assert here.nbytes < 100_000
    assert 32_000_000 < there.nbytes < 33_000_000
    path = Path(cells.names["rows"].filename)
    path.rename(path.with_suffix(".moved"))
    done = cells.start(here)
    assert done.returncode != 0
    assert "cannot map the file of 'part' on " in done.stderr or "of 'rows' on " in done.stderr
    assert "No such file or directory. The notebook has mapped the file" in done.stderr
    assert cells.run_payload(there) == [[3, 4], [9, 9]]
    path.write_bytes(b"short")
    assert "has only 5 bytes there" in cells.start(here).stderr


def test_shared_memory_travels_to_other_hosts_whatever_its_size(
    cells: Notebook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(payload_size, "LARGE", 10_000)
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        cells.cell(f"import numpy as np\nrows = np.memmap({file.name!r}, 'int32', 'w+', shape=(30_000,))")
        assert cells.capture("rows").nbytes < 10_000
        assert cells.capture("rows", here=False).nbytes > 100_000


@pytest.mark.parametrize(
    ("visible", "hosts", "hostfile", "here"),
    [
        (True, None, None, True),
        (False, None, None, False),
        (True, "a:1,b:1", None, False),
        (True, None, "hosts.txt", False),
    ],
)
def test_which_ranks_are_on_this_machine(visible: bool, hosts: Any, hostfile: Any, here: bool) -> None:
    assert run_start.is_here(plan_with(Capabilities(visible=visible), hosts, hostfile)) is here


def plan_with(able: Capabilities, hosts: Any, hostfile: Any, session: str | None = None) -> Any:
    run = SimpleNamespace(hosts=hosts, hostfile=hostfile, session=session)
    return SimpleNamespace(backend=SimpleNamespace(capabilities=able), run=run)


def test_a_later_cell_of_a_session_does_not_name_its_hosts() -> None:
    on_hosts = Capabilities(visible=True, outlives=True)
    assert run_start.is_here(plan_with(on_hosts, None, None))
    assert not run_start.is_here(plan_with(on_hosts, None, None, session="main"))
    assert run_start.is_here(plan_with(Capabilities(visible=True), None, None, session="main"))


def test_a_result_is_what_the_rank_has_returned(cells: Notebook) -> None:
    cells.cell(ROWS)
    found = cells.run("result = rows[:2]")
    cells.names["rows"][:] = 0
    assert found.tolist() == [[1, 2], [3, 4]]
    path = cells.folder / "run" / "result.pkl"
    Path(cells.names["rows"].filename).unlink()
    assert payload.load(path).tolist() == [[1, 2], [3, 4]]


def test_many_arrays_of_one_file_share_its_mapping(cells: Notebook) -> None:
    cells.cell(ROWS)
    cells.cell("parts = [rows[n] for n in range(2000)]")
    source = "import os\nmaps = open('/proc/self/maps').read()\nresult = maps.count(os.path.basename(name))"
    cells.cell("name = str(rows.filename)")
    assert cells.run(f"kept = parts\n{source}") < 5  # one for each pickle of the payload

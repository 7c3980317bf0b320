"""The files of a session whose rank has an agent on this machine."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from jupyter_dist.agent.session_ranks import FOLLOWED
from jupyter_dist.conformance.deadlines import wait_until
from jupyter_dist.record import reader

from .conftest import Notebook

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture
def line(tmp_path: Path) -> str:
    return (
        f"--session --backend ssh -H localhost:1 -np 1 --remote-dir {tmp_path}/stages "
        f"--python {sys.executable}"
    )


def test_a_checkpoint_that_cannot_be_written_here_stays_on_its_host(
    notebook: Notebook, line: str, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    code = (
        "import os, time\nimport jupyter_dist as dist\npath = dist.checkpoint_dir() / 'part' / 'model'\n"
        "path.parent.mkdir()\npath.write_text('trained')\nprint('in it', flush=True)\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)"
    )
    run = notebook.cell(code, f"{line} --detach")
    wait_until(lambda: "in it" in run.log(0), "the cell's first line")
    run.folder.checkpoints.mkdir()
    (run.folder.checkpoints / "part").write_text("a file, where a folder has to be")
    go.touch()
    run.wait()
    told = str(run.status.told)
    found = re.search(r"a checkpoint on host localhost cannot be .*: it stays there in '(.*)'", told)
    assert found is not None, told
    for _ in range(FOLLOWED + 1):
        assert reader.status(notebook.cell("2").folder).told is None
    notebook.plain("%dist close")
    assert Path(found[1], "checkpoints", "part", "model").read_text() == "trained"
    assert not list(tmp_path.glob("stages/**/payload.pkl"))


def test_checkpoints_in_the_folder_of_an_earlier_cell_are_copied_too(
    notebook: Notebook, line: str, tmp_path: Path
) -> None:
    first = notebook.cell(
        "import jupyter_dist as dist\nplace = dist.checkpoint_dir()\n(place / 'early').write_text('1')", line
    )
    notebook.cell("(place / 'late').write_text('2')")
    assert sorted(path.name for path in first.folder.checkpoints.iterdir()) == ["early", "late"]
    for _ in range(FOLLOWED):
        notebook.cell("1")
    assert list(tmp_path.glob("stages/**/early")) == []
    notebook.cell("(place / 'too late').write_text('3')")
    assert len(list(tmp_path.glob("stages/**/too late"))) == 1


@pytest.mark.needs("numpy")
def test_a_mapped_array_that_was_assigned_to_the_ranks_causes_no_note(
    notebook: Notebook, line: str, tmp_path: Path
) -> None:
    notebook.cell("1", line)
    notebook.plain(
        "import jupyter_dist, numpy as np\n"
        f"table = np.memmap({str(tmp_path / 'table')!r}, 'f8', 'w+', shape=9)\n"
        "jupyter_dist.session('main')['table'] = table"
    )
    assert notebook.results("len(table)") == [9]
    assert "have assigned it" not in notebook.printed

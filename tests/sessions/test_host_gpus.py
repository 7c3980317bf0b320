"""The GPUs of a session whose ranks have an agent: fresh ranks take them again."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from jupyter_dist.conformance.deadlines import wait_until
from jupyter_dist.folder import runs
from jupyter_dist.job import State
from jupyter_dist.record import reader
from jupyter_dist.record.sessions import find_session
from jupyter_dist.worker.gpus import record
from tests.rigs.launching import ended, launch_cell
from tests.rigs.nvidia import FakeGpus

from .conftest import Notebook

pytestmark = pytest.mark.usefixtures("warm")


def used() -> set[str]:
    """The GPUs in use, by the last letter of their UUIDs."""
    return {uuid[-1] for holder in record.holders() if not holder.waits_for for uuid in holder.uuids}


def agents(stages: Path) -> list[int]:
    """The pids of the agent of these stages and of its forks, the agent first."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            argv = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"jupyter_dist.agent" in argv and any(str(stages).encode() in word for word in argv):
            found.append(int(path.parent.name))
    return sorted(found)


def test_a_note_says_that_ranks_still_see_the_gpus_of_others(fake_gpus: FakeGpus, notebook: Notebook) -> None:
    fake_gpus.are(2)
    seen = "import os\nos.environ['CUDA_VISIBLE_DEVICES']"
    first = "'cuda:0'"
    run = notebook.cell(f"{first}\n{seen}", "--session -np 2")
    assert list(run.results) == ["0", "1"]
    run = notebook.cell(f"local_rank = int(os.environ['LOCAL_RANK'])\n{first}\n{seen}")
    assert (list(run.results), run.log()) == (["0,1"] * 2, "")
    for code, notes in (("local_rank", 0), (first, 2), (first, 0)):
        run = notebook.cell(f"{code}\n{seen}")
        assert list(run.results) == ["0,1"] * 2  # `cuda:{local_rank}` stays right
        assert run.log().count("cuda:0 is the same GPU on all ranks of this machine") == notes, code


def test_ranks_of_another_agent_take_their_gpus_again(
    fake_gpus: FakeGpus, notebook: Notebook, tmp_path: Path
) -> None:
    fake_gpus.are(3)
    stages = tmp_path / "stages"
    line = f"--session --backend ssh -H localhost:2 -np 2 --gpus-per-worker 1 --remote-dir {stages}"
    shown = "import os\nos.environ['CUDA_VISIBLE_DEVICES'], 'held' in globals()"
    notebook.cell("held = 1", f"{line} --python {sys.executable}")
    assert notebook.results(shown) == [("0", True), ("1", True)]
    assert used() == {"0", "1"}
    os.kill(agents(stages)[0], signal.SIGKILL)

    def is_noticed() -> bool:
        found = find_session("main")
        return found is not None and all(rank["state"] != "running" for rank in found.about["ranks"])

    wait_until(is_noticed, "the session's note of the ranks' end")
    wait_until(lambda: used() == set(), "the end of what the agent had taken")
    end = tmp_path / "end"
    stays = "import os, time\nwhile not os.path.exists(END): time.sleep(0.01)"
    other = launch_cell("local", stays, 2, {"gpus_per_worker": 1}, {"END": str(end)})
    wait_until(lambda: len(used()) == 2, "the GPUs of another run")
    notebook.fails(shown)
    assert f"held by run {other.id}" in str(reader.status(next(iter(runs()))).reason)
    end.touch()
    assert ended(other).state is State.SUCCEEDED
    assert notebook.results(shown) == [("0", False), ("1", False)]
    assert used() == {"0", "1"}
    notebook.plain("%dist close")
    assert used() == set()
    wait_until(lambda: not agents(stages), "the end of the agent")

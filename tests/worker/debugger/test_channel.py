"""The file of prompts, as a rank writes it."""

from __future__ import annotations

from pathlib import Path

from jupyter_dist.folder import RunFolder
from jupyter_dist.record.prompts import RankPrompts
from jupyter_dist.worker.debugger.channel import BREAKPOINT, Channel


def test_a_new_process_of_a_rank_does_not_wait_where_the_last_one_has_died(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    place = folder.rank(0, 1).prompts.parent
    place.mkdir(parents=True)
    Channel(tmp_path, place, {}).stop(BREAKPOINT, "In[1], line 2")
    found = RankPrompts(folder, 0, 1)
    found.read()
    assert found.wait is not None
    Channel(tmp_path, place, {})
    found.read()
    assert found.wait is None

"""A run of which rank 1 has raised, and the advice on the card of a failed run."""

from __future__ import annotations

from pathlib import Path

from jupyter_dist.folder import RunFolder
from jupyter_dist.showing import failure_report
from tests.rigs.run_maker import BEGAN, RunMaker

TRACEBACK = """Traceback (most recent call last):
  File "In[3]", line 4, in train
    raise ValueError("bad step")
ValueError: bad step
"""
FRAMES = [
    {"file": "/tmp/ipykernel_1/123.py", "label": "In[3]", "line": 4, "function": "train", "source": "raise …"}
]


def failed(root: Path, world_size: int = 8, **job: object) -> RunMaker:
    """Rank 1 raised; the others were in a collective with it."""
    made = RunMaker(root, world_size, **job)  # type: ignore[arg-type]
    for number in range(30):
        made.print(1, f"step {number}\n")
    made.print(1, TRACEBACK)
    made.fail(1, "ValueError", "bad step", TRACEBACK, BEGAN + 5, frames=FRAMES)
    return made


def hints_of(folder: RunFolder) -> list[str]:
    """Return the advice on a run's card. Each is one line behind the headline."""
    lines = failure_report.failure(folder).split("\n")
    found = [line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")]
    assert [line.startswith("hint: ") for line in lines[1 : 1 + len(found)]] == [True] * len(found)
    return found

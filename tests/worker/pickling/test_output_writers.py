"""A SummaryWriter that the notebook has opened writes on the ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.needs("torch", "tensorboard")
def test_a_notebooks_summary_writer_writes_a_file_for_each_rank_that_adds_values(
    kernel: Any, tmp_path: Path
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    kernel.run(
        "%load_ext jupyter_dist\nimport jupyter_dist as dist\n"
        "from torch.utils.tensorboard import SummaryWriter\nwriter = SummaryWriter('logs')\n"
        "writer.add_scalar('loss', 8, 0)"
    )
    # Nobody closes it. In the notebook, values reach the file two minutes later.
    ran = kernel.run(
        "%%distribute -np 3\n"
        "if dist.rank() < 2:\n    for step in range(1, 3): writer.add_scalar('loss', step, step)"
    )
    assert ran.text.count("each rank that adds values writes an event file of its own to logs") == 1, ran.text
    kernel.run("writer.add_scalar('loss', 9, 9)\nwriter.close()")
    curves = sorted(
        [(event.step, event.value) for event in EventAccumulator(str(file)).Reload().Scalars("loss")]
        for file in (tmp_path / "logs").iterdir()
    )
    assert curves == [[(0, 8.0), (9, 9.0)], [(1, 1.0), (2, 2.0)], [(1, 1.0), (2, 2.0)]]

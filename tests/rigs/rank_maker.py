"""Real processes with the environment of a rank, or without any, for tests of the worker's side."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from jupyter_dist.conformance.deadlines import output_of, run_process
from jupyter_dist.launch.preload import NO_THREADS

ROOT = Path(__file__).parents[2]
ENV = {
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    **NO_THREADS,
    "PYTHONPATH": str(ROOT),
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def ranks(
    folder: Path,
    code: str,
    world_size: int = 2,
    env: dict[str, str] | None = None,
    only: Sequence[int] | None = None,
) -> list[subprocess.Popen[str]]:
    """Start `code` as the ranks of a run whose folder is `folder`; `only` some of them where given."""
    started = []
    for rank in range(world_size) if only is None else only:
        place = folder / "attempts" / "0" / "ranks" / str(rank)
        place.mkdir(parents=True, exist_ok=True)
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", f"import jupyter_dist as dist, os, sys, time\n{code}"],
                env={
                    **os.environ,
                    **ENV,
                    "RANK": str(rank),
                    "WORLD_SIZE": str(world_size),
                    "LOCAL_RANK": str(rank),
                    "LOCAL_WORLD_SIZE": str(world_size),
                    "JUPYTER_DIST_RUN": str(folder),
                    "JUPYTER_DIST_ATTEMPT": "0",
                    "JUPYTER_DIST_GPUS": "0",
                    **(env or {}),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return started


def outputs(started: list[subprocess.Popen[str]]) -> list[str]:
    """What each printed; fails with what it wrote to stderr unless it ended well."""
    found = []
    for process in started:
        out, err = output_of(process)
        assert process.returncode == 0, err
        found.append(out)
    return found


def alone(code: str, folder: Path) -> str:
    """Run `code` outside of any run; returns what it printed."""
    done = run_process(
        [sys.executable, "-c", f"import jupyter_dist as dist, os, sys\n{code}"],
        env={**os.environ, **ENV},
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

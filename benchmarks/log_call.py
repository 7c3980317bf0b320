"""What does one call of `dist.log` cost the training loop, and what of it survives a kill?"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from ._contenders import answer, ours
from ._processes import Failed, Family
from ._race import Benchmark, Column, Contender, Measure

__all__ = ["benchmark"]

_LIMIT_S = 120.0


def benchmark(quick: bool = False) -> Benchmark:
    batch, batches = (100, 3) if quick else (1000, 20)
    return Benchmark(
        name="log-call",
        title="One call of `dist.log`",
        contenders=[
            Contender("jupyter-dist `dist.log`", lambda place: _ours(place, batch, batches), ours=True),
            Contender(
                "torch `SummaryWriter.add_scalar`", lambda place: _peer(place, _TENSORBOARD, batch, batches)
            ),
            # Every call opens and closes a file: fewer calls are enough.
            Contender(
                "`mlflow.log_metric`, file store", lambda place: _peer(place, _MLFLOW, batch // 10, batches)
            ),
        ],
        columns=[
            Column("cost", "µs per call", lambda s: f"{1e6 * s:,.1f}"),
            Column("kept", "readable after kill -9", lambda share: f"{share:.1%}"),
        ],
        headline="cost",
        rounds=1 if quick else 5,
        warm_up=0,
        packages=["torch", "tensorboard", "mlflow-skinny"],
    )


# All three: a value and a step per call as a training loop gives them, the median of batches, and
# then SIGKILL, as the out-of-memory killer would.
_LOOP = """
import json, os, signal, statistics, time
costs = []
step = 0
for _ in range({batches}):
    begin = time.perf_counter()
    for _ in range({batch}):
        {call}
        step += 1
    costs.append((time.perf_counter() - begin) / {batch})
print(json.dumps(statistics.median(costs)), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

_TENSORBOARD = (
    "from torch.utils.tensorboard import SummaryWriter\nwriter = SummaryWriter({folder!r})",
    'writer.add_scalar("loss", 0.123456 * step, step)',
)

_MLFLOW = (
    # Without a database, which mlflow-skinny has no driver for. Where the run is kept is not measured.
    'import os\nos.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"\n'
    'import mlflow\nmlflow.set_tracking_uri("file:" + {folder!r})\nmlflow.start_run()',
    'mlflow.log_metric("loss", 0.123456 * step, step=step)',
)


@contextlib.contextmanager
def _ours(folder: Path, batch: int, batches: int) -> Iterator[Measure]:
    loop = _LOOP.format(call="dist.log(loss=0.123456 * step, step=step)", batch=batch, batches=batches)
    # Detached: the view is not part of the call, and the run's end by SIGKILL is no error here.
    cell = f"%%distribute -np 1 --detach --out bench_run\nimport jupyter_dist as dist\n{loop}"
    with ours(folder) as found:

        def measure() -> dict[str, float]:
            found.run(cell, timeout_s=_LIMIT_S)
            found.run(f"bench_run.wait({_LIMIT_S})", timeout_s=_LIMIT_S)
            log, kept = answer(found, "[bench_run.log(0), len(bench_run.metrics)]")
            return {"cost": _cost(log), "kept": kept / (batch * batches)}

        yield measure


@contextlib.contextmanager
def _peer(folder: Path, peer: tuple[str, str], batch: int, batches: int) -> Iterator[Measure]:
    setup, call = peer
    family = Family()
    number = 0

    def measure() -> dict[str, float]:
        nonlocal number
        number += 1
        place = folder / str(number)
        script = folder / "script.py"
        loop = _LOOP.format(call=call, batch=batch, batches=batches)
        script.write_text(setup.format(folder=str(place)) + loop)
        text = family.run([sys.executable, str(script)], timeout_s=_LIMIT_S, cwd=folder)
        count = _count_scalars if peer is _TENSORBOARD else _count_metrics
        return {"cost": _cost(text), "kept": count(family, place) / (batch * batches)}

    yield measure


def _cost(text: str) -> float:
    try:
        return float(json.loads(text.strip().splitlines()[-1]))
    except (ValueError, IndexError):
        raise Failed(f"no measurement in its output: {text[-200:]!r}") from None


_COUNT_SCALARS = """
import glob, sys
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
events = [event for path in glob.glob(sys.argv[1] + "/*") for event in EventFileLoader(path).Load()]
print(sum(len(event.summary.value) for event in events))
"""


def _count_scalars(family: Family, folder: Path) -> int:
    text = family.run([sys.executable, "-c", _COUNT_SCALARS, str(folder)], timeout_s=_LIMIT_S, cwd=folder)
    return int(text.strip().splitlines()[-1])


def _count_metrics(family: Family, folder: Path) -> int:
    return sum(path.read_text().count("\n") for path in folder.glob("*/*/metrics/loss"))

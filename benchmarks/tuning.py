"""What does it take on top of Optuna alone that each trial is a run of its own?"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from ._contenders import ours
from ._processes import Failed, Family
from ._race import Benchmark, Column, Contender, Measure

__all__ = ["benchmark"]

_AT_ONCE = 2
_LIMIT_S = 900.0
_TRIAL = """\
import os, time
began, end = time.time(), time.process_time() + {busy_s}
while time.process_time() < end:
    pass
with open({times!r}, "a") as file:
    file.write(f"{{began}} {{time.time()}}\\n")
"""
"""A trial of every contender: this much of a core's time, and when it was."""
_CELL = """\
%%distribute -np 1 --max-jobs {trials} --parallel {at_once} --tune lr=loguniform(1e-5,.1) --objective min:loss
{trial}
import math
import jupyter_dist as dist
dist.log(loss=(math.log10(lr) + 3) ** 2)
"""
_OPTUNA = """\
import math, multiprocessing, sys
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

optuna.logging.set_verbosity(optuna.logging.WARNING)

def objective(trial):
    lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    exec({trial!r})
    return (math.log10(lr) + 3) ** 2

def work(journal, trials):
    storage = JournalStorage(JournalFileBackend(journal))
    sampler = optuna.samplers.TPESampler(constant_liar=True)
    study = optuna.load_study(study_name="bench", storage=storage, sampler=sampler)
    study.optimize(objective, n_trials=trials)

if __name__ == "__main__":
    journal = sys.argv[1]
    optuna.create_study(study_name="bench", storage=JournalStorage(JournalFileBackend(journal)))
    made = multiprocessing.get_context("spawn")
    workers = [made.Process(target=work, args=(journal, {share})) for _ in range({at_once})]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
"""
"""As Optuna's manual has it:
https://optuna.readthedocs.io/en/stable/tutorial/10_key_features/004_distributed.html"""


def benchmark(quick: bool = False) -> Benchmark:
    trials, busy_s = (4, 0.05) if quick else (100, 0.5)
    mine, bare = (partial(one, trials=trials, busy_s=busy_s) for one in (_ours, _optuna))
    return Benchmark(
        name="tuning",
        title=f"{trials} short trials, {_AT_ONCE} at once",
        contenders=[
            Contender("jupyter-dist, `--tune`", mine, ours=True),
            Contender(f"Optuna, {_AT_ONCE} processes", bare),
        ],
        columns=[
            Column("total", "all trials done, s", lambda s: f"{s:.2f}"),
            Column("mean", "a trial's end to the next one's start, mean, s", lambda s: f"{s:.3f}"),
            Column("worst", "longest, s", lambda s: f"{s:.3f}"),
        ],
        headline="total",
        rounds=1 if quick else 3,
        warm_up=0 if quick else 1,
        packages=["optuna", "ipykernel"],
    )


@contextlib.contextmanager
def _ours(folder: Path, *, trials: int, busy_s: float) -> Iterator[Measure]:
    if find_spec("optuna") is None:
        raise Failed("it needs optuna")
    times = folder / "times"
    trial = _TRIAL.format(busy_s=busy_s, times=str(times))
    cell = _CELL.format(trials=trials, at_once=_AT_ONCE, trial=trial)
    with ours(folder) as found:

        def measure() -> dict[str, float]:
            times.unlink(missing_ok=True)
            done = found.run(cell, timeout_s=_LIMIT_S)
            return {"total": done.done - done.sent, **_gaps(times, trials)}

        yield measure


@contextlib.contextmanager
def _optuna(folder: Path, *, trials: int, busy_s: float) -> Iterator[Measure]:
    times, script = folder / "times", folder / "tune.py"
    trial = _TRIAL.format(busy_s=busy_s, times=str(times))
    script.write_text(_OPTUNA.format(trial=trial, share=trials // _AT_ONCE, at_once=_AT_ONCE))
    family = Family()

    def measure() -> dict[str, float]:
        times.unlink(missing_ok=True)
        journal = folder / f"journal-{time.time_ns()}"
        began = time.time()
        family.run([sys.executable, str(script), str(journal)], timeout_s=_LIMIT_S, cwd=folder)
        return {"total": time.time() - began, **_gaps(times, trials)}

    try:
        yield measure
    finally:
        family.end()


def _gaps(times: Path, trials: int) -> dict[str, float]:
    """From the end that makes room for a trial to its first line."""
    spans = [tuple(map(float, line.split())) for line in times.read_text().splitlines()]
    if len(spans) != trials:
        raise Failed(f"{len(spans)} of {trials} trials came to their end")
    begins, ends = sorted(span[0] for span in spans), sorted(span[1] for span in spans)
    gaps = [begin - end for begin, end in zip(begins[_AT_ONCE:], ends, strict=False)]
    return {"mean": sum(gaps) / len(gaps), "worst": max(gaps)}

"""Four ranks on a Ray, and on a Spark: how soon they print, what of it arrives, how soon a death is told."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from ._contenders import answer, ours, plain
from ._engines import Shared, ray_head, spark_master
from ._notebook import Cell, Notebook
from ._processes import Failed
from ._race import Benchmark, Column, Contender, Measure

__all__ = ["on_ray", "on_spark"]

_RANKS = 4
_LIMIT_S = 600.0
_LATE_S = 5.0
"""What a peer shows this long after its cell has ended still counts as shown."""
_TEXT = "the quick brown fox jumps over the lazy dog"
_LINE = re.compile(rf"\b(\d) (\d+) {_TEXT}")
_BEGIN = """\
import os, pathlib, signal, time
import torch
import torch.distributed
if not torch.distributed.is_initialized():
    torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
def at(what):
    pathlib.Path({folder!r}, f"{{what}}-{{rank}}").write_text(str(time.time()))
print(f"@@first {{rank}}@@", flush=True)
at("first")
torch.distributed.barrier()
time.sleep(1)
"""
"""What every rank of every contender runs. It leaves times in files: not every line reaches the notebook."""
_PRINT = """\
for i in range({count}):
    print(f"{{rank}} {{i}} {text}")
"""
_RAISE = """\
if rank == 1:
    at("died")
    raise RuntimeError(f"@@raised by {rank}@@")
torch.distributed.all_reduce(torch.ones(1))
"""
_KILL = """\
if rank == 1:
    at("died")
    os.kill(os.getpid(), signal.SIGKILL)
torch.distributed.all_reduce(torch.ones(1))
"""
_FIRST = re.compile(r"@@first \d@@")
_RAISED = re.compile(r"@@raised by \d@@")
_KILLED = re.compile(r"SIGKILL|[Ss]ignal 9|[Dd]ied|dead|[Uu]nexpectedly|exitcode: -9")

CallOf = Callable[[str], str]
"""From the code of a rank to the cell that has four ranks run it."""


def on_ray(quick: bool = False) -> Benchmark:
    """The address in the notebook's `RAY_ADDRESS`, as on a cluster's own notebook."""
    engine = Shared(partial(ray_head, _RANKS))
    trainer = partial(_trainer, {})
    all_lines = partial(_trainer, {"RAY_DEDUP_LOGS": "0", "RAY_TRAIN_ENABLE_PRINT_PATCH": "0"})
    contenders = [
        _contender("jupyter-dist, `--backend ray`", _our_ray, engine, quick, ours=True),
        _contender("`TorchTrainer`", trainer, engine, quick),
        _contender("`TorchTrainer`, `RAY_DEDUP_LOGS=0`", all_lines, engine, quick),
    ]
    return _benchmark("ray", "Four ranks on a Ray", contenders, quick, ["ray", "torch", "ipykernel"])


def on_spark(quick: bool = False) -> Benchmark:
    """All notebooks have a Spark session of their own at the same master before the first cell counts."""
    engine = Shared(partial(spark_master, 3 * _RANKS))
    contenders = [
        _contender("jupyter-dist, `--backend spark`", _our_spark, engine, quick, ours=True),
        _contender("`TorchDistributor`", _distributor, engine, quick),
    ]
    return _benchmark("spark", "Four ranks on a Spark", contenders, quick, ["pyspark", "torch", "ipykernel"])


def _benchmark(
    name: str, title: str, contenders: list[Contender], quick: bool, packages: list[str]
) -> Benchmark:
    return Benchmark(
        name=name,
        title=title,
        contenders=contenders,
        columns=[
            Column("first", "first line of every rank, s", _s),
            Column("seen", "all seen in the notebook, s", _s),
            Column("lost", "lines lost", lambda number: f"{number:,.0f}"),
            Column("printed", "last line to cell done, s", _s),
            Column("raised", "raise to its traceback, s", _s),
            Column("raised end", "to cell done, s", _s),
            Column("killed", "kill -9 to its message, s", _s),
            Column("killed end", "to cell done, s", _s),
        ],
        headline="first",
        rounds=1 if quick else 3,
        warm_up=0 if quick else 1,
        packages=packages,
    )


def _s(seconds: float) -> str:
    return f"{seconds:.2f}"


def _contender(
    name: str,
    notebook: Callable[[Path, str], AbstractContextManager[tuple[Notebook, CallOf]]],
    engine: Shared,
    quick: bool,
    *,
    ours: bool = False,
) -> Contender:
    count = 1_000 if quick else 50_000

    @contextlib.contextmanager
    def opened(folder: Path) -> Iterator[Measure]:
        with engine.lent() as address, notebook(folder, address) as (found, call):
            yield lambda: {
                **_printing(found, call, count, whole=ours),
                **_dying(found, call, _RAISE, _RAISED, "raised"),
                **_dying(found, call, _KILL, _KILLED, "killed"),
            }

    return Contender(name, opened, ours=ours)


def _printing(found: Notebook, call: CallOf, count: int, *, whole: bool) -> dict[str, float]:
    """Four ranks print that many lines. Ours are read from the run, for the cell shows a tail of them."""
    end = 'at("last")\n'
    cell = _run(found, call, _PRINT.format(count=count, text=_TEXT) + end, _FIRST, fails=False)
    if whole:
        texts = answer(found, f"[bench_run.log(rank) for rank in range({_RANKS})]", timeout_s=_LIMIT_S)
    else:
        late = found.run(f"import time; time.sleep({_LATE_S})", timeout_s=_LIMIT_S, watch=_FIRST)
        texts = [cell.text, late.text]
    lines = {match for text in texts for match in _LINE.findall(text)}
    sample = {"first": max(_times(found, "first")) - cell.sent, "lost": _RANKS * count - len(lines)}
    if len(cell.seen) == _RANKS:
        sample["seen"] = max(cell.seen.values()) - cell.sent
    return {**sample, "printed": cell.done - max(_times(found, "last"))}


def _dying(found: Notebook, call: CallOf, code: str, sign: re.Pattern[str], column: str) -> dict[str, float]:
    """Rank 1 dies while the others wait for it: when is that told in the notebook, when is the cell done?"""
    cell = _run(found, call, code, sign, fails=True)
    (died,) = _times(found, "died")
    told = [when for when in cell.seen.values() if when >= died]
    sample = {} if not told else {column: min(told) - died}
    return {**sample, f"{column} end": cell.done - died}


def _run(found: Notebook, call: CallOf, code: str, watch: re.Pattern[str], *, fails: bool) -> Cell:
    for path in _marks(found, "*"):
        path.unlink()
    _place(found).mkdir(exist_ok=True)
    begin = _BEGIN.format(folder=str(_place(found)))
    cell = found.run(call(begin + code), timeout_s=_LIMIT_S, watch=watch, fails=fails)
    if len(_times(found, "first")) != _RANKS:
        raise Failed(f"{len(_times(found, 'first'))} of {_RANKS} ranks printed; {cell.text[-300:]!r}")
    return cell


def _place(found: Notebook) -> Path:
    return found.folder / "marks"


def _marks(found: Notebook, what: str) -> list[Path]:
    return sorted(_place(found).glob(f"{what}-*"))


def _times(found: Notebook, what: str) -> list[float]:
    return [float(path.read_text()) for path in _marks(found, what)]


def _as_function(code: str) -> str:
    return "def train():\n" + "".join(f"    {line}\n" for line in code.splitlines())


@contextlib.contextmanager
def _our_ray(folder: Path, address: str) -> Iterator[tuple[Notebook, CallOf]]:
    flags = f"--backend ray --address {address} -np {_RANKS} --out bench_run"
    with ours(folder, _environ({"RAY_AUTH_MODE": "disabled"}) + "import torch") as found:
        yield found, lambda code: f"%%distribute {flags}\n{code}"


@contextlib.contextmanager
def _trainer(variables: Mapping[str, str], folder: Path, address: str) -> Iterator[tuple[Notebook, CallOf]]:
    env = {"RAY_AUTH_MODE": "disabled", "RAY_ADDRESS": address, **variables}
    setup = (
        f"{_environ(env)}import ray, torch\nfrom ray.train import RunConfig, ScalingConfig\n"
        "from ray.train.torch import TorchTrainer\nray.init()\n"
    )
    fit = (
        f"TorchTrainer(train, scaling_config=ScalingConfig(num_workers={_RANKS}), "
        f"run_config=RunConfig(storage_path={str(folder / 'results')!r})).fit()"
    )
    with plain(folder, setup) as found:
        yield found, lambda code: _as_function(code) + fit


@contextlib.contextmanager
def _our_spark(folder: Path, url: str) -> Iterator[tuple[Notebook, CallOf]]:
    with ours(folder, _session(url) + "import torch") as found:
        yield found, lambda code: f"%%distribute --backend spark -np {_RANKS} --out bench_run\n{code}"


@contextlib.contextmanager
def _distributor(folder: Path, url: str) -> Iterator[tuple[Notebook, CallOf]]:
    setup = f"{_session(url)}import torch\nfrom pyspark.ml.torch.distributor import TorchDistributor\n"
    call = f"TorchDistributor(num_processes={_RANKS}, local_mode=False, use_gpu=False).run(train)"
    with plain(folder, setup) as found:
        yield found, lambda code: _as_function(code) + call


def _session(url: str) -> str:
    env = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    conf = {"spark.cores.max": str(_RANKS), "spark.executor.cores": "2", "spark.executor.memory": "1g"}
    conf |= {"spark.ui.enabled": "false", "spark.driver.memory": "512m"}
    options = "".join(f".config({name!r}, {value!r})" for name, value in conf.items())
    return (
        f"{_environ(env)}from pyspark.sql import SparkSession\n"
        f"spark = SparkSession.builder.master({url!r}){options}.getOrCreate()\n"
    )


def _environ(variables: Mapping[str, str]) -> str:
    return f"import os\nos.environ.update({dict(variables)!r})\n"

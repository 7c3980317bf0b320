"""Releases of other libraries that have renamed, changed, removed or moved what a hook needs.

A hook that only draws curves becomes a note. A hook that decides what is trained refuses the user's import.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from jupyter_dist.processes.rank_processes import PACKAGE_ROOT
from jupyter_dist.worker.launchers import torchrun_host
from jupyter_dist.worker.output import events
from jupyter_dist.worker.steps import torch as of_steps

_RANKS = """
import json, os, sys
from jupyter_dist.worker import autolog
from jupyter_dist.worker.output import events
class Writer:
    def note(self, text, **_): print("NOTE:", text)
    def metric(self, values, step): print("METRIC:", values, step)
    def progress(self, *_): print("BAR")
events.writer = Writer
events._writer = Writer()

def train(folder, warm, ranks, statements):
    os.environ.update(RANK="0", WORLD_SIZE=str(ranks))
    sys.path.insert(0, folder)
    try:
        if warm:
            exec(statements[0], globals())
        autolog.install()
        for statement in statements:
            exec(statement, globals())
        print("TRAINED")
    except ImportError as error:
        print("taken for a library that is not installed", error)
    except Exception as error:
        print(f"{type(error).__module__}.{type(error).__name__}: {error}")

for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        train(*json.loads(line))
        sys.stdout.flush()
        os._exit(0)
    print(json.dumps({"ended with": os.waitpid(pid, 0)[1]}), flush=True)
"""
"""Forks a process for each line that it reads: no import of a test is there in the next one."""
_ENDED = '{"ended with": '
_started: list[subprocess.Popen[str]] = []


@pytest.fixture(scope="module", autouse=True)
def ranks() -> Iterator[None]:
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    with subprocess.Popen(
        [sys.executable, "-c", _RANKS], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        _started.append(process)
        yield
        _started.clear()


def make(tmp_path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in path.relative_to(tmp_path).parents[:-1]:
            (tmp_path / folder / "__init__.py").touch()
        path.write_text(text)
    return tmp_path


def rank(folder: Path, *statements: str, warm: bool = False, ranks: int = 2) -> list[str]:
    """Run the statements as a rank does. Returns the lines that it prints."""
    (process,) = _started
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([str(folder), warm, ranks, statements]) + "\n")
    process.stdin.flush()
    lines: list[str] = []
    for line in process.stdout:
        if line.startswith(_ENDED):
            assert json.loads(line) == {"ended with": 0}
            return lines
        lines.append(line.rstrip("\n"))
    pytest.fail(f"the process that forks the ranks has ended with {process.wait()}")


def refused(lines: list[str], library: str, version: str, cure: str) -> str:
    """Check that the only outcome is our error: what failed, which version, what to type."""
    *told, line = lines
    assert not [text for text in told if "cannot log metrics" not in text], "curves are notes"
    assert line.startswith("jupyter_dist.worker.foreign_names.ForeignNameMissing: ")
    assert f"{library} {version}" in line
    assert f'pip install "{cure}' in line
    return line


_CONNECTOR = """
class LightningEnvironment: ...
class NAME:
    _strategy_flag, _cluster_environment_flag, _parallel_devices = "auto", None, None
    def _check_device_config_and_set_final_flags(self, devices, num_nodes): self.flags = devices, num_nodes
    def _set_parallel_devices_and_init_accelerator(self): self._parallel_devices = [0]
    def __init__(self):
        self._check_device_config_and_set_final_flags(devices="auto", num_nodes=1)
        self._set_parallel_devices_and_init_accelerator()
"""
_FABRIC = _CONNECTOR.replace("NAME", "_Connector")
_PYTORCH = _CONNECTOR.replace("NAME", "_AcceleratorConnector")
_HOMES = {
    "lightning_fabric": ("lightning_fabric", "connector", _FABRIC),
    "lightning.fabric": ("lightning.fabric", "connector", _FABRIC),
    "pytorch_lightning": ("pytorch_lightning", "trainer.connectors.accelerator_connector", _PYTORCH),
    "lightning.pytorch": ("lightning.pytorch", "trainer.connectors.accelerator_connector", _PYTORCH),
}
_SHAPES = {
    "renamed method": ("_set_parallel_devices_and_init_accelerator", "_set_devices"),
    "renamed parameter": ("num_nodes", "hosts"),
    "renamed attribute": ("_parallel_devices", "_devices_in_parallel"),
    "missing class": ("class LightningEnvironment", "class TorchEnvironment"),
    "renamed class": ("Connector:", "Connection:"),
}


def lightning(tmp_path: Path, home: str, text: str, module: str | None = None) -> Path:
    package, usual, _ = _HOMES[home]
    module = module or usual
    files = {f"{package.replace('.', '/')}/{module.replace('.', '/')}.py": text}
    make(tmp_path, files)
    place = tmp_path.joinpath(*package.split("."))
    version = "__version__ = '3.1'\n"
    (tmp_path / package.partition(".")[0] / "__init__.py").write_text(version)
    (place / "__init__.py").write_text(f"{version}from .{module} import *\n")
    return tmp_path


@pytest.mark.parametrize("home", list(_HOMES))
@pytest.mark.parametrize("shape", list(_SHAPES))
def test_another_lightning_is_refused_before_anything_trains(tmp_path: Path, home: str, shape: str) -> None:
    text = _HOMES[home][2].replace(*_SHAPES[shape])
    folder = lightning(tmp_path, home, text)
    library = home.partition(".")[0]
    cure = "lightning==" if library == "lightning" else "pytorch-lightning=="
    for warm in (False, True):
        refused(rank(folder, f"import {home}", warm=warm), library, "3.1", cure)


@pytest.mark.parametrize("home", list(_HOMES))
def test_a_lightning_whose_module_has_moved_is_refused(tmp_path: Path, home: str) -> None:
    """Its hook is never called, and each rank would train for itself."""
    folder = lightning(tmp_path, home, _HOMES[home][2], module="runtime.connecting")
    for warm in (False, True):
        line = refused(rank(folder, f"import {home}", warm=warm), home.partition(".")[0], "3.1", "")
        assert f"there is no module {home}.{_HOMES[home][1]}" in line
    assert rank(folder, f"import {home}", ranks=1)[-1] == "TRAINED", "a single rank trains the same"


def test_a_lightning_that_fits_trains_over_all_ranks(tmp_path: Path) -> None:
    """So do one with new parameters, and one whose import another hook hides from ours."""
    more = _FABRIC.replace("devices, num_nodes)", "devices, num_nodes, fleet)")
    more = more.replace("num_nodes=1", "num_nodes=1, fleet=None").replace(
        "accelerator(self)", "accelerator(self, x)"
    )
    more = more.replace("init_accelerator()", "init_accelerator(x=0)")
    hidden = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "lightning_fabric.connector":
            import importlib.machinery
            return importlib.machinery.PathFinder.find_spec(name, path, target)
sys.meta_path.insert(0, Finder())
"""
    for number, (text, before) in enumerate([(_FABRIC, ""), (more, ""), (_FABRIC, hidden)]):
        folder = lightning(tmp_path / str(number), "lightning_fabric", text)
        lines = rank(
            folder,
            f"{before}\nimport lightning_fabric.connector as c",
            "print(c._Connector().flags)",
        )
        assert lines == ["(1, 2)", "TRAINED"], "one device on each of two nodes"


_ACCELERATE = """
class PartialState:
    def __init__(self, cpu=False, **kwargs): ...
"""


@pytest.mark.parametrize(
    ("text", "module"),
    [
        (_ACCELERATE.replace("__init__", "begin"), "state"),
        (_ACCELERATE.replace("cpu=False", "device=None"), "state"),
        (_ACCELERATE.replace("PartialState", "ProcessState"), "state"),
        (_ACCELERATE, "states"),
    ],
    ids=["renamed method", "changed signature", "missing class", "module moved"],
)
def test_another_accelerate_is_refused(tmp_path: Path, text: str, module: str) -> None:
    files = {
        f"accelerate/{module}.py": text,
        "transformers/trainer.py": "import accelerate\nclass Trainer: ...\n",
    }
    folder = make(tmp_path, files)
    (tmp_path / "accelerate/__init__.py").write_text(f"__version__ = '2.0'\nfrom . import {module}\n")
    for statement in ("import accelerate", "import transformers.trainer"):
        refused(rank(folder, statement), "accelerate", "2.0", "accelerate==")


@pytest.mark.parametrize("package", ["horovod.torch", "horovod.tensorflow"])
def test_a_horovod_whose_module_has_moved_is_refused_at_any_number_of_ranks(
    tmp_path: Path, package: str
) -> None:
    folder = make(tmp_path, {f"{package.replace('.', '/')}/mpi_ops.py": ""})
    (tmp_path / "horovod/__init__.py").write_text("__version__ = '1.0'\n")
    for ranks in (1, 2):
        refused(rank(folder, f"import {package}", ranks=ranks), "horovod", "1.0", "horovod==")


_TRAINER = """
import types
import accelerate.utils
class TrainerCallback: ...
class Trainer:
    def __init__(self):
        self.args = types.SimpleNamespace(seed=7)
        self.create_accelerator_and_postprocess()
        self.callback_handler = types.SimpleNamespace(callbacks=[])
    def add_callback(self, callback): ...
    def create_accelerator_and_postprocess(self):
        config = accelerate.utils.DataLoaderConfiguration()
        self.accelerator = types.SimpleNamespace(dataloader_config=config)
"""
_CONFIGURATION = """
import dataclasses
@dataclasses.dataclass
class DataLoaderConfiguration:
    data_seed: int = None
"""
_MAKE_A_TRAINER = (
    "import transformers.trainer as t",
    "trainer = t.Trainer(); print(trainer.accelerator.dataloader_config)",
)


def test_a_trainer_of_hugging_face_that_fits_shuffles_by_its_own_seed(tmp_path: Path) -> None:
    files = {"transformers/trainer.py": _TRAINER, "accelerate/utils.py": _CONFIGURATION}
    make(tmp_path, {**files, "accelerate/state.py": _ACCELERATE})
    *_, config, trained = rank(tmp_path, *_MAKE_A_TRAINER)
    assert (config, trained) == ("DataLoaderConfiguration(data_seed=7)", "TRAINED")


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("transformers/trainer.py", "create_accelerator_and_postprocess", "_make_accelerator"),
        ("transformers/trainer.py", "self.accelerator =", "self.engine ="),
        ("transformers/trainer.py", "dataloader_config=config", "loading=config"),
        ("accelerate/utils.py", "data_seed", "order_seed"),
    ],
)
def test_a_trainer_whose_ranks_would_shuffle_differently_is_refused(
    tmp_path: Path, file: str, old: str, new: str
) -> None:
    """The hook was once guarded as if it only drew curves."""
    files = {"transformers/trainer.py": _TRAINER, "accelerate/utils.py": _CONFIGURATION}
    assert old in files[file]
    files[file] = files[file].replace(old, new)
    make(tmp_path, {**files, "accelerate/state.py": _ACCELERATE})
    (tmp_path / "transformers/__init__.py").write_text("__version__ = '9.0'\n")
    refused(rank(tmp_path, *_MAKE_A_TRAINER), "transformers", "9.0", "transformers==")


_WRITER = """
class SummaryWriter:
    def add_scalar(self, tag, scalar_value, global_step=None): print("drawn")
    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None): ...
    def add_hparams(self, hparam_dict, metric_dict): ...
"""
_TQDM = """
class tqdm:
    def __init__(self, items): self.items = items
    def __iter__(self): return iter(self.items)
    def refresh(self): ...
    def update(self, n=1): ...
    def close(self): ...
"""


_DRAWS = """
import sys
class tqdm:
    fp, disable = sys.stdout, False
    def __init__(self): self.fp = sys.stdout
    def display(self, msg=None, pos=None): ...
    def clear(self): ...
    def close(self): ...
    def start(self, refresh): ...
    def stop(self, refresh): ...
    def get_renderable(self): ...
"""


@pytest.mark.parametrize(
    ("files", "statements", "named"),
    [
        (
            {"torch/utils/tensorboard/writer.py": _WRITER.replace("SummaryWriter", "RunWriter")},
            ("import torch.utils.tensorboard.writer as w", "w.RunWriter().add_scalar('x', 1)"),
            "torch.utils.tensorboard.writer",
        ),
        (
            {"tensorboardX/writer.py": _WRITER.replace("scalar_value", "value").replace("tag,", "label,")},
            ("import tensorboardX.writer as w", "w.SummaryWriter().add_scalar(label='x', value=1)"),
            "SummaryWriter",
        ),
        (
            {"tensorboardX/_writing.py": _WRITER},
            (
                "import tensorboardX",
                "from tensorboardX._writing import SummaryWriter as W; W().add_scalar('x', 1)",
            ),
            "tensorboardX.writer",
        ),
        (
            {"tqdm/std.py": _TQDM.replace("class tqdm", "class Bar")},
            ("import tqdm.std", "list(tqdm.std.Bar([1]))"),
            "tqdm.std",
        ),
        (
            {"tqdm/_bars.py": _TQDM},
            ("import tqdm", "from tqdm._bars import tqdm as bar; list(bar([1]))"),
            "tqdm.std",
        ),
        ({"rich/bars.py": ""}, ("import rich", "import rich.bars"), "rich.progress"),
        (
            {"tqdm/std.py": _DRAWS},
            ("import tqdm.std as t", "bar = t.tqdm(); bar.display('x', 0); bar.clear(); bar.close()"),
            "tqdm",
        ),
        (
            {"rich/progress.py": _DRAWS.replace("tqdm", "Progress")},
            (
                "import rich.progress as r",
                "bar = r.Progress(); bar.start(1); bar.get_renderable(); bar.stop(2)",
            ),
            "Rich's progress",
        ),
    ],
    ids=[
        "missing class",
        "changed signature",
        "module moved",
        "renamed class",
        "tqdm moved",
        "rich moved",
        "renamed attributes of tqdm",
        "renamed attributes and more parameters of Rich",
    ],
)
def test_another_release_costs_curves_and_a_note_but_no_training(
    tmp_path: Path, files: dict[str, str], statements: tuple[str, ...], named: str
) -> None:
    *told, trained = rank(make(tmp_path, files), *statements)
    assert trained == "TRAINED"
    notes = [line for line in told if line.startswith("NOTE: ")]
    assert any(f"cannot log metrics of {named} automatically here" in note for note in notes)
    assert len(set(notes)) == len(notes), "each is told once"


@pytest.fixture
def torch_1_13(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A torch without what torch 2 has got."""
    torch = ModuleType("torch")
    torch.__version__ = "1.13.1"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(of_steps, "_torch", None)
    return torch


def test_without_hooks_of_optimizers_training_continues_with_a_note(
    torch_1_13: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    writer = SimpleNamespace(note=notes.append)
    monkeypatch.setattr(events, "writer", lambda: writer)
    module = ModuleType("torch.optim.optimizer")
    for _cell in range(2):  # of a session
        of_steps.patch_optimizer(module)
    assert [note.partition(" So ")[0] for note in notes] == [
        "torch 1.13.1 does not report an optimizer's steps."
    ]
    assert not of_steps.is_compiling()


def test_torchrun_of_torch_1_13_is_refused(torch_1_13: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"^torchrun of torch 1\.13\.1 lacks .* Use --backend ssh, or hosts"):
        torchrun_host.main()

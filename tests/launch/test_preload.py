"""What a template should import, and what that saves a forked rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_dist.launch.preload import expand
from tests.rigs.rank_maker import alone


def test_the_same_names_give_the_same_list() -> None:
    names = expand(["torch.nn", "numpy", "torch"])
    assert names == expand(["numpy", "torch", "torch.nn", "torch"])
    assert len(names) == len(set(names))
    assert {"torch", "torch._dynamo", "torch.nn", "numpy"} <= set(names)
    assert names.index("torch") < names.index("torch._dynamo")
    assert expand([]) == []


def test_the_user_s_own_modules_are_left_to_the_rank() -> None:
    assert expand(["my_model", "torchish", "os"]) == []
    assert "torch._dynamo" in expand(["lightning"]), "it trains with torch"


def test_a_template_for_tf_keras_does_not_import_keras_3() -> None:
    names = expand(["tensorflow", "tensorflow.keras.layers", "keras", "keras.layers"], legacy_keras=True)
    assert {"tensorflow", "tf_keras"} <= set(names)
    assert not [name for name in names if name.startswith(("keras", "tensorflow.keras"))]


PRELOADED = """
from jupyter_dist.launch import preload
names = preload.expand(sys.argv[1:])
assert not {"torch", "numpy", "tensorflow"} & set(sys.modules)
import importlib
for name in names:
    importlib.import_module(name)
assert len(os.listdir("/proc/self/task")) == 1, os.listdir("/proc/self/task")
import torch
before = set(sys.modules)
pid = os.fork()
if pid == 0:
    torch.set_num_threads(1)
    dist.init()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    data = torch.utils.data.TensorDataset(torch.randn(8, 4), torch.randint(0, 2, (8,)))
    from torch.utils.data.distributed import DistributedSampler
    for kind in (torch.optim.SGD, torch.optim.AdamW):
        optimizer = kind(model.parameters(), lr=0.1)
        for x, y in torch.utils.data.DataLoader(data, batch_size=4, sampler=DistributedSampler(data)):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    torch.save(model.state_dict(), "model.pt")
    torch.load("model.pt")
    from jupyter_dist.worker import api
    api._finish(True)
    print([name for name in set(sys.modules) - before if name.startswith("torch")], flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""


@pytest.mark.needs("torch")
def test_a_preloaded_process_has_one_thread_and_its_child_imports_no_more_torch(tmp_path: Path) -> None:
    assert alone(f"sys.argv[1:] = ['torch.nn']\n{PRELOADED}", tmp_path) == "[]\n"


@pytest.mark.needs("tensorflow", "tf_keras")
@pytest.mark.parametrize("legacy", [True, False])
def test_a_process_that_preloaded_tensorflow_has_one_thread(tmp_path: Path, legacy: bool) -> None:
    code = f"""
import importlib
from jupyter_dist.worker.keras import tf_keras as legacy_keras
from jupyter_dist.launch import preload
if {legacy}:
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
for name in preload.expand(["tensorflow", "keras"], legacy_keras={legacy}):
    importlib.import_module(name)
assert len(os.listdir("/proc/self/task")) == 1
if {legacy}:
    legacy_keras.arrange()
import keras
print(keras.__version__[0], keras.__name__)
"""
    assert alone(code, tmp_path) == ("2 tf_keras\n" if legacy else "3 keras\n")

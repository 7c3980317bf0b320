"""Kinds of objects of numpy, pandas and torch, trainer-like ones among them."""

from __future__ import annotations

from .pieces import Kind

__all__ = ["LIBRARIES"]

_NET = """
import torch
from torch import nn

class Net_N(nn.Module):
    def __init__(self, width=2):
        super().__init__()
        self.layer = nn.Linear(2, width)
        self.register_buffer("seen", torch.zeros(1))
    def forward(self, x):
        return self.layer(x).tanh()
---
torch.manual_seed(INT_A)
net_N = Net_N()
"""
_OUT = "net_N(torch.ones(1, 2)).sum().item()"

LIBRARIES = [
    Kind(
        "arrays",
        """
import numpy as np
---
a_N = np.arange(6.0).reshape(2, 3)
large_N = np.ones((600, 2)) * INT_A
also_N = large_N
fortran_N = np.asfortranarray(a_N)
""",
        (
            "a_N.tolist()",
            "large_N.sum()",
            "also_N is large_N",
            "fortran_N.flags.f_contiguous",
            "a_N.flags.writeable",
        ),
        needs=("numpy",),
        thing="a_N",
        look="IT.sum()",
    ),
    Kind(
        "odd arrays",
        """
import numpy as np
---
objects_N = np.array([{'a': 1}, CLASS(INT_A)], dtype=object)
records_N = np.zeros(2, dtype=[('a', int), ('b', 'U3')])
masked_N = np.ma.array([1, 2], mask=[0, 1])
scalar_N, dtype_N = np.float32(INT_B), np.dtype('int16')
""",
        ("objects_N[1].get()", "records_N.dtype.names", "masked_N.sum()", "scalar_N", "dtype_N"),
        needs=("numpy",),
    ),
    Kind(
        "view of an array",
        """
import numpy as np
---
base_N = np.arange(1000.0)
view_N = base_N[INT_A:500]
""",
        ("np.shares_memory(base_N, view_N)", "[base_N.__setitem__(slice(None), 7.0), view_N[0]]"),
        needs=("numpy",),
        noted="view_N|memory|view",
    ),
    Kind(
        "read-only array",
        """
import numpy as np
---
a_N = np.arange(1000.0)
a_N.flags.writeable = False
""",
        ("a_N.flags.writeable", "a_N.sum()"),
        needs=("numpy",),
    ),
    Kind(
        "functions of numpy",
        """
import numpy as np
import numpy.linalg
---
f_N, u_N, v_N = np.linalg.norm, np.add, np.vectorize(lambda x: x + INT_A)
rand_N = np.random.rand
""",
        (
            "f_N([3, 4])",
            "u_N(1, 2)",
            "v_N([1]).tolist()",
            "rand_N.__self__ is np.random.mtrand._rand",
            "[np.random.seed(INT_A), rand_N()]",
        ),
        needs=("numpy",),
    ),
    Kind(
        "generators of numpy",
        """
import numpy as np
---
rng_N = np.random.default_rng(INT_A)
old_N = np.random.RandomState(INT_A)
rng_N.random()
""",
        ("rng_N.random()", "old_N.rand()"),
        needs=("numpy",),
        thing="rng_N",
        look="IT.random()",
    ),
    Kind(
        "frames",
        """
import pandas as pd
---
frame_N = pd.DataFrame({'a': [1, INT_A], 'b': ['x', None]})
col_N = frame_N['a']
""",
        ("frame_N.to_dict()", "col_N.sum()", "frame_N.dtypes.astype(str).tolist()"),
        needs=("pandas",),
        thing="frame_N",
        look="IT.shape",
    ),
    Kind(
        "tensors",
        """
import torch
---
t_N = torch.arange(6.0).reshape(2, 3) * INT_A
view_N = t_N[0]
p_N = torch.nn.Parameter(torch.ones(2))
b_N = torch.ones(2, dtype=torch.bfloat16)
""",
        (
            "t_N.tolist()",
            "[t_N.zero_().sum().item(), view_N.tolist()]",
            "p_N.requires_grad",
            "b_N.dtype",
            "view_N.data_ptr() == t_N.data_ptr()",
        ),
        needs=("torch",),
        thing="t_N",
        look="IT.sum().item()",
    ),
    Kind(
        "torch modules of odd types",
        """
import torch
import torch.backends.cudnn as cudnn_N
---
ops_N, backends_N, mkldnn_N = torch.ops, torch.backends, torch.backends.mkldnn
F_N = torch.nn.functional
""",
        (
            "ops_N is torch.ops",
            "backends_N is torch.backends",
            "mkldnn_N is torch.backends.mkldnn",
            "cudnn_N is torch.backends.cudnn",
            "ops_N.aten.add(1, 2)",
            "F_N.__name__",
        ),
        needs=("torch",),
    ),
    Kind(
        "functions over odd modules",
        """
import torch
import torch.backends.cudnn as cudnn_N
---
def f_N(x):
    return cudnn_N.enabled, torch.ops.aten.add(x, INT_A), torch.backends.mkldnn.is_available()
""",
        ("f_N(2)",),
        needs=("torch",),
        function="f_N",
    ),
    Kind(
        "no_grad function",
        """
import torch
---
@torch.no_grad()
def f_N(x):
    return torch.is_grad_enabled(), x
---
@torch.inference_mode()
def g_N(x):
    return torch.is_inference_mode_enabled(), FUNCTION(x)
""",
        ("f_N(INT_A)", "g_N(1)", "f_N.__name__"),
        needs=("torch",),
        function="f_N",
    ),
    Kind(
        "torch generator",
        """
import torch
---
gen_N = torch.Generator().manual_seed(INT_A)
""",
        ("torch.rand(1, generator=gen_N).item()", "gen_N.device.type"),
        needs=("torch",),
        noted="[gG]enerator",
    ),
    Kind(
        "network",
        _NET,
        (
            _OUT,
            "isinstance(net_N, Net_N)",
            "[name for name, _ in net_N.named_parameters()]",
            "Net_N(3).layer.out_features",
        ),
        needs=("torch",),
        thing="net_N",
        look="len(list(IT.parameters()))",
    ),
    Kind(
        "network, optimizer and schedule",
        f"""
{_NET}---
opt_N = torch.optim.SGD(net_N.parameters(), lr=0.1, momentum=0.9)
plan_N = torch.optim.lr_scheduler.StepLR(opt_N, 1)
---
def step_N(x):
    opt_N.zero_grad()
    loss = net_N(torch.ones(1, 2) * x).sum()
    loss.backward()
    opt_N.step()
    plan_N.step()
    return loss.item(), plan_N.get_last_lr()
---
step_N(1)
""",
        (
            "opt_N.param_groups[0]['params'][0] is next(net_N.parameters())",
            "plan_N.optimizer is opt_N",
            "step_N(1)",
            "step_N(2)",
            _OUT,
        ),
        needs=("torch",),
        function="step_N",
    ),
    Kind(
        "tied weights",
        """
import torch
---
a_N, b_N = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
b_N.weight = a_N.weight
both_N = torch.nn.Sequential(a_N, b_N)
""",
        ("a_N.weight is b_N.weight", "len(list(both_N.parameters()))", "both_N[0] is a_N"),
        needs=("torch",),
    ),
    Kind(
        "hooks on a network",
        f"""
{_NET}---
seen_N = []
handle_N = net_N.register_forward_hook(lambda module, args, out: seen_N.append(INT_B))
""",
        (_OUT, "seen_N", "[handle_N.remove(), len(net_N._forward_hooks)]"),
        needs=("torch",),
    ),
    Kind(
        "data",
        """
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset
---
class Data_N(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return torch.tensor([float(i)]), FUNCTION(i)
---
def collate_N(rows):
    return len(rows), rows[0][0].item()
---
loader_N = DataLoader(Data_N(), batch_size=2, collate_fn=collate_N)
""",
        (
            "list(loader_N)",
            "loader_N.batch_size",
            "loader_N.dataset[1][0].item()",
            "isinstance(loader_N.dataset, Data_N)",
        ),
        needs=("torch",),
        thing="loader_N",
        look="len(IT)",
    ),
    Kind(
        "autograd function",
        """
import torch
---
class Twice_N(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        return grad * INT_A
---
def f_N(x):
    t = torch.tensor(float(x), requires_grad=True)
    Twice_N.apply(t).backward()
    return t.grad.item()
""",
        ("f_N(2)",),
        needs=("torch",),
        function="f_N",
    ),
    Kind(
        "tensor with a gradient",
        """
import torch
---
w_N = torch.ones(2, requires_grad=True)
(w_N * INT_A).sum().backward()
""",
        ("w_N.grad.tolist()", "w_N.is_leaf"),
        needs=("torch",),
    ),
    Kind(
        "compiled function",
        """
import torch
---
@torch.compile(backend='eager')
def f_N(x):
    return x + INT_A
""",
        ("f_N(torch.ones(1)).item()", "f_N.__name__"),
        needs=("torch",),
    ),
    Kind(
        "scaler and amp",
        """
import torch
---
scaler_N = torch.amp.GradScaler('cpu', enabled=False)
auto_N = torch.autocast('cpu', enabled=False)
""",
        ("scaler_N.get_scale()", "auto_N.device"),
        needs=("torch",),
    ),
    Kind(
        "torch types",
        """
import torch
---
device_N, dtype_N, size_N = torch.device('cpu'), torch.float16, torch.Size([1, INT_A])
""",
        ("device_N", "dtype_N is torch.float16", "size_N"),
        needs=("torch",),
    ),
]

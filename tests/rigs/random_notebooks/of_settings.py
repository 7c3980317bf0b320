"""Kinds of settings made in the notebook."""

from __future__ import annotations

from .pieces import Kind

__all__ = ["SETTINGS"]

_DRAWN = "[{module}.seed(1), {module}.random()]"

SETTINGS = [
    Kind(
        "decimal context",
        """
import decimal
---
decimal.getcontext().prec = INT_A + 3
""",
        ("decimal.Decimal(1) / 3", "decimal.getcontext().prec"),
        noted="decimal",
    ),
    Kind(
        "warnings filter",
        """
import warnings
---
warnings.filterwarnings('ignore', message='own_N')
""",
        ("any(f[1] is not None and 'own_N' in f[1].pattern for f in warnings.filters)",),
        noted="warning",
    ),
    Kind(
        "logging level",
        """
import logging
---
logging.basicConfig(level=logging.INFO, format='own_N %(message)s', force=True)
""",
        ("logging.getLogger().level", "[h.formatter._fmt for h in logging.getLogger().handlers]"),
        noted="logging",
    ),
    Kind(
        "level of a logger",
        """
import logging
---
logging.getLogger('own_N').setLevel(logging.ERROR)
logging.getLogger('own_N').propagate = False
""",
        ("logging.getLogger('own_N').level", "logging.getLogger('own_N').propagate"),
        noted="logging|own_N",
    ),
    Kind(
        "locale",
        """
import locale
---
locale.setlocale(locale.LC_NUMERIC, 'C.UTF-8')
""",
        ("locale.setlocale(locale.LC_NUMERIC)",),
        noted="locale",
    ),
    Kind(
        "environment variable",
        """
import os
---
os.environ['OWN_N'] = 'INT_A'
""",
        ("os.environ.get('OWN_N')",),
        noted="environ|OWN_N",
    ),
    Kind(
        "recursion limit",
        """
import sys
---
sys.setrecursionlimit(5000 + INT_A)
""",
        ("sys.getrecursionlimit() >= 5000",),
        noted="recursion",
    ),
    Kind(
        "search path",
        """
import sys
---
sys.path.insert(0, 'extra_N')
""",
        ("any(path.endswith('extra_N') for path in sys.path)",),
    ),
    Kind(
        "numpy print options",
        """
import numpy as np
---
np.set_printoptions(precision=INT_A, suppress=True)
""",
        ("str(np.array([1 / 3]))", "np.get_printoptions()['precision']"),
        needs=("numpy",),
        noted="numpy",
    ),
    Kind(
        "numpy error handling",
        """
import numpy as np
---
np.seterr(divide='ignore')
""",
        ("np.geterr()['divide']",),
        needs=("numpy",),
        noted="numpy",
    ),
    Kind(
        "torch default dtype",
        """
import torch
---
torch.set_default_dtype(torch.float64)
""",
        ("torch.get_default_dtype()", "torch.ones(1).dtype"),
        needs=("torch",),
        noted="torch",
    ),
    Kind(
        "torch grad mode",
        """
import torch
---
torch.set_grad_enabled(False)
""",
        ("torch.is_grad_enabled()", "torch.ones(1, requires_grad=True).mul(2).requires_grad"),
        needs=("torch",),
        noted="torch|grad",
    ),
    Kind(
        "torch deterministic",
        """
import torch
---
torch.use_deterministic_algorithms(True)
""",
        ("torch.are_deterministic_algorithms_enabled()",),
        needs=("torch",),
        noted="torch",
    ),
    Kind(
        "torch matmul precision",
        """
import torch
---
torch.set_float32_matmul_precision('medium')
""",
        ("torch.get_float32_matmul_precision()",),
        needs=("torch",),
        noted="torch",
    ),
    Kind(
        "torch print options",
        """
import torch
---
torch.set_printoptions(precision=2)
""",
        ("str(torch.tensor([1 / 3]))",),
        needs=("torch",),
        noted="torch",
    ),
    Kind(
        "torch backend flags",
        """
import torch
import torch.backends.cudnn as cudnn_N
---
cudnn_N.benchmark = True
torch.backends.cudnn.deterministic = True
""",
        ("cudnn_N.benchmark", "torch.backends.cudnn.deterministic"),
        needs=("torch",),
        noted="torch",
    ),
    Kind(
        "pandas options",
        """
import pandas as pd
---
pd.set_option('display.max_rows', INT_A + 1)
""",
        ("pd.get_option('display.max_rows')",),
        needs=("pandas",),
        noted="pandas",
    ),
]

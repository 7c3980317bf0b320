"""Kinds of what no code of the cell names: names in texts and files, and what cells have registered."""

from __future__ import annotations

from .pieces import Kind

__all__ = ["HABITS"]

HABITS = [
    Kind(
        "class that only a file names",
        """
import pickle
---
class Kept_N:
    def __init__(self, n):
        self.n = n
    def get(self):
        return self.n + INT_B
---
with open('kept_N.pkl', 'wb') as out_N:
    pickle.dump(Kept_N(INT_A), out_N)
""",
        ("pickle.load(open('kept_N.pkl', 'rb')).get()",),
    ),
    Kind(
        "function that only a file names",
        """
import pickle
---
def scale_N(x):
    return x * INT_A
---
with open('scale_N.pkl', 'wb') as out_N:
    pickle.dump([scale_N, INT_B], out_N)
""",
        ("[(f, x) for f, x in [pickle.load(open('scale_N.pkl', 'rb'))]][0][0](3)",),
    ),
    Kind(
        "names in a query",
        """
import pandas as pd
---
cut_N = INT_A
def odd_N(x):
    return x % 2 == 1
rows_N = pd.DataFrame({'n': range(12)})
""",
        (
            "len(rows_N.query('n >= @cut_N'))",
            "rows_N.query('@odd_N(n)').n.sum()",
            "rows_N.eval('n + @cut_N').sum()",
        ),
        needs=("pandas",),
    ),
    Kind(
        "names in a text that is evaluated",
        """
amount_N = INT_A
text_N = 'amount_N * 2'
---
def grow_N(x):
    return FUNCTION(x) + amount_N
""",
        ("eval('amount_N + 1')", "eval(text_N)", "eval('grow_N(2)', globals())", "eval('CLASS(3).get()')"),
    ),
    Kind(
        "names asked of globals",
        """
part_N = INT_A
def build_N(x=2):
    return x + part_N
class Built_N:
    size = INT_B
""",
        (
            "globals()['build_N']()",
            "globals()[''.join(('bui', 'ld_N'))](4)",
            "globals().get(''.join(('Bui', 'lt_N'))).size",
            "'build_N' in globals()",
        ),
    ),
    Kind(
        "annotations that are text",
        """
import dataclasses, typing
---
class Width_N:
    size = INT_A
---
@dataclasses.dataclass
class Config_N:
    width: 'Width_N'
def make_N(x: 'Width_N') -> 'Config_N':
    return Config_N(x)
""",
        (
            "typing.get_type_hints(make_N)['x'].size",
            "typing.get_type_hints(make_N)['return'].__name__",
            "typing.get_type_hints(Config_N)['width'].size",
        ),
    ),
    Kind(
        "setting of scikit-learn",
        """
import sklearn
from sklearn.linear_model import LinearRegression
---
sklearn.set_config(working_memory=INT_A, transform_output='default')
line_N = LinearRegression().fit([[0.0], [1.0]], [0.0, INT_B])
""",
        ("sklearn.get_config()['working_memory']", "round(line_N.predict([[2.0]])[0], 6)"),
        needs=("sklearn",),
        noted="sklearn",
    ),
    Kind(
        "accessor of pandas",
        """
import pandas as pd
---
@pd.api.extensions.register_dataframe_accessor('own_N')
class Own_N:
    def __init__(self, frame):
        self._frame = frame
    def total(self):
        return int(self._frame.n.sum())
---
frame_N = pd.DataFrame({'n': [1, INT_A]})
""",
        ("frame_N.own_N.total()",),
        needs=("pandas",),
    ),
    Kind(
        "operator of torch",
        """
import torch
---
@torch.library.custom_op('own_N::grow', mutates_args=())
def grow_N(x: torch.Tensor) -> torch.Tensor:
    return x * INT_A
""",
        ("torch.ops.own_N.grow(torch.ones(1)).item()", "grow_N(torch.ones(1)).item()"),
        needs=("torch",),
    ),
    Kind(
        "library of operators of torch",
        """
import torch
---
torch.library.define('lib_N::plus', '(Tensor x) -> Tensor')
---
@torch.library.impl('lib_N::plus', 'cpu')
def plus_N(x):
    return x + INT_A
""",
        ("torch.ops.lib_N.plus(torch.ones(1)).item()",),
        needs=("torch",),
    ),
    Kind(
        "maps of files",
        """
import numpy as np
---
np.arange(INT_A, 20.0).tofile('data_N.bin')
np.save('data_N.npy', np.ones(5) * INT_B)
---
map_N = np.memmap('data_N.bin', dtype='float64', mode='r')
written_N = np.memmap('written_N.bin', dtype='int32', mode='w+', shape=(3,))
written_N[:] = INT_B
loaded_N = np.load('data_N.npy', mmap_mode='r')
""",
        (
            "map_N[1]",
            "(type(map_N).__name__, map_N.flags.writeable, map_N.mode)",
            "written_N.tolist()",
            "(type(loaded_N).__name__, loaded_N.sum())",
        ),
        needs=("numpy",),
    ),
]

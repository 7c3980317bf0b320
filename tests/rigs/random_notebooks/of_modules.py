"""Kinds of modules: installed ones of odd types, and those beside the notebook."""

from __future__ import annotations

from .pieces import Kind

__all__ = ["MODULES"]

_CONFIG = """
LR = 0.1
TABLE = {"a": 1}
NAMES = []

class Options:
    depth = 1

def lr():
    return LR

def table():
    return dict(TABLE)
"""

_LAZY = """
import importlib

def __getattr__(name):
    if name == "part":
        return importlib.import_module(".part", __name__)
    raise AttributeError(name)
"""

_REPLACED = """
import sys
import types

class _Module(types.ModuleType):
    value = 3
    @property
    def twice(self):
        return self.value * 2

_old = sys.modules[__name__]
_new = _Module(__name__)
_new.__dict__.update(vars(_old))
sys.modules[__name__] = _new
"""

_OBJECT = """
import sys

class _Settings:
    depth = 2
    def get(self):
        return self.depth

sys.modules[__name__] = _Settings()
"""

_OWN_CLASS = """
import sys
import types

class _Callable(types.ModuleType):
    def __call__(self, x):
        return "called", x

sys.modules[__name__].__class__ = _Callable
"""

MODULES = [
    Kind(
        "module",
        """
import json as json_N, os.path as path_N
---
mods_N = {'j': json_N}
""",
        (
            "json_N.dumps(INT_A)",
            "mods_N['j'] is json_N",
            "path_N.basename('a/b')",
            "json_N is __import__('json')",
        ),
    ),
    Kind(
        "submodule reached by attribute",
        """
import xml.dom.minidom
---
xml_N = xml
---
def f_N(x):
    return xml_N.dom.minidom.__name__, x
""",
        (
            "xml_N.dom.minidom.__name__",
            "f_N(INT_A)",
            "xml.dom.minidom.parseString('<a/>').documentElement.tagName",
        ),
        function="f_N",
    ),
    Kind(
        "modules under other names",
        """
import concurrent.futures as futures_N
from importlib import metadata as metadata_N
from os import path as path_N
""",
        ("futures_N.ThreadPoolExecutor.__name__", "metadata_N.__name__", "path_N.__name__"),
    ),
    Kind(
        "functions and classes of modules",
        """
from json import dumps as dumps_N
from collections import OrderedDict as dict_N
from math import floor as floor_N
""",
        ("dumps_N(INT_A)", "dict_N(a=1)", "floor_N(2.5)", "dumps_N is __import__('json').dumps"),
    ),
    Kind(
        "star import",
        "from stars_N import *",
        ("star_N(2)", "STAR_N", "'hidden_N' in globals()"),
        {
            "stars_N.py": """
__all__ = ['star_N', 'STAR_N']
STAR_N = INT_A
hidden_N = 1
def star_N(x):
    return x + STAR_N
"""
        },
        function="star_N",
    ),
    Kind(
        "module beside the notebook",
        """
import config_N
---
def f_N(x):
    return x * config_N.LR
""",
        ("config_N.lr()", "f_N(2)", "config_N.Options.depth", "config_N.__name__"),
        {"config_N.py": _CONFIG},
        function="f_N",
    ),
    Kind(
        "package beside the notebook",
        """
import pack_N.deep.inner
from pack_N.deep import inner as inner_N
---
class C_N(pack_N.deep.inner.Base):
    pass
""",
        ("C_N(INT_A).get()", "inner_N is pack_N.deep.inner", "pack_N.NAME", "inner_N.text()"),
        {
            "pack_N/__init__.py": """
from .deep.inner import NAME
""",
            "pack_N/deep/__init__.py": "",
            "pack_N/deep/inner.py": """
from pathlib import Path
NAME = 'inner'
class Base:
    def __init__(self, x):
        self.x = x
    def get(self):
        return NAME, self.x
def text():
    return Path(__file__).with_name('data.txt').read_text()
""",
            "pack_N/deep/data.txt": "some data",
        },
        cls="C_N",
    ),
    Kind(
        "namespace package beside the notebook",
        """
import space_N.part
---
space_again_N = space_N
""",
        ("space_N.part.value", "space_again_N.part is space_N.part"),
        {
            "space_N/part.py": """
value = INT_A
"""
        },
    ),
    Kind(
        "lazy package beside the notebook",
        """
import lazy_N
lazy_N.part.value
---
part_N = lazy_N.part
""",
        ("lazy_N.part.value", "part_N is lazy_N.part"),
        {
            "lazy_N/__init__.py": _LAZY,
            "lazy_N/part.py": """
value = INT_A
""",
        },
    ),
    Kind(
        "module that replaced itself",
        """
import swapped_N
---
mod_N = swapped_N
""",
        ("swapped_N.twice", "mod_N is __import__('sys').modules['swapped_N']"),
        {"swapped_N.py": _REPLACED},
    ),
    Kind(
        "module that is an object",
        """
import settings_N
---
def f_N(x):
    return settings_N.get(), x
""",
        ("settings_N.get()", "f_N(INT_A)"),
        {"settings_N.py": _OBJECT},
        function="f_N",
    ),
    Kind(
        "module with a class of its own",
        "import called_N",
        ("called_N(INT_A)", "type(called_N).__name__"),
        {"called_N.py": _OWN_CLASS},
        function="called_N",
    ),
    Kind(
        "module made in the notebook",
        """
import types
---
made_N = types.ModuleType('made_N')
made_N.x = INT_A
exec('def get(): return x', vars(made_N))
""",
        ("made_N.x", "made_N.get()", "made_N.__name__"),
        one_python=True,
    ),
    Kind(
        "module loaded late",
        """
import importlib.util, sys
---
spec_N = importlib.util.find_spec('config_N')
spec_N.loader = importlib.util.LazyLoader(spec_N.loader)
late_N = importlib.util.module_from_spec(spec_N)
sys.modules['config_N'] = late_N
spec_N.loader.exec_module(late_N)
del spec_N
""",
        ("late_N.LR", "late_N.lr()"),
        {"config_N.py": _CONFIG},
    ),
    Kind(
        "attribute set on a module beside the notebook",
        """
import config_N
---
config_N.LR = INT_A
---
from config_N import lr as lr_N
""",
        ("config_N.LR", "config_N.lr()", "lr_N()"),
        {"config_N.py": _CONFIG},
        noted="config_N",
        earlier=True,
    ),
    Kind(
        "table changed in a module beside the notebook",
        """
import config_N
---
config_N.TABLE['b'] = INT_A
config_N.NAMES.append('x')
""",
        ("config_N.table()", "config_N.NAMES"),
        {"config_N.py": _CONFIG},
        noted="config_N",
        earlier=True,
    ),
    Kind(
        "attribute set on a class beside the notebook",
        """
from config_N import Options as Options_N
---
Options_N.depth = INT_A + 10
""",
        ("Options_N.depth", "__import__('config_N').Options.depth"),
        {"config_N.py": _CONFIG},
        noted="config_N|Options",
        earlier=True,
    ),
    Kind(
        "registry in a module beside the notebook",
        """
import registry_N
---
@registry_N.register
def f_N(x):
    return x + INT_A
""",
        ("f_N(2)", "sorted(registry_N.KNOWN)", "registry_N.KNOWN.get('f_N') is f_N"),
        {
            "registry_N.py": """
KNOWN = {}
def register(function):
    KNOWN[function.__name__] = function
    return function
"""
        },
        function="f_N",
        noted="registry_N",
        earlier=True,
    ),
    Kind(
        "counter that ran in a module beside the notebook",
        """
import config_N, counter_N
---
counter_N.up()
counter_N.up()
""",
        ("counter_N.count",),
        {
            "counter_N.py": """
count = 0
def up():
    global count
    count += 1
    return count
""",
            "config_N.py": _CONFIG,
        },
        anew=True,
        earlier=True,
    ),
    Kind(
        "function put into a module",
        """
import config_N
---
def own_lr_N():
    return 'own', INT_A
---
config_N.lr = own_lr_N
""",
        ("config_N.lr()", "config_N.lr is own_lr_N"),
        {"config_N.py": _CONFIG},
        noted="config_N",
        earlier=True,
    ),
]

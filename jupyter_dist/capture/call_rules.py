"""Rules for the calls of earlier cells that ranks repeat: which functions, and with which arguments.

A rank repeats a call only if the call changes a library inside the process, and nothing else. A wrong
repetition is worse than a note: it could create files, use the network or take another rank's GPU.
"""

from __future__ import annotations

import ast
import builtins
import enum
import re
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..worker.settings.libraries import LIBRARIES

__all__ = [
    "MAYBE",
    "Callee",
    "changes_argument",
    "dotted",
    "has_row",
    "is_from",
    "is_in_table",
    "is_plain",
    "resolve",
    "resolve_container",
]

_CUSTOM_OBJECTS = "get_custom_objects"
"""The function of Keras that returns its dict of registered objects."""
_NAME = (
    r"(?:un|de)?register(?:[A-Z_]\w*)?|\w+_register|add_\w+|set_\w+|(?:enable|disable)_\w+|clear_\w+"
    r"|field_size_limit|parallel_config|parallel_backend"
)
_ALLOWED = re.compile(_NAME)
_ALSO = {("copyreg", "pickle"), ("copyreg", "constructor"), ("tqdm", "pandas"), ("jax", "update")}
_ALSO |= {("torch", name) for name in ("define", "impl", "impl_abstract", "custom_op", "triton_op")}
"""A library and a name that is not in the pattern."""
MAYBE = re.compile(rf"\b(?:{_NAME}|{_CUSTOM_OBJECTS}|{'|'.join(sorted(name for _, name in _ALSO))})\b")
"""Pattern of the text of every cell with a call that may be repeated."""

_OF_A_RANK = re.compile(
    "device|gpu|cuda|visible|memory|thread|(?<!pre)process|group|rank|distributed|strategy|seed|rng"
    "|start_method|epoch|stream|trace|profile|dump|event_loop|signal|handler|excepthook"
    "|token|key|secret|passw|credential|auth|login|session|proxy|url|uri|endpoint|tracking|experiment"
    "|project|model_version|_file|_dir|path|cache_"
)
"""Pattern of functions whose effect differs by rank, or needs files, credentials or a service."""
_SERVICES = frozenset(
    "IPython airflow azure azureml boto3 botocore cloudpickle comet_ml dagster dash databricks dask "
    "deepspeed distributed flask fastapi google gradio grpc horovod httpx huggingface_hub ipykernel "
    "ipywidgets jupyter_dist kaggle kubernetes matplotlib_inline mlflow mpi4py neptune openai prefect "
    "pyspark ray requests sagemaker streamlit urllib3 wandb".split()
)
"""Libraries that call services or other processes, or that belong to the notebook alone."""
_OF_TORCHS_DEVICES = ("torch.cuda.", "torch.distributed.", "torch.mps.", "torch.xpu.")
_NOT_OF_PYTHON = frozenset(
    "asyncio atexit builtins faulthandler gc logging multiprocessing os resource selectors signal socket "
    "subprocess sys tempfile threading tracemalloc warnings webbrowser".split()
)
"""Modules of Python whose functions are for one process, or whose settings are captured elsewhere."""

_PURE = frozenset(
    "asarray arange array from_dict from_levels_and_colors from_list linspace ones zeros".split()
)
"""Functions of libraries that only make a value."""
_PURE_BUILTINS = frozenset(
    "abs bool bytes complex dict enumerate filter float frozenset getattr hasattr int isinstance issubclass "
    "len list map max min object range repr reversed round set slice sorted str sum tuple type zip".split()
)
_PLAIN_NODES = (
    *(ast.Constant, ast.Name, ast.Attribute, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Starred),
    *(ast.keyword, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.Subscript, ast.Slice, ast.IfExp),
    *(ast.JoinedStr, ast.FormattedValue, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
    *(ast.comprehension, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.Lambda),
)

_CONSTRUCTORS_WITH_EFFECTS = re.compile(
    "Client|Connection|Dir|Executor|File|Logger|Pool|Process|Run|Server|Session|Socket|Thread|Writer"
)

Import = tuple[str, str]
"""A module and the name in it, of `from module import name`."""


class Callee(NamedTuple):
    """A function of a library that an earlier cell has called."""

    library: str
    shown: str


def dotted(node: ast.AST) -> list[str] | None:
    """Return `a.b.c` as a list of names. A call of `get_custom_objects` counts as a name."""
    parts: list[str] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Call) and not node.args and not node.keywords:
            inner = dotted(node.func)
            if not inner or inner[-1] != _CUSTOM_OBJECTS:
                return None
            return [*inner, *reversed(parts)]
        if not isinstance(node, ast.Attribute):
            return None
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)]


def resolve(
    node: ast.AST,
    namespace: Mapping[str, Any],
    imported: Mapping[str, Import],
    is_own: Callable[[str], bool],
) -> Callee | None:
    """Return the function that an expression names, if a rank may repeat calls of it.

    `imported` are the names that cells have imported from modules. `is_own` returns whether a top-level
    module is the user's.
    """
    names = dotted(node)
    if names is None:
        return None
    target = _follow(names, namespace, imported)
    if target is None:
        return None
    library, function = target
    name = names[-1] if len(names) > 1 or names[0] not in imported else imported[names[0]][1]
    if _CUSTOM_OBJECTS in names[:-1] and name in ("update", "setdefault"):
        name = "register"
    elif not callable(function) or not (_ALLOWED.fullmatch(name) or (library, name) in _ALSO):
        return None
    homes = {library, *_homes(function)}
    if homes & _SERVICES or _OF_A_RANK.search(name) or any(map(is_own, homes)):
        return None
    inner = getattr(function, "__module__", None) or ""
    if f"{inner}.".startswith(_OF_TORCHS_DEVICES):
        return None
    top = inner.partition(".")[0]
    if top not in ("", "builtins", *sys.stdlib_module_names):
        library = top
    if library in sys.stdlib_module_names and (library in _NOT_OF_PYTHON or name.startswith(_SWITCHES)):
        return None
    return Callee(library, f"{ast.unparse(node)}(...)")


def resolve_container(
    node: ast.AST, namespace: Mapping[str, Any], imported: Mapping[str, Import], is_own: Callable[[str], bool]
) -> Callee | None:
    """Return the library's dict or list that an expression names, as after `from library import TABLE`.

    Containers that are named by their module, as in `library.TABLE`, are captured with its attributes.
    """
    names = dotted(node)
    if names is None or not (names[-1] == _CUSTOM_OBJECTS or (len(names) == 1 and names[0] in imported)):
        return None
    target = _follow(names, namespace, imported)
    if target is None or not isinstance(target[1], dict | list):
        return None
    library = target[0]
    if library in _SERVICES or library in sys.stdlib_module_names or is_own(library):
        return None
    return Callee(library, f"{ast.unparse(node)}[...]")


def changes_argument(node: ast.stmt, call: ast.Call, namespace: Mapping[str, Any]) -> bool:
    """Return whether a statement's call probably changes an object of the notebook, and not the library.

    An example is `nx.add_path(graph, nodes)`. The object is sent after the change. A rank that repeats the
    call would change the object twice. A method of a library's object changes that object. A function with
    one argument and no result may store the argument in the library.
    """
    target, names = dotted(call.func), _names_of(call.args[0]) if call.args else []
    if target is None or not names or names[0] not in namespace:
        return False
    if len(call.args) + len(call.keywords) < 2 and not isinstance(node, ast.Assign):
        return False
    found = _follow(target, namespace, {target[0]: ("", "")})
    owner = getattr(found[1] if found else namespace.get(target[0]), "__self__", None)
    if owner is not None and not isinstance(owner, type | types.ModuleType):
        return False
    first = value = namespace[names[0]]
    for name in names[1:]:
        value = getattr(value, name, None)
    if isinstance(first, _NO_OBJECTS) or type(first).__module__ in ("builtins", "functools"):
        return False
    # What cannot change, such as a number of a configuration, is an argument alone.
    if value is None or isinstance(value, (*_NO_OBJECTS, *_UNCHANGEABLE)):
        return False
    # An object with an own `__call__` serves as a function.
    return not any(base.__module__ == "__main__" and "__call__" in vars(base) for base in type(first).__mro__)


def _names_of(node: ast.AST) -> list[str]:
    """Return `a`, `b` of `a.b`, and of `a.b[0].c`. Empty for other expressions."""
    while not (names := dotted(node)) and isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return names or []


_NO_OBJECTS = (type, types.ModuleType, types.FunctionType)
_UNCHANGEABLE = (str, bytes, int, float, complex, tuple, frozenset, enum.Enum)
_SWITCHES = ("set_", "enable_", "disable_", "add_", "clear_")


def _homes(function: Any) -> set[str]:
    owner = getattr(function, "__self__", None)
    found = [getattr(function, "__module__", None), getattr(owner, "__module__", None)]
    found += [getattr(type(owner), "__module__", None)] if owner is not None else []
    return {home.partition(".")[0] for home in found if isinstance(home, str)} - {"builtins"}


def _follow(
    names: list[str], namespace: Mapping[str, Any], imported: Mapping[str, Import]
) -> tuple[str, Any] | None:
    """Return the library in which a dotted name begins, and the object that it leads to.

    None unless it begins with a module, with a library's function or class, or with a name that was imported.
    """
    root, *path = names
    if root not in namespace:
        return None
    value = namespace[root]
    if isinstance(value, types.ModuleType):
        home = value.__name__
    elif root in imported and is_from(value, imported[root]):
        home = imported[root][0]
    elif isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        home = getattr(value, "__module__", None) or ""
    else:
        return None
    if home in ("", "__main__"):
        return None
    for name in path:
        value = vars(value).get(name) if type(value) is types.ModuleType else _attribute(value, name)
        if name == _CUSTOM_OBJECTS and callable(value):
            value = value()  # returns a dict of the library, and changes nothing
        if value is None:
            return None
    return home.partition(".")[0], value


def _attribute(owner: Any, name: str) -> Any:
    """Return an attribute that the notebook has read before, as of a class or a lazy module."""
    if isinstance(getattr(type(owner), name, None), property):
        return None
    try:
        return getattr(owner, name)
    except Exception:  # any code may run in a library's __getattr__
        return None


def is_from(value: Any, place: Import) -> bool:
    """Return whether a value is what `from module import name` gives now."""
    module = sys.modules.get(place[0])
    return module is not None and vars(module).get(place[1]) is value


def is_plain(node: ast.AST, namespace: Mapping[str, Any]) -> bool:
    """Return whether an expression only makes a value: of names, constants, classes of libraries, lambdas."""
    if isinstance(node, ast.Lambda):
        defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        return all(is_plain(default, namespace) for default in defaults)
    if isinstance(node, ast.Call):
        if not _makes_a_value(node.func, namespace):
            return False
    elif not isinstance(node, _PLAIN_NODES):
        return False
    return all(is_plain(child, namespace) for child in ast.iter_child_nodes(node))


def _makes_a_value(node: ast.expr, namespace: Mapping[str, Any]) -> bool:
    names = dotted(node)
    if names is None:
        return False
    if names[0] not in namespace:
        return len(names) == 1 and names[0] in _PURE_BUILTINS and hasattr(builtins, names[0])
    target = _follow(names, namespace, {})
    if target is None:
        return False
    library, value = target
    if library in _SERVICES or (library in sys.stdlib_module_names and library in _NOT_OF_PYTHON):
        return False
    if isinstance(value, type):
        return not _CONSTRUCTORS_WITH_EFFECTS.search(value.__name__)
    return names[-1] in _PURE


_KERAS = "set_dtype_policy set_epsilon set_floatx set_global_policy set_image_data_format".split()
_KERAS += ["enable_traceback_filtering", "disable_traceback_filtering"]
_KERAS += ["enable_interactive_logging", "disable_interactive_logging"]
_IN_TABLE = {
    "keras": _KERAS,
    "numpy": ["set_printoptions"],
    "pandas": ["set_option"],
    "sklearn": ["set_config"],
    "tensorflow": ["enable_op_determinism", "enable_tensor_float_32_execution", "set_jit"],
    "tf_keras": _KERAS,
    "torch": [
        *("set_default_dtype", "set_deterministic_debug_mode", "set_float32_matmul_precision"),
        *("set_grad_enabled", "set_printoptions", "enable_cudnn_sdp", "enable_flash_sdp"),
        *("enable_math_sdp", "enable_mem_efficient_sdp"),
    ],
}
"""Functions of libraries that only set what the table of settings reads."""


def is_in_table(callee: Callee) -> bool:
    """Return whether the table of settings has what a function sets. A rank then gets the present value.

    The notebook may have set another value since, for example in a function or with `pd.reset_option`.
    """
    return callee.shown.partition("(")[0].rpartition(".")[2] in _IN_TABLE.get(callee.library, ())


def has_row(library: str) -> bool:
    """Return whether the table of settings has the library's settings, however they were set."""
    return library in LIBRARIES

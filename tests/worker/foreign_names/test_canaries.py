"""Private names of other libraries: all are registered, and a version that lacks one is told."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.capture import kernel_settings
from jupyter_dist.worker import foreign_names
from jupyter_dist.worker.foreign_names import DOCUMENTED, ROWS, TRIED, ForeignNameMissing, Missing, Probe, Row

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "jupyter_dist"
FILES = {
    str(path.relative_to(PACKAGE).with_suffix("")): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if "foreign_names" not in path.parts
}
LIBRARIES = sorted({row.library for row in ROWS} - set(sys.stdlib_module_names))
NO_NAMES = {
    "_group_": "a part of what Ray calls resources of placement groups",
    "_attempt_": "a part of our folders' names",
    "_s": "the unit in our names",
    "_horovod": "our own mark on an optimizer",
    "_built": "the end of names of functions that Horovod documents",
    "_enabled": "the end of names of functions that Keras documents",
    **dict.fromkeys(("_declared", "_suite", "_worked"), "our own modules"),
}
_PRIVATE = re.compile(r"_[A-Za-z]\w*")
_PATH = re.compile(r"[\w.]*\.?_[A-Za-z][\w.]*")


@functools.cache
def _nodes(user: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(FILES[user].read_text())))


@functools.cache
def _own(user: str) -> frozenset[str]:
    """The private names that a file of ours defines: functions, classes, variables, attributes of `self`."""
    found: set[str] = set()
    for node in _nodes(user):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
    found |= {node.attr for node in _attributes_of_self(user) if isinstance(node.ctx, ast.Store)}
    return frozenset(name for name in found if _PRIVATE.fullmatch(name))


def _attributes_of_self(user: str) -> Iterator[ast.Attribute]:
    """The attributes of `self` in methods of ours. What is put into a class of theirs has `self: Any`."""
    for method in _nodes(user):
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and method.args.args:
            first = method.args.args[0]
            if first.arg not in ("self", "cls", "sub") or first.annotation is not None:
                continue
            for node in ast.walk(method):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    yield from [node] if node.value.id == first.arg else []


def _imported(user: str) -> set[str]:
    """The files of ours that a file imports from, lazy imports included."""
    found = set()
    folder = Path(user).parent
    for node in _nodes(user):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        base = folder
        for _ in range(node.level - 1):
            base = base.parent
        base = base / (node.module or "").replace(".", "/")
        for place in (base, base / "__init__", *(base / alias.name for alias in node.names)):
            if str(place) in FILES:
                found.add(str(place))
    return found


def _texts(user: str) -> Iterator[tuple[int, str]]:
    """The strings of a file that name something, without docstrings and keys of what we write ourselves."""
    nodes = _nodes(user)
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docs:
            continue
        if _PATH.fullmatch(node.value):
            yield node.lineno, node.value


@functools.cache
def _own_of_all() -> frozenset[str]:
    return frozenset().union(*map(_own, FILES))


def foreign(user: str) -> set[tuple[int, str]]:
    """The private names of others in a file of ours, with their lines."""
    reachable = _own(user).union(*map(_own, _imported(user)))
    registered = _registered(user)
    found: set[tuple[int, str]] = set()
    for node in _nodes(user):
        if isinstance(node, ast.Attribute) and _PRIVATE.fullmatch(node.attr):
            if node.attr not in reachable or node.attr in registered:
                found.add((node.lineno, node.attr))
        elif isinstance(node, ast.Import | ast.ImportFrom) and not getattr(node, "level", 0):
            module = getattr(node, "module", None) or ""
            for path in (module, *(alias.name for alias in node.names)):
                found |= {(node.lineno, part) for part in path.split(".") if _PRIVATE.fullmatch(part)}
    everywhere = _own_of_all()
    for line, text in _texts(user):
        parts = {part for part in text.split(".") if _PRIVATE.fullmatch(part)}
        found |= {(line, part) for part in parts if part not in everywhere or part in registered}
    return {
        (line, name) for line, name in found if not name.startswith("_jupyter_dist") and name not in NO_NAMES
    }


def _registered(user: str) -> set[str]:
    """The private parts of all names that the registry has for a file."""
    paths = [row.module for row in ROWS if user in row.users]
    paths += [name for row in ROWS if user in row.users for name in row.names]
    return {part for path in paths for part in path.split(".") if _PRIVATE.fullmatch(part)}


def _is_registered(name: str, registered: set[str]) -> bool:
    return name in DOCUMENTED or any(part.startswith(name) or part.endswith(name) for part in registered)


def test_no_private_name_of_others_is_used_that_is_not_registered() -> None:
    strange = [
        f"{user}.py:{line}: {name}"
        for user in FILES
        for line, name in sorted(foreign(user))
        if not _is_registered(name, _registered(user))
    ]
    assert strange == []


def test_the_registry_names_no_name_that_nobody_uses() -> None:
    unused = []
    for row in ROWS:
        for user in row.users:
            assert user in FILES or "foreign_names" in user, user
            text = "" if "foreign_names" in user else FILES[user].read_text()
            names = [name.rpartition(".")[2] for name in row.names] or [row.module]
            names += [part for part in row.module.split(".") if _PRIVATE.fullmatch(part)]
            if text and "KERAS3" not in text and not any(name in text for name in names):
                unused.append((user, names))
    assert unused == []


def python(code: str, *args: str, **env: str) -> str:
    """What a new Python prints; without this machine's GPUs and TensorFlow's greetings."""
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **quiet, **env},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


_PROBES = """
import importlib.util, json, sys
from jupyter_dist.worker.foreign_names import ROWS
there = {name for name in sys.argv[1:] if importlib.util.find_spec(name)}
lacking = {name: [] for name in there}
for row in ROWS:
    if row.library in there:
        lacking[row.library] += row.lacking()
print(json.dumps(lacking))
"""
FAMILIES = (
    ("horovod", "keras", "tensorflow"),
    ("accelerate", "lightning", "lightning_fabric", "pytorch_lightning", "torch", "transformers"),
)


def _family(library: str) -> tuple[str, ...]:
    return next((family for family in FAMILIES if library in family), (library,))


@functools.cache
def _lacking(family: tuple[str, ...]) -> dict[str, list[str]]:
    """What each library of a family lacks. One process asks: each of them imports most of the others."""
    found: dict[str, list[str]] = json.loads(python(_PROBES, *family).splitlines()[-1])
    return found


def _asked(library: str) -> Any:
    together = pytest.mark.xdist_group(f"names of {_family(library)[0]}")
    return pytest.param(library, marks=[pytest.mark.needs(library), together])


@pytest.mark.parametrize("library", [_asked(name) for name in LIBRARIES])
def test_the_installed_version_has_all_names(library: str) -> None:
    assert _lacking(_family(library))[library] == []


@pytest.mark.parametrize("library", sorted({row.library for row in ROWS} & set(sys.stdlib_module_names)))
def test_this_python_has_all_names(library: str) -> None:
    assert [name for row in ROWS if row.library == library for name in row.lacking()] == []


def test_the_readers_of_settings_are_in_the_registry() -> None:
    users = {user for row in ROWS for user in row.users}
    assert users.issuperset(kernel_settings._READERS)


def test_each_library_has_a_version_that_works() -> None:
    assert sorted(TRIED) == LIBRARIES


def test_the_table_in_the_docs_is_that_of_the_registry() -> None:
    code = "from tools import canaries as c; print(c.with_table(c.DOCS.read_text()) == c.DOCS.read_text())"
    assert python(code) == "True\n", "run tools/canaries.py"


class TestProbe:
    def row(self, *names: str, module: str = "library_of_test", **more: Any) -> Row:
        return Row(module, names, ("worker/test",), Missing.REFUSE, "Testing", **more)

    @pytest.fixture
    def library(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """A library of one module, which is imported."""
        path = tmp_path / "library_of_test.py"
        path.write_text(
            "class Kind:\n"
            "    def _there(self, devices: 'Unknown', num_nodes): self._set = 1\n"
            "    def _any(self, **more): ...\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        yield path
        sys.modules.pop("library_of_test", None)

    def test_of_attributes(self, library: Path) -> None:
        row = self.row("Kind", "Kind._there", "Kind._gone", "_Other")
        assert row.lacking() == ["library_of_test.Kind._gone", "library_of_test._Other"]

    def test_of_names_that_came_with_a_public_one(self, library: Path) -> None:
        """An older version that has none of them needs none."""
        assert self.row("Kind._gone", public="Kind.compile").lacking() == []
        assert self.row("Kind._gone", public="Kind").lacking() == ["library_of_test.Kind._gone"]

    def test_of_parameters(self, library: Path) -> None:
        """By names, without looking at annotations, which may name what is not there."""
        assert self.row("Kind._there", takes={"Kind._there": ("self", "num_nodes")}).lacking() == []
        assert self.row("Kind._any", takes={"Kind._any": ("devices",)}).lacking() == []
        assert self.row("Kind._there", takes={"Kind._there": ("nodes",)}).lacking() != []

    def test_of_what_a_constructor_sets(self, library: Path) -> None:
        row = self.row("_set", "_there", "_ther_", probe=Probe.WRITTEN)
        assert row.lacking() == ["library_of_test._ther_"]
        assert "library_of_test" not in sys.modules

    def test_of_modules(self, library: Path) -> None:
        assert self.row(probe=Probe.MODULE).lacking() == []
        assert self.row(module="library_of_test._gone", probe=Probe.MODULE).lacking() != []
        assert self.row("_x", module="library_that_nobody_has").lacking() != []

    def test_of_other_pythons_holds_nothing(self, library: Path) -> None:
        assert self.row("_gone", until=sys.version_info[:2]).lacking() == []

    def test_is_asked_of_imported_modules_alone(self, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(foreign_names, "ROWS", (self.row("_gone"),))
        foreign_names.require("worker/test")
        module = importlib.import_module("library_of_test")
        with pytest.raises(ForeignNameMissing) as caught:
            foreign_names.require("worker/test")
        assert str(caught.value) == (
            "Testing does not work here. library_of_test ? has no library_of_test._gone, which jupyter-dist "
            "uses for that. What to do: use an older version of Python."
        )
        foreign_names.require("worker/other")
        foreign_names.require("worker/test", libraries=["torch"])
        assert module.__spec__ is not None
        monkeypatch.setattr(module.__spec__, "_initializing", True, raising=False)
        foreign_names.require("worker/test")  # a module that is half imported may get the name yet
        with pytest.raises(ForeignNameMissing):
            foreign_names.require("worker/test", module=module)  # at the end of its import it will not


_LIGHTNING = """
import sys, types
from jupyter_dist.worker import autolog
from jupyter_dist.worker.output import events
class Writer:
    def note(self, text): print("NOTE:", text)
events.writer = Writer
sys.path.insert(0, sys.argv[1])
if sys.argv[2] == "warm":
    import lightning_fabric.connector
try:
    autolog.install()
    import lightning_fabric.connector as connector
    print(len(connector._Connector()._parallel_devices), "device")
except ImportError:
    print("taken for a library that is not installed")
except RuntimeError as error:
    print(type(error).__name__, error)
"""
_CONNECTOR = """
class LightningEnvironment: ...
class _Connector:
    _strategy_flag = _cluster_environment_flag = None
    def _check_flags(self, devices, num_nodes): ...
    def _set_parallel_devices_and_init_accelerator(self): self._parallel_devices = [0]
    def __init__(self):
        self._check_flags("auto", 1); self._set_parallel_devices_and_init_accelerator()
"""


class TestLightning:
    @pytest.fixture
    def fabric(self, tmp_path: Path) -> str:
        """A release that has renamed one private method."""
        package = tmp_path / "lightning_fabric"
        package.mkdir()
        (package / "__init__.py").write_text("__version__ = '3.0.0'\n")
        (package / "connector.py").write_text(_CONNECTOR)
        return str(tmp_path)

    @pytest.mark.parametrize("start", ["cold", "warm"])
    def test_that_would_train_a_model_per_rank_is_refused(self, fabric: str, start: str) -> None:
        assert python(_LIGHTNING, fabric, start, WORLD_SIZE="2") == (
            "ForeignNameMissing Training one model over all ranks with Lightning does not work here. "
            "lightning_fabric 3.0.0 has no "
            "lightning_fabric.connector._Connector._check_device_config_and_set_final_flags, which "
            'jupyter-dist uses for that. What to do: pip install "pytorch-lightning==2.6.6".\n'
        )

    def test_on_a_single_rank_trains_with_a_note(self, fabric: str) -> None:
        told, trained = python(_LIGHTNING, fabric, "cold", WORLD_SIZE="1").splitlines()
        assert trained == "1 device"
        assert "Training one model over all ranks" in told

    def test_with_other_parameters_is_refused(self, fabric: str, tmp_path: Path) -> None:
        path = tmp_path / "lightning_fabric/connector.py"
        path.write_text(
            _CONNECTOR.replace("_check_flags", "_check_device_config_and_set_final_flags").replace(
                "num_nodes", "hosts"
            )
        )
        assert python(_LIGHTNING, fabric, "cold", WORLD_SIZE="2").startswith("ForeignNameMissing")

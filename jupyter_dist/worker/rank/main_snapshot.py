"""A snapshot of a rank's `__main__`, for the processes that are spawned on the rank.

A process that `multiprocessing` spawns, or that its fork server forks, begins empty. Functions and classes of
`__main__` are sent to the process by name. To define these names, Python runs the main program once more, as
`__mp_main__`. A cell must not run twice. So the rank writes the current functions and classes of `__main__`,
with the global names that they use. A file that loads them replaces the main program:

    RANK/.main/PID-N.py     the program of the process; calls `spawned_process.fill`
    RANK/.main/PID-N.pkl    a header pickle of plain builtins, then the names in several pickles
    RANK/.main/DIGEST       a large array, mapped copy on write by all processes that need it

The snapshot omits values that cannot be pickled, are on a GPU, or belong to the rank's connections. A
function that uses such a value raises NameError in the process. Otherwise it would continue with a wrong
value.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import io
import itertools
import os
import pickle
import sys
import threading
import types
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..patching import wrap
from ..pickling import Pickler, Trace, name_classes
from ..pickling.lazy_names import load_all
from ..settings import OBJECTS

__all__ = ["clear", "hand_on", "patch", "prepare"]

_ASIDE_FROM = 1 << 20
"""The size in bytes from which an array gets a file of its own.

The next process finds that file there already.
"""
_PIECE = 1 << 18
_STAND_IN = """\
# What stands in for the cell in a process that rank {rank} has spawned
# (jupyter_dist/worker/rank/spawned_process.py).
__import__("jupyter_dist.worker.rank.spawned_process", fromlist=["fill"]).fill(globals(), __file__)
"""
_CONNECTED = (
    "torch.distributed",
    "torch.nn.parallel",
    "horovod",
    "tensorflow",
    "keras",
    "tf_keras",
    "jax",
    "jaxlib",
    *(f"lightning.pytorch.{part}" for part in ("trainer", "strategies")),
    *(f"pytorch_lightning.{part}" for part in ("trainer", "strategies")),
    *(f"lightning.fabric.{part}" for part in ("fabric", "strategies", "wrappers")),
    *(f"lightning_fabric.{part}" for part in ("fabric", "strategies", "wrappers")),
    "accelerate",
    "transformers.trainer",
)
"""Modules whose objects belong to one process: they have open connections, or reserve devices.

A copy in another process, with the same rank in its environment, would disturb the rank's.
"""
_TRAINING_ARGUMENTS = "transformers.training_args"
"""A module whose objects are options, but connect the ranks when they are made."""

_lock = threading.Lock()
_numbers = itertools.count()
_place: Path | None = None
_owner = 0
_sources: Mapping[str, str] = {}
_settings: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
"""The settings of the notebook, and the objects that belong to them."""
_kinds: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()
_last: tuple[bytes, str] = (b"", "")
"""The digest of the last snapshot, and its path."""
_last_aside: list[tuple[str, bool]] = []
"""The files of the snapshot's large arrays.

Comparing an array with such a file is far faster than its digest.
"""


def prepare(folder: Path, sources: Mapping[str, str]) -> None:
    """Make this rank write its snapshots of `__main__` to `folder`.

    `sources`: the cells' text, for tracebacks.
    """
    global _place, _owner, _sources
    _place, _owner, _sources = folder, os.getpid(), sources


def hand_on(settings: Mapping[str, Any], objects: Mapping[str, Any]) -> None:
    """Apply the notebook's settings in spawned processes, too, except for its seeds."""
    global _settings
    _settings = {name: value for name, value in settings.items() if name != "seeds"}, objects


def clear() -> None:
    """Remove the snapshots. Only the rank itself does so, when no process can begin any more."""
    if _place is not None and os.getpid() == _owner and _place.exists():
        import shutil  # slow to import

        shutil.rmtree(_place, ignore_errors=True)


def patch(spawn: types.ModuleType) -> None:
    """Make `multiprocessing.spawn` pass the path of the main snapshot to new processes."""
    wrap(spawn, "get_preparation_data", _with_stand_in)


def _with_stand_in(original: Any) -> Any:
    def get_preparation_data(name: str) -> dict[str, Any]:
        data: dict[str, Any] = original(name)
        # "ignore" is the fork server itself, which is asked once. Its processes may need more than it has.
        # A script has `__file__`, and a module has `__spec__`: Python would run it again in the process.
        if _place is not None and name != "ignore":
            data.pop("init_main_from_name", None)
            try:
                with _lock:
                    data["init_main_from_path"] = _write(_place, sys.modules["__main__"].__dict__)
            except Exception as error:
                # Pickling runs code of the values, and the disk may be full. The process may work without the
                # names.
                print(
                    "jupyter_dist: processes that are spawned do not have the definitions of the cells: "
                    f"{type(error).__name__}: {error}",
                    file=sys.stderr,
                )
        return data

    return get_preparation_data


class _StaysBehind(pickle.PicklingError):
    """The value cannot be copied to another process."""


class _MainPickler(Pickler):
    """A pickler that leaves out everything that belongs to this process."""

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if not issubclass(kind, type) and _is_the_ranks(kind):
            raise _StaysBehind(f"{kind.__module__}.{kind.__qualname__} belongs to the rank")
        torch: Any = sys.modules.get("torch")
        if (
            hasattr(torch, "Tensor")
            and issubclass(kind, (torch.Tensor, torch.UntypedStorage))
            and obj.is_cuda
        ):
            raise _StaysBehind("it is on a GPU")
        return super().reducer_override(obj)


def _is_the_ranks(kind: type) -> bool:
    if kind not in _kinds:
        homes = [f"{base.__module__}." for base in kind.__mro__]
        options = issubclass(kind, enum.Enum) or dataclasses.is_dataclass(kind)
        connected = (_TRAINING_ARGUMENTS,) if options else (*_CONNECTED, _TRAINING_ARGUMENTS)
        _kinds[kind] = any(home.startswith(f"{name}.") for home in homes for name in connected)
    return _kinds[kind]


class _Writing:
    """One snapshot of `__main__` that is being written to files."""

    def __init__(self, main: dict[str, Any], place: Path) -> None:
        self._main, self._place = main, place
        self._file = io.BytesIO()
        self._aside: list[tuple[str, bool]] = []
        self._trace = Trace()
        self._pickler = self._new(self._file, self._keep, self._trace)

    def _new(self, file: Any, keep: Any, trace: Trace) -> _MainPickler:
        # All names are hidden from functions. This class decides for each name whether it is included.
        return _MainPickler(
            file, buffer_callback=keep, mains=[self._main], hidden=set(self._main), trace=trace
        )

    def _keep(self, buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < _ASIDE_FROM:
            return True
        number = len(self._aside)
        name = _last_aside[number][0] if number < len(_last_aside) else ""
        if not name or not _holds(self._place / name, view):
            name = hashlib.blake2b(view, digest_size=20).hexdigest()
            _write_whole(self._place / name, view)
        self._aside.append((name, view.readonly))
        return False

    def can_take(self, value: Any) -> bool:
        # A pickler that has failed once remembers objects that it has not written. So the test uses a
        # separate pickler.
        try:
            self._new(_Nowhere(), lambda buffer: False, Trace()).dump(value)
        except Exception:  # pickling runs the value's own code
            return False
        return True

    def take(self, values: dict[str, Any]) -> None:
        """Write some names as the next pickle. Objects of an earlier pickle stay the same objects."""
        self._pickler.dump(values)

    def used(self) -> set[str]:
        """Return the names of `__main__` that the code of the written values may read."""
        return self._trace.words & self._main.keys()

    def whole(self, names: list[str]) -> bytes:
        global _last_aside
        _last_aside = self._aside
        header = {
            "names": names,
            "sources": dict(_sources),
            "settings": _settings[0],
            "aside": self._aside,
            "file": self._main.get("__file__"),
            "module": getattr(self._main.get("__spec__"), "name", None),
        }
        return pickle.dumps(header, protocol=5) + self._file.getvalue()


class _Nowhere:
    def write(self, data: Any) -> int:
        return len(data)


def _write(place: Path, main: dict[str, Any]) -> str:
    """Write a snapshot of `__main__` and return the path of the file that loads it.

    The same state is written only once.
    """
    global _last
    place.mkdir(0o700, exist_ok=True)
    load_all(main)
    # The kernel can then find the classes of results that these processes make.
    name_classes(main, os.environ.get("JUPYTER_DIST_RUN", ""))
    writing = _Writing(main, place)
    own = {name: value for name, value in main.items() if _is_definition(value) and writing.can_take(value)}
    writing.take(own)
    taken = [*own]
    if any(_settings) and writing.can_take(_settings[1]):
        writing.take({OBJECTS: _settings[1]})
        taken.append(OBJECTS)
    tried = set(own)
    # A lambda in a list may use more names, so the loop repeats until no name is new.
    while more := sorted(name for name in writing.used() - tried if not _is_python_s(name)):
        tried |= set(more)
        for name in sorted(
            (name for name in more if writing.can_take(main[name])), key=lambda name: _risk(main[name])
        ):
            writing.take({name: main[name]})
            taken.append(name)
    data = writing.whole(taken)
    digest = hashlib.blake2b(data).digest()
    if digest != _last[0] or not os.path.exists(_last[1]):
        path = place / f"{os.getpid()}-{next(_numbers)}.py"
        _write_whole(path.with_suffix(".pkl"), data)
        _write_whole(path, _STAND_IN.format(rank=os.environ.get("RANK", "0")).encode())
        _last = digest, str(path)
    return _last[1]


def _is_definition(value: Any) -> bool:
    """Return whether a pickle refers to `value` by its name in `__main__`."""
    kinds = (type, types.FunctionType, type(functools.lru_cache(len)))
    return isinstance(value, kinds) and value.__module__ == "__main__"


def _is_python_s(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _risk(value: Any) -> int:
    """Return the sort key of a value.

    The safest values are first: if one fails to load, all after it are lost.
    """
    if isinstance(value, types.ModuleType):
        return 0
    home = type(value).__module__.partition(".")[0]
    return 1 if home in ("builtins", "numpy", "torch") else 2 if home == "__main__" else 3


def _holds(path: Path, view: memoryview) -> bool:
    if path.stat().st_size != view.nbytes:
        return False
    with open(path, "rb", buffering=0) as file:
        return all(
            file.read(_PIECE) == bytes(view[start : start + _PIECE])
            for start in range(0, view.nbytes, _PIECE)
        )


def _write_whole(path: Path, data: Any) -> None:
    if path.exists():
        return
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with open(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb"
        ) as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise

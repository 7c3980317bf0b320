"""The user's own modules, which are sent with the payload, and installed modules, which are not."""

from __future__ import annotations

import ast
import contextlib
import difflib
import functools
import os
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from ..errors import CaptureError

__all__ = [
    "Shipment",
    "ShippedFile",
    "also",
    "installed",
    "is_own",
    "reached",
    "ship",
    "stays_behind",
    "versions",
]

_CODE = {".py", ".pyi", ".so", ".pyd"}
_CODE_LIMIT = 20_000_000
_DATA_LIMIT = 5_000_000
_ALSO_LIMIT = 1_000_000
_NOT_OURS = {"site-packages", "dist-packages", "node_modules", "__pycache__"}


@dataclass(frozen=True)
class ShippedFile:
    """A file of the user's. It is stored below the folder that comes first on the ranks' path."""

    path: str
    """Relative path, with `/` between its parts."""
    data: bytes
    origin: str = ""
    """Path on this machine."""


@dataclass
class Shipment:
    files: list[ShippedFile] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    words: set[str] = field(default_factory=set)
    """Every name and attribute in the shipped code."""
    imports: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def ship(choice: str, wanted: Iterable[str], directory: Path) -> Shipment:
    """Collect the user's modules that a cell needs. Whole packages are included, with their small data files.

    Args:
        choice: "none", or names separated by commas, or "auto". With "auto", the modules are those of
        `wanted`
            below `directory`, and what they import from there.

    Raises CaptureError if a name is not a module, or if the code exceeds 20 MB.
    """
    shipment = Shipment()
    if choice == "none":
        return shipment
    if choice == "auto":
        queue = [name.partition(".")[0] for name in sorted(wanted)]
        explicit: set[str] = set()
    else:
        queue = [name.strip().partition(".")[0] for name in choice.split(",") if name.strip()]
        explicit = set(queue)
    seen: set[str] = set()
    while queue:
        top = queue.pop(0)
        if top in seen or top in ("jupyter_dist", "__main__"):
            continue
        seen.add(top)
        places = _places(top)
        if top in explicit and not places:
            raise CaptureError(_unknown(top, directory))
        if top not in explicit:
            places = [place for place in places if _is_own(place, directory)]
        if places:
            shipment.modules.append(top)
            queue += _take(shipment, top, places)
    size = sum(len(file.data) for file in shipment.files)
    if size > _CODE_LIMIT:
        biggest = max(shipment.files, key=lambda file: len(file.data))
        raise CaptureError(
            f"the modules beside the notebook ({', '.join(shipment.modules)}) have {size / 1e6:,.0f} MB, "
            f"more than {_CODE_LIMIT / 1e6:,.0f} MB; the biggest file is {biggest.path!r}. "
            "Name what the ranks need with --ship-modules a,b, or send none with --ship-modules none. "
            "Nothing was started."
        )
    return shipment


def also(choice: str, modules: Iterable[str], directory: Path, shipment: Shipment) -> list[ShippedFile]:
    """Return the files of more modules, of which a rank may never import any. Each package has at most 1 MB.

    Nothing is raised, and no note is made: the cell runs without them.
    """
    more: dict[str, ShippedFile] = {}
    for top in sorted({*modules} - {*shipment.modules}) if choice == "auto" else ():
        with contextlib.suppress(CaptureError):
            files = ship("auto", [top], directory).files
            if sum(len(file.data) for file in files) <= _ALSO_LIMIT:
                more |= {file.path: file for file in files}
    known = {file.path for file in shipment.files}
    return [file for path, file in more.items() if path not in known]


def stays_behind(choice: str, directory: Path) -> Callable[[str], bool]:
    """Return a function that checks whether `ship` with this choice leaves a module of the user's out.

    A rank on this machine finds such a module in place. A rank on another host does not.
    """
    named = {name.strip().partition(".")[0] for name in choice.split(",")}
    known: dict[str, bool] = {}

    def stays(name: str) -> bool:
        top = name.partition(".")[0]
        if top not in known:
            spec = getattr(sys.modules.get(top), "__spec__", None)
            there = isinstance(spec, ModuleSpec) and _is_installed(spec)
            places = _places(top) if choice == "auto" else ()
            sent = top in named or any(_is_own(place, directory) for place in places)
            known[top] = not (there or sent)
        return known[top]

    return stays


def reached(modules: Collection[str], words: Collection[str]) -> list[str]:
    """Return imported submodules that code may use as attributes of these modules, judged by its words.

    After `import xml`, `xml.etree` exists only if other code has imported it, for example another cell.
    """
    global _last_seen
    seen = len(sys.modules), next(reversed(sys.modules), "")
    if seen != _last_seen:  # an import appends
        _last_seen = seen
        for name in sys.modules.keys() - _indexed:
            _indexed.add(name)
            if "." in name:
                _by_last_part.setdefault(name.rpartition(".")[2], []).append(name)
    found = []
    for name in (name for word in words for name in _by_last_part.get(word, ()) if name in sys.modules):
        parts = name.split(".")
        at = len(parts) - 1
        while at > 0 and parts[at] in words:
            if ".".join(parts[:at]) in modules:
                found.append(name)
                break
            at -= 1
    return sorted(found)


_last_seen = 0, ""
"""The number of modules and the newest one, when `_indexed` was last complete."""
_indexed: set[str] = set()
_by_last_part: dict[str, list[str]] = {}
"""The submodules that were ever imported, by the last part of their name."""


def is_own(top: str, directory: Path) -> bool:
    """Return whether a top-level module is the user's: found below `directory`, and not installed there."""
    file = getattr(sys.modules.get(top), "__file__", None) or ""
    if _NOT_OURS & set(file.split(os.sep)) or file.startswith(_standard_library()):
        return False  # true of most modules, and saves the lookup of their places
    return any(_is_own(place, directory) for place in _places(top))


def installed(names: Iterable[str]) -> tuple[str, ...]:
    """Return those modules and packages that belong to Python or were installed, sorted.

    Private modules are left out. Modules that cannot be looked up without an import are left out too.
    """
    found = set()
    for name in names:
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            dotted = ".".join(parts[:end])
            if any(part.startswith("_") for part in parts[:end]) or parts[0] in _ALWAYS_THERE:
                break
            if dotted not in sys.modules and end > 1:
                break
            spec = getattr(sys.modules.get(dotted), "__spec__", None)
            if spec is None and dotted not in sys.modules:
                spec = _find(dotted)
            if not isinstance(spec, ModuleSpec) or not _is_installed(spec):
                break
            found.add(dotted)
    return tuple(sorted(found))


def versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of the loaded libraries among those modules: top-level name → version."""
    found = {}
    for top in {name.partition(".")[0] for name in names}:
        version = getattr(sys.modules.get(top), "__dict__", {}).get("__version__")
        if isinstance(version, str):
            found[top] = str(version)
    return found


_ALWAYS_THERE = {"builtins", "cloudpickle", "jupyter_dist", "sys"}


def _find(top: str) -> ModuleSpec | None:
    try:
        return PathFinder.find_spec(top)
    except Exception:  # a third-party finder on sys.meta_path may raise anything
        return None


def _places(top: str) -> list[Path]:
    """Return the place of a top-level module's code: a file, or the folders of a package."""
    module = sys.modules.get(top)
    spec = getattr(module, "__spec__", None) or _find(top)
    if spec is None:
        file = getattr(module, "__file__", None)
        return [Path(os.path.realpath(file))] if file else []
    if spec.submodule_search_locations is not None:
        return [Path(os.path.realpath(place)) for place in spec.submodule_search_locations]
    if spec.has_location and spec.origin:
        return [Path(os.path.realpath(spec.origin))]
    return []


def _is_own(place: Path, directory: Path) -> bool:
    """Return whether a file or folder is the user's: below the notebook's folder, and not installed there."""
    if str(place).startswith(_standard_library()):
        return False  # of most modules, and without a search for links in the notebook's path
    root = Path(os.path.realpath(directory))
    if not place.is_relative_to(root):
        return False
    if any(place.is_relative_to(library) for library in _libraries()):
        return False
    parts = place.relative_to(root).parts
    if any(part in _NOT_OURS or part.startswith(".") for part in parts):
        return False
    folders = [root.joinpath(*parts[:end]) for end in range(1, len(parts) + 1)]
    return not any((folder / "pyvenv.cfg").exists() for folder in folders)


@functools.cache
def _libraries() -> list[Path]:
    paths = sysconfig.get_paths()
    # The prefix is not used: code below /usr/src is not installed just because Python is in /usr.
    return [Path(os.path.realpath(paths[key])) for key in ("stdlib", "platstdlib", "purelib", "platlib")]


@functools.cache
def _standard_library() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(os.path.join(paths[key], "") for key in ("stdlib", "platstdlib"))


def _is_installed(spec: ModuleSpec) -> bool:
    if spec.origin in ("built-in", "frozen"):
        return True
    places = [spec.origin] if spec.has_location else list(spec.submodule_search_locations or ())
    for place in places:
        if place is None:
            continue
        path = Path(os.path.realpath(place))
        if _NOT_OURS & set(path.parts) or any(path.is_relative_to(folder) for folder in _libraries()):
            return True
    return False


def _take(shipment: Shipment, top: str, places: list[Path]) -> list[str]:
    """Add a module's files. Returns the top-level modules that they import."""
    imports: set[str] = set()
    data: list[tuple[Path, str]] = []
    for place in places:
        for path, relative in _files(place, top):
            if path.suffix not in _CODE:
                data.append((path, relative))
                continue
            content = _read(path)
            shipment.files.append(ShippedFile(relative, content, str(path)))
            if path.suffix == ".py":
                imports |= _scan(content, shipment)
    sizes = [path.stat().st_size for path, _ in data]
    if sum(sizes) <= _DATA_LIMIT:
        shipment.files += [ShippedFile(relative, _read(path), str(path)) for path, relative in data]
    else:
        shipment.notes.append(
            f"{len(data)} data files of the package {top!r} ({sum(sizes) / 1e6:,.0f} MB) stay behind; "
            "on a rank its code does not find them beside itself"
        )
    shipment.imports |= imports
    return sorted({name.partition(".")[0] for name in imports})


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CaptureError(
            f"cannot read {str(path)!r}, a module of the notebook's: {error.strerror}. Nothing was started."
        ) from error


def _files(place: Path, top: str) -> Iterator[tuple[Path, str]]:
    if not place.is_dir():
        yield place, place.name
        return
    for folder, folders, names in os.walk(place):
        here = Path(folder)
        folders[:] = sorted(
            name
            for name in folders
            if name not in _NOT_OURS
            and not name.startswith(".")
            and not (here / name / "pyvenv.cfg").exists()
        )
        for name in sorted(names):
            path = here / name
            if not name.startswith(".") and path.suffix not in (".pyc", ".ipynb") and path.is_file():
                yield path, "/".join((top, *path.relative_to(place).parts))


def _scan(content: bytes, shipment: Shipment) -> set[str]:
    """Return the modules that a file imports. Adds its names to the shipment's words."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return set()  # its import fails on the rank just as it would here
    imports: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imports |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Name):
            shipment.words.add(node.id)
        elif isinstance(node, ast.Attribute):
            shipment.words.add(node.attr)
        elif isinstance(node, ast.alias):
            shipment.words |= set(node.name.split("."))
    return imports


def _unknown(name: str, directory: Path) -> str:
    local = {path.stem for path in directory.glob("*.py")}
    local |= {path.parent.name for path in directory.glob("*/__init__.py")}
    near = difflib.get_close_matches(name, sorted(local | {m for m in sys.modules if "." not in m}), 3)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"--ship-modules: there is no module {name!r}.{hint} Nothing was started."

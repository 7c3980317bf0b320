"""Saved clusters: named choices of a backend and its flags, in a TOML file that people may edit.

    [clusters.gpu-box]
    backend = "local"
    np = 4
    gpus_per_worker = 1

The file is `jupyter-dist/clusters.toml` under Jupyter's config folder, or `$JUPYTER_DIST_CLUSTERS`.
Comments and order stay as they are. Keys are the flags' names with `_` for `-`; `formerly` has the names that
a cluster had before, under which notebooks may still know it. What looks like a secret is not saved.
The cluster chosen with `%dist use` is every notebook's own. Front-ends keep it in the notebook's metadata,
`{"jupyter-dist": {"cluster": NAME}}`, where a restarted kernel finds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import BaseModel
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Table

from . import backends
from .backends import Backend
from .errors import DistError, InputError
from .flags import build, nearest, shown
from .folder import make_private, write_bytes
from .options import NOT_SAVED, RunOptions
from .text.confidential import has_form_of_a_key, named_like_a_secret, reads_like_a_secret

__all__ = [
    "METADATA",
    "Cluster",
    "add",
    "check_name",
    "get",
    "load",
    "path",
    "problem",
    "remove",
    "secrets_in",
    "split",
    "to_save",
    "use",
    "used",
    "validate",
]

METADATA = "jupyter-dist"
"""Under this key a notebook's metadata has what belongs to us."""
_NAME = re.compile(r"\w[\w.+@-]{0,63}")
_SECRET = (
    "{}. It is not saved, because clusters are stored as plain text. Set it in the cell "
    "from a variable of the notebook, as in {}"
)
_used: str | None = None
_chosen = False
"""Whether this process was told what to use, if only nothing."""


@dataclass(frozen=True)
class Cluster:
    """A name for a backend and what is set for it; `options` holds run and backend options alike."""

    name: str
    backend: str
    options: Mapping[str, Any] = field(default_factory=dict)
    launched_from: str | None = None
    """The file that it was launched from, where it was launched from here: with it, it is taken down."""
    formerly: tuple[str, ...] = ()
    """The names that it had before it was renamed."""


def path() -> Path:
    """Where the clusters are kept."""
    override = os.environ.get("JUPYTER_DIST_CLUSTERS")
    if override:
        return Path(override)
    from jupyter_core.paths import jupyter_config_dir

    return Path(jupyter_config_dir()) / "jupyter-dist" / "clusters.toml"


def check_name(name: str) -> str:
    """The name itself when it can be a cluster's. Raises InputError."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{shown(name)} cannot be the name of a cluster. Use up to 64 letters, digits and . _ "
            "+ @ -, and begin with a letter, a digit or _"
        )
    return name


def load() -> dict[str, Cluster]:
    """All saved clusters in the file's order. What they hold is checked by `validate`, not here.

    Raises InputError, naming the file, when it is not what this module writes."""
    found = {}
    for name, table in _tables(_read()).items():
        _check_name_in_file(name)
        values = table.unwrap() if isinstance(table, Table) else table
        if not isinstance(values, dict) or not isinstance(values.get("backend"), str):
            raise InputError(f'{_where(name)}: needs a line such as backend = "local"')
        backend, launched_from = values.pop("backend"), values.pop("launched_from", None)
        formerly = tuple(map(str, values.pop("formerly", ())))
        launched = None if launched_from is None else str(launched_from)
        found[name] = Cluster(name, backend, values, launched, formerly)
    return found


def _check_name_in_file(name: str) -> None:
    try:
        check_name(name)
    except InputError as error:
        raise InputError(f"{str(path())!r}: {error}") from None


def get(name: str) -> Cluster:
    """The cluster of that name, checked. Raises InputError, listing what there is.

    A backend is a cluster of its own name, with nothing set, unless one is saved under that name."""
    check_name(name)
    saved = load()
    name = _name_now(name, saved)
    if name not in saved and name in backends.names():
        backends.load(name)
        return Cluster(name, name)
    if name not in saved:
        near = nearest(name, saved)
        listed = (
            f"There are: {', '.join(saved)}."
            if saved
            else "None is saved. Save one with `%dist clusters add NAME …`."
        )
        raise InputError(f"no cluster {name!r}. " + (f"Did you mean {near!r}? " if near else "") + listed)
    validate(saved[name])
    return saved[name]


def _name_now(name: str, saved: Mapping[str, Cluster]) -> str:
    """What a cluster is called by now that had this name, where there is none of that name."""
    if name in saved:
        return name
    return next((cluster.name for cluster in saved.values() if name in cluster.formerly), name)


def validate(cluster: Cluster) -> tuple[Backend, RunOptions, BaseModel]:
    """Check a cluster with the models its flags are made from; returns what they make of it."""
    try:
        return _checked(cluster)
    except InputError as error:
        raise type(error)(f"{_where(cluster.name)}: {error}") from None


def problem(cluster: Cluster) -> str | None:
    """Why a cluster cannot be used as it stands in the file; None if it can."""
    try:
        _checked(cluster)
    except DistError as error:
        return str(error)
    return None


def _checked(cluster: Cluster) -> tuple[Backend, RunOptions, BaseModel]:
    backend = backends.load(cluster.backend)
    run, own = split(backend, cluster.options)
    for key in NOT_SAVED:
        if key in run:
            raise InputError(f"{key!r} belongs to one cell and cannot be saved")
    known = [key for key in RunOptions.model_fields if key not in NOT_SAVED]
    return backend, build(RunOptions, run, str), build(backend.options, own, str, also=known)


def split(backend: Backend, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part options into those of every run and the rest, which are the backend's own or unknown."""
    run = {k: v for k, v in options.items() if k in RunOptions.model_fields}
    return run, {k: v for k, v in options.items() if k not in run}


def to_save(given: Mapping[str, Any], run: BaseModel, own: BaseModel) -> dict[str, Any]:
    """The options to keep of what was given: numbers as the models made them; words that stand for one,
    such as 10m, or auto on whatever machine it will be, as they are."""
    made = {**own.model_dump(mode="json"), **run.model_dump(mode="json")}
    return {key: value if _is_word(value) else made.get(key) for key, value in given.items()}


def _is_word(value: object) -> bool:
    try:
        return isinstance(value, str) and float(value) is None
    except ValueError:
        return True


def secrets_in(options: Mapping[str, Any]) -> dict[str, str]:
    """Why options cannot be saved, by field: their values look like secrets, and the file is plain text."""
    found = {}
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        pairs = value if isinstance(value, Mapping) else {}
        secret = next((key for key, one in pairs.items() if _is_secret(name, str(key), one)), None)
        if secret is not None:
            found[name] = _SECRET.format(f"{secret} looks like a secret", f"{flag} {secret}=$variable")
        elif any(has_form_of_a_key(text) for text in _texts(value)):
            found[name] = _SECRET.format(f"the value of {name} looks like a secret", f"{flag} $variable")
    return found


def _is_secret(option: str, name: str, value: object) -> bool:
    text = str(value)
    # Where a secret lies is none, nor is a number or a switch.
    if not text or text[0] in "/~." or re.fullmatch(r"[\d.]+|(?i:true|false|yes|no|on|off|none)", text):
        return False
    if named_like_a_secret(name, value) or has_form_of_a_key(text):
        return True
    return option == "env" and reads_like_a_secret(text)


def _texts(value: object) -> list[str]:
    return [one for one in (value if isinstance(value, list | tuple) else [value]) if isinstance(one, str)]


def add(cluster: Cluster, *, replace: bool = False, old_name: str | None = None) -> None:
    """Save a cluster, in the place of `old_name` if given; comments beside what stays are kept.

    Raises InputError when it is not valid, or is there and not to be replaced."""
    check_name(cluster.name)
    validate(cluster)
    for text in secrets_in(cluster.options).values():
        raise InputError(text)
    with _locked():
        document = _read()
        tables = _tables(document)
        if old_name is not None and old_name not in tables:
            raise InputError(f"no cluster {old_name!r}")
        if cluster.name in tables and not replace and cluster.name != old_name:
            raise InputError(f"A cluster {cluster.name!r} already exists. Add --replace to change it")
        if not isinstance(document.get("clusters"), Table):
            document["clusters"] = tomlkit.table(is_super_table=True)
        saved = document["clusters"]
        before = tables.get(old_name or cluster.name)
        formerly = list(before.get("formerly", [])) if isinstance(before, Table) else []
        if old_name is not None and cluster.name != old_name:
            _rename(saved, old_name, cluster.name)
            formerly = [name for name in formerly if name != cluster.name] + [old_name]
        if not isinstance(saved.get(cluster.name), Table):
            saved[cluster.name] = tomlkit.table()
        launched = {} if cluster.launched_from is None else {"launched_from": cluster.launched_from}
        known_as = {"formerly": formerly} if formerly else {}
        values = {"backend": cluster.backend, **launched, **cluster.options, **known_as}
        _update(saved[cluster.name], values)
        _write(document)


def _rename(saved: Any, old: str, new: str) -> None:
    """All tables are taken out and put back: the renamed one stays where it was."""
    if new in saved:
        saved.remove(new)
    items = [(name, saved[name]) for name in saved]
    for name, _ in items:
        saved.remove(name)
    for name, table in items:
        saved.append(new if name == old else name, table)


def _update(table: Any, values: Mapping[str, Any]) -> None:
    for key in [key for key in table if key not in values]:
        del table[key]
    for key, value in values.items():
        if key not in table or table[key] != value:
            table[key] = value


def remove(name: str) -> None:
    """Forget a cluster. Raises InputError when there is none of that name."""
    check_name(name)
    with _locked():
        document = _read()
        if name not in _tables(document):
            raise InputError(f"no cluster {name!r}")
        del document["clusters"][name]
        _write(document)
    if used() == name:
        use(None)


def use(name: str | None) -> None:
    """Make a cluster the default of this kernel; None for none. Raises InputError if it is not there."""
    global _used, _chosen
    _used = None if name is None else get(name).name
    _chosen = True


def used() -> str | None:
    """The cluster that cells run on: the one chosen in this kernel, else the notebook's, by its name now."""
    name = _used if _chosen or _used is not None else _of_notebook()
    if name is None:
        return None
    with contextlib.suppress(InputError):  # a file that cannot be read is told to who asks for more of it
        return _name_now(name, load())
    return name


def _of_notebook() -> str | None:
    """What the notebook of this kernel says in its file; None outside of notebooks."""
    told = os.environ.get("JPY_SESSION_NAME")  # set by Jupyter's server since 2.0
    if not told or not told.endswith(".ipynb"):
        return None
    try:
        about = json.loads(Path(told).read_text("utf-8"))["metadata"][METADATA]["cluster"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return about if isinstance(about, str) and _NAME.fullmatch(about) else None


def _where(name: str) -> str:
    return f"cluster {name!r} in {str(path())!r}"


def _read() -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(path().read_text("utf-8"))
    except FileNotFoundError:
        return tomlkit.document()
    except (OSError, ValueError, TOMLKitError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"cannot read the clusters in {str(path())!r}: {reason}. Repair the file, or move it away"
        ) from None


def _tables(document: tomlkit.TOMLDocument) -> Mapping[str, Any]:
    tables = document.get("clusters", {})
    if not isinstance(tables, Mapping):
        raise InputError(f"{str(path())!r}: `clusters` must contain tables such as [clusters.NAME]")
    return tables


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Keep two notebooks from writing over each other's change."""
    try:
        # A linked file (people keep their settings elsewhere) is changed where it is.
        folder = path().resolve().parent
        make_private(folder)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _unwritable(error) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _write(document: tomlkit.TOMLDocument) -> None:
    try:
        write_bytes(path().resolve(), tomlkit.dumps(document).encode())
    except OSError as error:
        raise _unwritable(error) from None


def _unwritable(error: OSError) -> InputError:
    return InputError(
        f"cannot write the clusters to {str(path())!r}: {error.strerror or error}. "
        "Point JUPYTER_DIST_CLUSTERS at a file you can write"
    )

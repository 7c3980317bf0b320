"""Saved clusters: named choices of a backend and its flags, in a TOML file that users may edit.

    [clusters.gpu-box]
    backend = "local"
    np = 4
    gpus_per_worker = 1

The file is `jupyter-dist/clusters.toml` in Jupyter's config folder, or `$JUPYTER_DIST_CLUSTERS`.
Comments and order stay unchanged, unless the file has the clusters in another form of TOML, such as an inline
table. A change then writes all of them as above. Keys are the flags' names with `_` for `-`. `formerly` has
the earlier names of a cluster, which notebooks may still use. Values that look like secrets are not saved.
Each notebook has its own cluster, chosen with `%dist use`. Front-ends save it in the notebook's metadata,
`{"jupyter-dist": {"cluster": NAME}}`. A restarted kernel reads it there.
"""

from __future__ import annotations

import contextlib
import functools
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
from .errors import DistError, InputError, NameTaken
from .flags import build, nearest, shown
from .folder import make_private, write_bytes
from .options import NOT_SAVED, RunOptions
from .text import toml_tables
from .text.confidential import has_form_of_a_key, named_like_a_secret, reads_like_a_secret
from .worker import file_locks

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
"""Key of jupyter-dist's data in a notebook's metadata."""
_NAME = re.compile(r"\w[\w.+@-]{0,63}")
_SECRET = (
    "{}. It is not saved, because clusters are stored as plain text. Set it in the cell "
    "from a variable of the notebook, as in {}"
)
_used: str | None = None
_chosen = False
"""Whether the user has chosen a cluster, or none, in this process."""


@dataclass(frozen=True)
class Cluster:
    """A named backend with its settings. `options` has both run options and backend options."""

    name: str
    backend: str
    options: Mapping[str, Any] = field(default_factory=dict)
    launched_from: str | None = None
    """The file from which jupyter-dist launched the cluster, if it did. The same file takes it down."""
    formerly: tuple[str, ...] = ()
    """The earlier names of a renamed cluster."""


def path() -> Path:
    """Return the path of the clusters' file."""
    override = os.environ.get("JUPYTER_DIST_CLUSTERS")
    if override:
        return Path(override)
    from jupyter_core.paths import jupyter_config_dir

    return Path(jupyter_config_dir()) / "jupyter-dist" / "clusters.toml"


def check_name(name: str) -> str:
    """Return the name if it is valid for a cluster. Raises InputError otherwise."""
    if not _NAME.fullmatch(name):
        error = InputError(
            f"{shown(name)} cannot be the name of a cluster. Use up to 64 letters, digits and . _ "
            "+ @ -, and begin with a letter, a digit or _"
        )
        error.field = "name"
        raise error
    return name


def load() -> dict[str, Cluster]:
    """Return all saved clusters in the file's order. `validate` checks their options, not this function.

    Raises InputError, with the file's path, if the file's format is wrong."""
    found = {}
    for name, table in _tables(_read()).items():
        _check_name_in_file(name)
        values = table.unwrap() if hasattr(table, "unwrap") else table
        if not isinstance(values, dict) or not isinstance(values.get("backend"), str):
            raise InputError(f'{_where(name)}: needs a line such as backend = "local"')
        backend, launched_from = values.pop("backend"), values.pop("launched_from", None)
        formerly = _earlier_names(name, values)
        values.pop("formerly", None)
        launched = None if launched_from is None else str(launched_from)
        found[name] = Cluster(name, backend, values, launched, formerly)
    return found


def _earlier_names(name: str, values: Mapping[str, Any]) -> tuple[str, ...]:
    found = values.get("formerly", [])
    if not isinstance(found, list):
        raise InputError(f'{_where(name)}: formerly needs a list of names such as ["old-name"]')
    return tuple(map(str, found))


def _check_name_in_file(name: str) -> None:
    try:
        check_name(name)
    except InputError as error:
        raise InputError(f"{str(path())!r}: {error}") from None


def get(name: str) -> Cluster:
    """Return the valid cluster of that name. Raises InputError, which lists the saved clusters.

    A backend's name means that backend without settings, unless a cluster with that name is saved."""
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
    """Return the present name of the cluster that had this name, unless a cluster has this name now."""
    if name in saved:
        return name
    return next((cluster.name for cluster in saved.values() if name in cluster.formerly), name)


def validate(cluster: Cluster) -> tuple[Backend, RunOptions, BaseModel]:
    """Check a cluster with the models of its flags. Returns backend and models. Raises InputError."""
    try:
        return _checked(cluster)
    except InputError as error:
        raise type(error)(f"{_where(cluster.name)}: {error}") from None


def problem(cluster: Cluster) -> str | None:
    """Return why a saved cluster cannot be used; None if it can."""
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
    """Split options into those of every run and the rest, which are the backend's own or unknown."""
    run = {k: v for k, v in options.items() if k in RunOptions.model_fields}
    return run, {k: v for k, v in options.items() if k not in run}


def to_save(given: Mapping[str, Any], run: BaseModel, own: BaseModel) -> dict[str, Any]:
    """Return the options to save. Numbers are saved as the models parsed them.
    Words for a number, such as 10m or auto, are saved unchanged: their value may depend on the machine."""
    made = {**own.model_dump(mode="json"), **run.model_dump(mode="json")}
    return {key: value if _is_word(value) else made.get(key) for key, value in given.items()}


def _is_word(value: object) -> bool:
    try:
        return isinstance(value, str) and float(value) is None
    except ValueError:
        return True


def secrets_in(options: Mapping[str, Any]) -> dict[str, str]:
    """Return field → reason for options that look like secrets, because the file is plain text."""
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
    # The path of a secret is no secret, nor is a number or a switch.
    if not text or text[0] in "/~." or re.fullmatch(r"[\d.]+|(?i:true|false|yes|no|on|off|none)", text):
        return False
    if named_like_a_secret(name, value) or has_form_of_a_key(text):
        return True
    return option == "env" and reads_like_a_secret(text)


def _texts(value: object) -> list[str]:
    return [one for one in (value if isinstance(value, list | tuple) else [value]) if isinstance(one, str)]


def add(cluster: Cluster, *, replace: bool = False, old_name: str | None = None) -> None:
    """Save a cluster. It replaces the cluster `old_name`, if given. Comments on unchanged lines stay.

    Raises InputError if the cluster is not valid, and NameTaken if it exists and `replace` is false."""
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
            raise NameTaken(f"A cluster {cluster.name!r} already exists. Add --replace to change it")
        before = tables.get(old_name or cluster.name)
        formerly = list(_earlier_names(cluster.name, before)) if isinstance(before, Mapping) else []
        saved = toml_tables.writable(document, "clusters")
        if old_name is not None and cluster.name != old_name:
            toml_tables.rename(saved, old_name, cluster.name)
            formerly = [name for name in formerly if name != cluster.name] + [old_name]
        if not isinstance(saved.get(cluster.name), Table):
            saved[cluster.name] = tomlkit.table()
        launched = {} if cluster.launched_from is None else {"launched_from": cluster.launched_from}
        known_as = {"formerly": formerly} if formerly else {}
        values = {"backend": cluster.backend, **launched, **cluster.options, **known_as}
        toml_tables.update(saved[cluster.name], values)
        _write(document)


def remove(name: str) -> None:
    """Remove a saved cluster. Raises InputError if there is no cluster with that name."""
    check_name(name)
    with _locked():
        document = _read()
        if name not in _tables(document):
            raise InputError(f"no cluster {name!r}")
        del toml_tables.writable(document, "clusters")[name]
        _write(document)
    if used() == name:
        use(None)


def use(name: str | None) -> None:
    """Set the default cluster of this kernel; None for none. Raises InputError if it does not exist."""
    global _used, _chosen
    _used = None if name is None else get(name).name
    _chosen = True


def used() -> str | None:
    """Return the present name of the cells' cluster: the kernel's choice, else the notebook's; or None."""
    name = _used if _chosen or _used is not None else _of_notebook()
    if name is None:
        return None
    with contextlib.suppress(InputError):  # `get` reports an unreadable file
        return _name_now(name, load())
    return name


def _of_notebook() -> str | None:
    """Return the cluster in the metadata of this kernel's notebook; None if there is none."""
    told = os.environ.get("JPY_SESSION_NAME")  # set by Jupyter's server since 2.0
    if not told or not told.endswith(".ipynb"):
        return None
    try:
        info = os.stat(told)
        return _in_metadata(told, info.st_ino, info.st_mtime_ns, info.st_size)
    except OSError:
        return None


@functools.lru_cache(1)  # each cell asks several times, and a notebook with its outputs has megabytes
def _in_metadata(notebook: str, *_: int) -> str | None:
    try:
        about = json.loads(Path(notebook).read_text("utf-8"))["metadata"][METADATA]["cluster"]
    except (ValueError, LookupError, TypeError):
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
    """Lock the clusters, so that two notebooks do not overwrite each other's changes. Blocks."""
    # The file may be a link to a user's settings folder. Then this changes the link's target.
    file = path().resolve()
    with contextlib.ExitStack() as stack:
        try:
            make_private(file.parent)
            stack.enter_context(file_locks.locked(file.with_name(f".{file.name}.lock")))
        except OSError as error:
            raise _unwritable(error) from None
        yield


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

"""Keep what `make test` has set up, by the hash of what it was made of, and link it into the next clone.

    python3 tools/kept_setup.py restore [PIN...]    before make: what is kept for these files, if anything
    python3 tools/kept_setup.py keep [PIN...]       after make: what is here now, for the next clone

A PIN is any text that decides what is installed, such as `torch==2.13.0`. The folder is
~/.cache/jupyter-dist/setup, or below $XDG_CACHE_HOME. JUPYTER_DIST_FRESH=1 makes both calls do nothing, so
that everything is installed anew.

An entry holds hard links (`cp -al`): pip, npm and Python replace files, they never write into one. What
compilers and linters write in place is copied.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jupyter-dist" / "setup"
ENTRIES_OF_A_KIND = 3
"""Older ones are removed: an environment has some 8 GB, of which few are its own."""

FRONTEND = ("package.json", "package-lock.json", ".npmrc", "tsconfig.json", "tests/constraints.txt")


@dataclass(frozen=True)
class Kind:
    """Folders of the checkout that are made together."""

    name: str
    folders: tuple[str, ...]
    made_of: str
    """Text that changes when they have to be made anew."""
    stamps: tuple[str, ...] = ()
    """Files by which make knows that they are made, in the order in which make asks for them."""
    linked: bool = True


def kinds(pins: list[str]) -> list[Kind]:
    environment = Path(".venv")
    horovod = ("horovod_build.py", "horovod_recipe.py")
    python = [*_project(), _text("tests/constraints.txt"), _version(), sys.version, platform.machine(), *pins]
    python += [_text(f"jupyter_dist/commands/{name}") for name in horovod]
    node = [_text(name) for name in FRONTEND[:3]] + [_output("node", "--version"), platform.machine()]
    built = [_text(name) for name in FRONTEND] + [_text("tools/link_frontend.py"), *_sources("labextension")]
    stamps = [
        environment / name for name in (".python", ".demo", ".lab", ".test", ".horovod-mpi", ".horovod-gloo")
    ]
    return [
        Kind("environment", (".venv",), _hash(python), tuple(map(str, stamps))),
        Kind("node_modules", ("node_modules",), _hash(node), (str(environment / ".npm"),)),
        Kind(
            "front-end",
            ("labextension/lib", "jupyter_dist/labextension", "jupyter_dist/static"),
            _hash(built),
            (str(environment / ".js"),),
            linked=False,
        ),
        # Whatever they hold, mypy, ruff and tsc look at the hash of each file themselves. A cache of eslint
        # would not see that a type has changed in another file.
        Kind(
            "checks",
            (".mypy_cache", ".ruff_cache", ".cache"),
            _hash([_text("tests/constraints.txt")]),
            linked=False,
        ),
    ]


def _hash(texts: list[str]) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]


def _text(name: str) -> str:
    path = ROOT / name
    return path.read_text() if path.exists() else ""


def _version() -> str:
    return next(
        line for line in _text("jupyter_dist/__init__.py").splitlines() if line.startswith("__version__")
    )


def _project() -> list[str]:
    """What pip reads of pyproject.toml; settings of linters install nothing."""
    if sys.version_info < (3, 11):  # which reads no TOML
        return [_text("pyproject.toml")]
    tomllib = importlib.import_module("tomllib")

    read = tomllib.loads(_text("pyproject.toml"))
    return [json.dumps({name: read[name] for name in ("build-system", "project")}, sort_keys=True)]


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def _sources(folder: str) -> Iterator[str]:
    for path in sorted((ROOT / folder).rglob("*")):
        parts = path.relative_to(ROOT / folder).parts
        if path.is_file() and parts[0] not in ("lib", "tests"):
            yield f"{'/'.join(parts)}\n{hashlib.sha256(path.read_bytes()).hexdigest()}"


def restore(kind: Kind) -> bool:
    """Put what is kept into this checkout, unless it has some already."""
    entry = KEPT / kind.name / kind.made_of
    if any((ROOT / folder).exists() for folder in kind.folders) or not (entry / "root").exists():
        return False
    for number, folder in enumerate(kind.folders):
        if (entry / str(number)).exists():
            _copy(entry / str(number), ROOT / folder, kind.linked)
    if kind.name == "environment":
        _move(Path((entry / "root").read_text()))
    for stamp in json.loads((entry / "stamps").read_text()):
        (ROOT / stamp).parent.mkdir(exist_ok=True)
        (ROOT / stamp).touch()
    os.utime(entry)
    return True


def keep(kind: Kind) -> bool:
    """Keep what is in this checkout, unless it is kept already or is not whole."""
    entry = KEPT / kind.name / kind.made_of
    stamps = [stamp for stamp in kind.stamps if (ROOT / stamp).exists()]
    whole = all(any(stamp.startswith(wanted) for stamp in stamps) for wanted in _wanted(kind))
    if not whole or not any((ROOT / folder).exists() for folder in kind.folders):
        return False
    if entry.exists() and kind.name != "checks":
        return False
    part = entry.with_name(f"{entry.name}.{os.getpid()}")
    part.mkdir(parents=True)
    for number, folder in enumerate(kind.folders):
        if (ROOT / folder).exists():
            _copy(ROOT / folder, part / str(number), kind.linked)
    for name in _stamps_of_all():
        (part / "0" / Path(name).name).unlink(missing_ok=True)
    (part / "stamps").write_text(json.dumps(stamps))
    (part / "root").write_text(str(ROOT))
    shutil.rmtree(entry, ignore_errors=True)
    try:
        part.rename(entry)
    except OSError:  # another checkout has just kept the same
        shutil.rmtree(part)
        return False
    for old in sorted(entry.parent.iterdir(), key=lambda path: path.stat().st_mtime)[:-ENTRIES_OF_A_KIND]:
        shutil.rmtree(old)
    return True


def _wanted(kind: Kind) -> tuple[str, ...]:
    """Stamps without which an environment is not whole."""
    whole = {"environment": (".venv/.test", ".venv/.horovod-"), "node_modules": (".venv/.npm",)}
    return whole.get(kind.name, kind.stamps)


def _stamps_of_all() -> list[str]:
    """Stamps are touched, and a link's time is that of the file that is kept: they are made, not linked."""
    return [str(path.relative_to(ROOT)) for path in (ROOT / ".venv").glob(".*") if path.is_file()]


def _copy(source: Path, target: Path, linked: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-al" if linked else "-a", str(source), str(target)], check=True)


def _move(old_root: Path) -> None:
    """An environment knows its own path: in first lines of scripts, in links, in the editable install."""
    old, new = str(old_root), str(ROOT)
    environment = ROOT / ".venv"
    packages = next((environment / "lib").glob("python*/site-packages"))
    texts = [environment / "pyvenv.cfg", *(environment / "bin").iterdir(), *packages.glob("*.pth")]
    texts += packages.glob("*.dist-info/direct_url.json")
    for path in texts:
        if path.is_symlink() or not path.is_file():
            continue
        before = path.read_bytes()
        try:
            after = _first_line(before.decode().replace(old, new)).encode()
        except UnicodeDecodeError:
            continue  # a program
        if after != before:
            mode = path.stat().st_mode
            path.unlink()  # the kept file is the same one
            path.write_bytes(after)
            path.chmod(mode)
    for folder in (environment / "share", environment / "etc", environment / "bin"):
        for path in folder.rglob("*"):
            if path.is_symlink() and os.readlink(path).startswith(f"{old}/"):
                target = new + os.readlink(path)[len(old) :]
                path.unlink()
                path.symlink_to(target)


def _first_line(text: str) -> str:
    """The kernel splits a first line at spaces and cuts it at 127 bytes: a shell starts such scripts."""
    match = re.match(r"#!(/[^\n]*/\.venv/bin/python[\d.]*)\n", text)
    if match is None or (" " not in match[1] and len(match[0]) < 127):
        return text
    return f"#!/bin/sh\n'''exec' \"{match[1]}\" \"$0\" \"$@\"\n' '''\n{text[match.end() :]}"


def main() -> None:
    verb, *pins = sys.argv[1:]
    if os.environ.get("JUPYTER_DIST_FRESH", "") not in ("", "0"):
        return
    began = time.monotonic()
    done = [kind.name for kind in kinds(pins) if {"restore": restore, "keep": keep}[verb](kind)]
    if done:
        print(f"{verb}: {', '.join(done)}, in {time.monotonic() - began:.0f} s ({KEPT})")


if __name__ == "__main__":
    main()

"""Run a notebook as a kernel does and as a rank does, and say where the two differ.

Each notebook gets a kernel and a rank of its own, forks of nurseries that have imported what it needs.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_dist.conformance.ports import take_port
from jupyter_dist.worker import layout, payload

from .pieces import Notebook

__all__ = ["Seen", "Stage", "differences", "stage"]

_ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Seen:
    """How one notebook went."""

    refused: str | None
    """Why nothing was started."""
    trouble: str | None
    """What must not be, in words; None where all is well."""
    runs: bool = True
    """Whether it is a notebook at all: two settings may be at odds, which the kernel says itself."""


class Stage:
    """`shelves` are sets of libraries, the lighter first: a kernel has the first that is enough for it."""

    def __init__(
        self,
        folder: Path,
        shelves: Sequence[frozenset[str]],
        kernels: str = sys.executable,
        ranks: str = sys.executable,
        library: Path | None = None,
    ) -> None:
        self._folder = folder
        self._shelves = shelves
        self._pythons = {"kernels": kernels, "ranks": ranks}
        self._differ = kernels != ranks
        self._library = library
        self._port = take_port()  # for what makes a process group of the one rank
        self._nurseries: dict[tuple[str, ...], subprocess.Popen[str]] = {}

    def run(self, notebook: Notebook, *, cold: bool = False) -> Seen:
        """`cold`: the rank has imported nothing before."""
        place = self._folder / "notebook"
        shutil.rmtree(place, ignore_errors=True)
        for folder in ("notebook", "run"):
            (place / folder).mkdir(parents=True, mode=0o700)
        rank = Path(layout.rank_path(place / "run", 0, 0))
        rank.mkdir(parents=True, mode=0o700)
        for path, text in notebook.files.items():
            target = place / "notebook" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        asked: dict[str, Any] = {"folder": str(place), "cells": notebook.cells, "cell": notebook.cell}
        libraries = sorted(next(shelf for shelf in self._shelves if notebook.needs <= shelf))
        asked["here"] = not self._differ
        end = self._ask("kernels", libraries, asked)
        if end:
            return Seen(None, f"the kernel: {end}\n{_text(place / 'kernel.log')}")
        kernel = json.loads((place / "kernel.json").read_text())
        if "broken" in kernel:
            return Seen(None, f"the notebook does not run at all:\n{kernel['broken']}", runs=False)
        if "failed" in kernel:
            return Seen(None, f"capture: {kernel['failed']}")
        if "refused" in kernel:
            return Seen(kernel["refused"], _wrongly_refused(notebook, kernel["refused"]))
        bound = payload.read_header(place / "run" / layout.PAYLOAD).get("same_python")
        if bound:
            expected = any(piece.one_python for piece in notebook.pieces)
            return Seen(str(bound), None if expected else f"only one Python can run it: {bound}")
        env = {
            **kernel["environ"],
            "JUPYTER_DIST_RUN": str(place / "run"),
            "JUPYTER_DIST_CWD": str(place / "notebook"),
            "JUPYTER_DIST_ATTEMPT": "0",
            **dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK"), "0"),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self._port),
            **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS"), "1"),
        }
        end = self._ask("ranks", () if cold else libraries, {"env": env})
        if end:
            return Seen(None, f"the rank: {end}\n{_text(rank / layout.OUTPUT)}")
        notes = [*kernel["notes"], *_notes(rank / layout.EVENTS)]
        there = payload.load(rank / layout.RESULT)
        trouble = differences(notebook, kernel["seen"], there, notes)
        if trouble and self._differ:
            # The versions of Python differ themselves: a kernel with the rank's Python sees that too.
            end = self._ask("plain kernels of ranks", libraries, asked)
            other = json.loads((place / "kernel.json").read_text())
            if not end and "seen" in other:
                seen = [
                    r if r == o else k for k, o, r in zip(kernel["seen"], other["seen"], there, strict=True)
                ]
                trouble = differences(notebook, seen, there, notes)
        return Seen(None, trouble)

    def _ask(self, role: str, modules: Sequence[str], asked: dict[str, Any]) -> str:
        key = (role, *modules)
        if key not in self._nurseries:
            python = self._pythons["ranks" if "ranks" in role else "kernels"]
            own = "ranks" in role and self._library is not None
            paths = [str(_ROOT), str(self._library)] if own else [str(_ROOT)]
            self._nurseries[key] = subprocess.Popen(
                [
                    python,
                    "-m",
                    "tests.rigs.random_notebooks.forked_kernels",
                    role.removesuffix(" of ranks"),
                    *modules,
                ],
                cwd=self._folder,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(paths),
                    "OMP_NUM_THREADS": "1",
                    "PYTHONDONTWRITEBYTECODE": "",  # what an import compiled tells of which text it was
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        nursery = self._nurseries[key]
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        print(json.dumps(asked), file=nursery.stdin, flush=True)
        line = nursery.stdout.readline()
        assert line, f"the nursery of {key} has ended: {nursery.wait(10)}"
        return str(json.loads(line))

    def close(self) -> None:
        for nursery in self._nurseries.values():
            with nursery:
                assert nursery.stdin is not None
                nursery.stdin.close()


@contextlib.contextmanager
def stage(
    folder: Path,
    shelves: Sequence[frozenset[str]],
    kernels: str = sys.executable,
    ranks: str = sys.executable,
    library: Path | None = None,
) -> Iterator[Stage]:
    """`kernels`, `ranks`: the interpreter of each. `library`: the modules of the ranks' interpreter."""
    made = Stage(folder, shelves, kernels, ranks, library)
    try:
        yield made
    finally:
        made.close()


def _wrongly_refused(notebook: Notebook, message: str) -> str | None:
    *faults, end = [line for line in message.splitlines() if not line.startswith("    ")]
    names = [re.match(r"\w+", line) for line in faults]
    ours = all(name is not None and name[0] in notebook.refused for name in names)
    if names and ours and end == "Nothing was started.":
        return None
    return f"refused, which none of its kinds may be:\n{message}"


def differences(
    notebook: Notebook, here: Sequence[str], there: Sequence[str], notes: Sequence[str]
) -> str | None:
    """What differs in silence between what the kernel and what a rank has seen; None where nothing does."""
    lines = []
    for probe, kernel, rank in zip(notebook.probes, here, there, strict=True):
        if (
            kernel == rank
            or probe.anew
            or (probe.noted and any(re.search(probe.noted, note) for note in notes))
        ):
            continue
        lines.append(f"{probe.text}   [{probe.kind}]\n    kernel  {kernel}\n    rank    {rank}")
    if not lines:
        return None
    return "\n".join(["a rank sees something else:", *lines, *(f"note: {note}" for note in notes)])


def _notes(events: Path) -> list[str]:
    found = [json.loads(line) for line in events.read_text().splitlines()]
    return [event["text"] for event in found if event["kind"] == "note"]


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""

"""The examples of tests/end_to_end/upstream: what their heads say, their cells, and each as a plain script.

An example is one file. Its docstring has a sentence and then fields, one a line: `source` (the public
example whose shape it has), `group` (examples of one group share a kernel), `notebook` (the flags of
`%%distribute`), `plain` (the launcher's command line), `compared` and `changed`. Cells follow, each after a
line `# %%`. The last one is the distributed cell; its last expression is what a rank found, a dictionary of
plain values, of which `rank` is one.
"""

from __future__ import annotations

import ast
import math
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["EXAMPLES", "FOLDER", "Example", "differences", "read", "table"]

FOLDER = Path(__file__).parents[1] / "end_to_end" / "upstream"
FIELDS = ("source", "group", "notebook", "plain", "compared", "changed")
_RECORD = """
import json as _json, os as _os
with open(_os.path.join(_os.environ["RESULTS"], str(_os.getpid())), "w") as _file:
    _json.dump(_found, _file)
"""
"""The one thing a plain script has that the notebook has not: it leaves its last expression in a file."""
_LEAVE = """
import sys as _sys
_sys.stdout.flush()
_os._exit(0)
"""
"""When an interpreter ends, torch 2.13 with Gloo hangs or aborts about once in
five times, and its launcher waits or fails. By then the numbers are written."""


_DRIVER = 'import os as _os\n_results = _os.environ["RESULTS"]\n'
_RESULTS = 'import os as _os\n_os.environ["RESULTS"] = _results\n'
"""On Ray's workers, which have the environment of their node."""
_BY_A_TRAINER = """
import ray as _ray
from ray.train import RunConfig as _RunConfig, ScalingConfig as _ScalingConfig
from ray.train.{module} import {trainer} as _Trainer
_ray.init(log_to_driver=False)
_storage = _os.path.join(_os.path.dirname(_results), "storage")
_Trainer(
    _last_cell, scaling_config=_ScalingConfig(num_workers=2), run_config=_RunConfig(storage_path=_storage)
).fit()
_ray.shutdown()
"""
"""What a script for Ray ends with: one of Ray's trainers calls the last cell on two workers."""
_TRAINERS = {
    "TORCH_TRAINER": {"module": "torch", "trainer": "TorchTrainer"},
    "HOROVOD_TRAINER": {"module": "horovod", "trainer": "HorovodTrainer"},
}


@dataclass(frozen=True)
class Example:
    name: str
    title: str
    source: str
    group: str
    notebook: str
    plain: str
    compared: str
    changed: str
    cells: tuple[str, ...]

    @property
    def exactly(self) -> bool:
        return self.compared.endswith("exactly")

    def script(self) -> str:
        """The cells as one program for the plain launcher."""
        for name, trainer in _TRAINERS.items():
            if name in self.plain:
                *earlier, last = self.cells
                body = textwrap.indent(_RESULTS + _with_result(last, self.name) + _RECORD, "    ")
                cells = "\n".join([*earlier, "def _last_cell():"])
                return f"{_DRIVER}{cells}\n{body}\n{_BY_A_TRAINER.format(**trainer)}"
        ends_badly = self.plain.startswith("torchrun")
        return (
            _with_result("\n".join(self.cells), self.name) + "\n" + _RECORD + (_LEAVE if ends_badly else "")
        )


def _with_result(source: str, name: str) -> str:
    """The same source, with what its last expression gives in a variable."""
    last = ast.parse(source).body[-1]
    if not isinstance(last, ast.Expr):
        raise ValueError(f"{name} does not end with an expression")
    lines = source.splitlines()
    lines[last.lineno - 1] = "_found = " + lines[last.lineno - 1]
    return "\n".join(lines)


def read(path: Path) -> Example:
    head, *cells = re.split(r"^# %%.*\n", path.read_text(), flags=re.MULTILINE)
    docstring = ast.get_docstring(ast.parse(head)) or ""
    title, _, rest = docstring.partition("\n")
    fields = dict(re.findall(r"^(\w+): (.*)$", rest, re.MULTILINE))
    if set(fields) != set(FIELDS):
        raise ValueError(f"{path}: the head has to say {', '.join(FIELDS)}, and says {', '.join(fields)}")
    return Example(path.stem, title, cells=tuple(cell.strip("\n") for cell in cells), **fields)


EXAMPLES = {path.stem: read(path) for path in sorted(FOLDER.glob("*.py"))}


def differences(ours: Any, plain: Any, *, exactly: bool, at: str = "") -> list[str]:
    """Where two results are not the same: numbers to 1e-6 of each other, or exactly."""
    if isinstance(ours, dict) and isinstance(plain, dict) and ours.keys() == plain.keys():
        pairs = [(f"{at}[{key!r}]", ours[key], plain[key]) for key in ours]
    elif isinstance(ours, list) and isinstance(plain, list) and len(ours) == len(plain):
        pairs = [(f"{at}[{i}]", *pair) for i, pair in enumerate(zip(ours, plain, strict=True))]
    else:
        numbers = all(isinstance(value, float) for value in (ours, plain))
        close = numbers and not exactly and math.isclose(ours, plain, rel_tol=1e-6, abs_tol=1e-6)
        return [] if close or ours == plain else [f"{at}: {ours!r} by %%distribute, {plain!r} plainly"]
    return [found for place, a, b in pairs for found in differences(a, b, exactly=exactly, at=place)]


def table() -> str:
    """The rows of docs/examples.md."""
    rows = [
        "| example | after | in the notebook | the plain launcher | compared | to change |",
        "|---" * 6 + "|",
    ]
    rows += [
        f"| [{one.name}](../tests/end_to_end/upstream/{one.name}.py) | [theirs]({one.source}) | "
        f"`{one.notebook}` | `{one.plain}` | {one.compared} | {one.changed} |"
        for one in EXAMPLES.values()
    ]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    page = FOLDER.parents[2] / "docs" / "examples.md"
    words = page.read_text().partition("\n| ")[0].rstrip("\n")
    page.write_text(f"{words}\n\n{table()}")

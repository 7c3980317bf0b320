"""Each row of docs/listings.md is a cell that could run: its flags, its Python and its dry run."""

from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path

import pytest

from tests.end_to_end.test_notebooks import checker

PAGE = Path(__file__).parents[2] / "docs" / "listings.md"
ROWS = re.findall(r"^\| (.+) \| `(%%distribute .+?)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)


def test_every_row_has_a_first_line_and_a_cell() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    headings = [line for line in rows if line == "| listing | first line | in the cell |"]
    assert len(ROWS) == len(rows) - len(headings) > 50


@pytest.mark.needs(
    *("torch", "tensorflow", "ray", "pyspark", "boto3", "kubernetes", "azure.identity", "databricks.sdk"),
    *("horovod", "optuna"),
)
def test_each_row_could_run() -> None:
    module = checker()
    problems = []
    with module._a_users_folder() as folder:
        hosts = folder / "hosts.sh"
        hosts.write_text("#!/bin/sh\necho localhost:2\n")
        hosts.chmod(0o700)
        for listing, line, cells in ROWS:
            code = "\n".join(re.findall(r"`(.+?)`", cells))
            known = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
            try:
                found = list(module._check_cell(f"{line}\n{code}", known | {*vars(builtins)}, folder))
            except Exception as error:
                found = [f"{type(error).__name__}: {error}"]
            problems += [f"{listing}: {problem}" for problem in found]
    assert problems == []

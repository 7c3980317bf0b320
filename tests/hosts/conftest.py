"""Fixtures for tests of hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_dist import folder as folders
from jupyter_dist.folder import RunFolder


@pytest.fixture
def folder(own_folders: Path) -> RunFolder:
    made = folders.create(own_folders, "20261120-120000-abcd12", 2)
    made.payload.write_bytes(b"a payload")
    folders.write_json(made.job, {})
    return made

"""What `make test` has set up serves the next clone, wherever that is, if it is made of the same."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import venv
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def kept_setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool, keeping things below the test's folder."""
    spec = importlib.util.spec_from_file_location("kept_setup", ROOT / "tools" / "kept_setup.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "kept_setup", tool)
    spec.loader.exec_module(tool)
    monkeypatch.setattr(tool, "KEPT", tmp_path / "kept")
    return tool


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with an environment: an editable install, a script, a link into the checkout."""
    root = tmp_path / "first"
    venv.create(root / ".venv", symlinks=True)
    for stamp in (".python", ".test", ".horovod-mpi"):
        (root / ".venv" / stamp).touch()
    packages = next((root / ".venv" / "lib").glob("python*/site-packages"))
    (packages / "_ours.pth").write_text(f"{root}\n")
    (root / "ours.py").write_text("where = __file__\n")
    script = root / ".venv" / "bin" / "ours"
    script.write_text(f"#!{root}/.venv/bin/python\nimport ours\nprint(ours.where)\n")
    script.chmod(0o755)
    (root / ".venv" / "share").mkdir()
    (root / ".venv" / "share" / "built").symlink_to(root / "built")
    return root


def _environment(tool: ModuleType, root: Path, made_of: str) -> object:
    tool.ROOT = root  # type: ignore[attr-defined]
    stamps = (".venv/.python", ".venv/.test", ".venv/.horovod-mpi")
    return tool.Kind("environment", (".venv",), made_of, stamps)


def test_an_environment_serves_another_checkout(
    kept_setup: ModuleType, checkout: Path, tmp_path: Path
) -> None:
    assert kept_setup.keep(_environment(kept_setup, checkout, "a"))
    # A shell has to start its scripts: the kernel splits their first line at the space.
    other = tmp_path / "with a space"
    other.mkdir()
    (other / "ours.py").write_text("where = __file__\n")
    assert not kept_setup.restore(_environment(kept_setup, other, "b")), "it is made of something else"
    assert kept_setup.restore(_environment(kept_setup, other, "a"))
    for root in (other, checkout):
        script = [str(root / ".venv" / "bin" / "ours")]
        told = subprocess.run(script, capture_output=True, text=True, check=True).stdout
        assert told == f"{root}/ours.py\n"
        assert os.readlink(root / ".venv" / "share" / "built") == f"{root}/built"
    stamps = [(other / ".venv" / name).stat() for name in (".python", ".test", ".horovod-mpi")]
    assert stamps == sorted(stamps, key=lambda stat: stat.st_mtime_ns), "make asks for them in this order"
    assert {stat.st_nlink for stat in stamps} == {1}, "a stamp that is touched is no other checkout's"


def test_what_is_not_whole_is_not_kept_and_what_is_there_not_replaced(
    kept_setup: ModuleType, checkout: Path
) -> None:
    kind = _environment(kept_setup, checkout, "a")
    (checkout / ".venv" / ".horovod-mpi").unlink()
    assert not kept_setup.keep(kind)
    (checkout / ".venv" / ".horovod-mpi").touch()
    assert kept_setup.keep(kind)
    assert not kept_setup.restore(kind)
    os.utime(kept_setup.KEPT / "environment" / "a", (0, 0))  # the oldest, also by a coarse clock
    for made_of in "bcd":
        assert kept_setup.keep(_environment(kept_setup, checkout, made_of))
    left = sorted(path.name for path in (kept_setup.KEPT / "environment").iterdir())
    assert left == ["b", "c", "d"], "few are kept: each is large"


def test_two_checkouts_that_keep_the_same_at_once(
    kept_setup: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = _environment(kept_setup, checkout, "a")
    remove = kept_setup.shutil.rmtree

    def remove_before_another_is_done(path: Path, ignore_errors: bool = False) -> None:
        remove(path, ignore_errors)
        if ignore_errors:
            path.mkdir()
            (path / "stamps").write_text("of the other")

    monkeypatch.setattr(kept_setup.shutil, "rmtree", remove_before_another_is_done)
    assert not kept_setup.keep(kind)
    (entry,) = (kept_setup.KEPT / "environment").iterdir()
    assert (entry / "stamps").read_text() == "of the other"

"""The built wheel: one `pip install` of it brings the magics, the server extension, and the front-end."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from jupyter_dist import __version__
from jupyter_dist.conformance.deadlines import run_process

ROOT = Path(__file__).parents[1]


def test_the_wheel_is_small_and_has_everything_in_its_place(tmp_path: Path) -> None:
    if shutil.which("npm") is None or not (ROOT / "node_modules").is_dir():
        pytest.skip("needs Node 20 and what it builds with: make .venv/.npm")
    # In a copy: the build writes where other tests read.
    source = tmp_path / "source"
    source.mkdir()
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    (source / "node_modules").symlink_to(ROOT / "node_modules")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), "."]
    done = run_process(build, cwd=source)
    assert done.returncode == 0, done.stdout + done.stderr

    (wheel,) = tmp_path.glob("*.whl")
    files = zipfile.ZipFile(wheel).infolist()
    names = {one.filename for one in files}
    # What is written by hand grows with what there is; nothing that is built or copied is to grow with it.
    assert max(one.compress_size for one in files) < 75_000
    built = [one for one in files if not one.filename.endswith(".py") and ".dist-info/" not in one.filename]
    assert sum(one.compress_size for one in built) < 236_000
    data = f"jupyter_dist-{__version__}.data/data/"
    for place in (
        "jupyter_dist/static/widget.js",
        "jupyter_dist/static/widget.css",
        "jupyter_dist/server/openapi.json",
        "jupyter_dist/py.typed",
        f"{data}share/jupyter/labextensions/jupyter-dist/package.json",
        f"{data}share/jupyter/labextensions/jupyter-dist/install.json",
        f"{data}share/jupyter/labextensions/jupyter-dist/static/style.js",
        f"{data}share/jupyter/labextensions/jupyter-dist/schemas/jupyter-dist/plugin.json",
        f"{data}etc/jupyter/jupyter_server_config.d/jupyter_dist.json",
    ):
        assert place in names, sorted(names)
    assert not [name for name in names if name.endswith((".ts", ".tsx", ".map")) or "node_modules" in name]

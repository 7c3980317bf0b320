"""Put the built front-end into the wheel; build it first where it is missing.

A wheel carries the labextension, the widget and the server's configuration, so that installing it
needs no Node. An editable install carries none of them: `make` builds them and links them into the
environment, where pip would otherwise leave a copy that grows old.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LABEXTENSION = "jupyter_dist/labextension"
ENSURED = (f"{LABEXTENSION}/package.json", f"{LABEXTENSION}/static/style.js", "jupyter_dist/static/widget.js")
DEBUG = f"{LABEXTENSION}/build_log.json"
SHARED = {
    LABEXTENSION: "share/jupyter/labextensions/jupyter-dist",
    "labextension/config/install.json": "share/jupyter/labextensions/jupyter-dist/install.json",
    "labextension/config/server-config": "etc/jupyter/jupyter_server_config.d",
}


class FrontEndHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling. JUPYTER_DIST_SKIP_JS=1 makes a wheel with Python alone."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or os.environ.get("JUPYTER_DIST_SKIP_JS") == "1":
            return
        root = Path(self.root)
        built = all((root / path).is_file() for path in ENSURED)
        # Where it can be built at once it is: what is there may be old, or a build for debugging.
        if (root / "node_modules").is_dir():
            _npm(root, "run", "build:prod")
        elif not built or (root / DEBUG).is_file():
            _npm(root, "ci")
            _npm(root, "run", "build:prod")
        if self.target_name == "wheel":
            build_data["shared_data"].update(SHARED)


def _npm(root: Path, *arguments: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError(
            "the front-end is not built, and building it needs Node 20 or newer (npm is not on PATH). "
            "Install Node, or a wheel of jupyter-dist, or set JUPYTER_DIST_SKIP_JS=1 for Python alone."
        )
    # jupyter-builder is a script beside the Python that builds.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    subprocess.run([npm, *arguments], cwd=root, check=True, env={**os.environ, "PATH": path})

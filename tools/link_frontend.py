"""Link the built front-end and the server's configuration into this environment, for an editable install."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def link(target: Path, path: Path) -> None:
    """Make `path` a link to `target`, in place of whatever was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(target)


def main() -> None:
    if sys.prefix == sys.base_prefix:
        sys.exit("Run this with the Python of a virtual environment.")
    prefix = Path(sys.prefix)
    link(ROOT / "jupyter_dist" / "labextension", prefix / "share/jupyter/labextensions/jupyter-dist")
    for config in sorted((ROOT / "labextension/config/server-config").glob("*.json")):
        link(config, prefix / "etc/jupyter/jupyter_server_config.d" / config.name)


if __name__ == "__main__":
    main()

"""Files that a run sends to a host: the worker's code, cloudpickle, and the run's payload and modules."""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..folder import RunFolder
from ..job import Job
from ..text.package_version import package_version
from ..worker import layout
from .openssh import own_version
from .settings import HostSettings

__all__ = ["Shipped", "bundle", "kept_checkpoints", "run_files", "shipped", "stage_wish"]

_PACKAGE = Path(__file__).parents[1]
_STUB = '''"""The part of jupyter_dist that ranks need, as it was sent to this host."""

__version__ = {version!r}


def __getattr__(name):
    from .worker import api
    from .worker.api import trial_parameters

    try:
        return getattr(trial_parameters if name == "parameters" else api, name)
    except AttributeError:
        raise AttributeError(f"module 'jupyter_dist' has no attribute {{name!r}} on a rank") from None
'''


# A function for HorovodRunner imports this module on the rank.
_DATABRICKS = b'''"""The part of jupyter_dist.databricks that ranks need, as it was sent to this host."""

from .worker.output.driver_log import __getattr__, log_to_driver
'''


@dataclass(frozen=True)
class Shipped:
    """One file: its path in the stage folder, and its bytes or the local file."""

    path: str
    size: int
    content: bytes | Path
    modified: float | None = None
    """For a checkpoint: when it was written (seconds since the epoch). The host's file gets the same time."""


def shipped(folder: RunFolder) -> list[Shipped]:
    """Return all files that a host needs for a run, small files first. Does not read the run's own files."""
    code = [
        _of_bytes("code/jupyter_dist/__init__.py", _stub()),
        _of_bytes("code/jupyter_dist/databricks.py", _DATABRICKS),
    ]
    code += [
        _of_bytes(f"code/jupyter_dist/{path.relative_to(_PACKAGE)}", path.read_bytes())
        for part in ("agent", "worker")
        for path in sorted((_PACKAGE / part).rglob("*.py"))
    ]
    import cloudpickle

    home = Path(cloudpickle.__file__).parent
    code += [
        _of_bytes(f"code/cloudpickle/{path.relative_to(home)}", path.read_bytes())
        for path in sorted(home.rglob("*.py"))
    ]
    return [*code, *run_files(folder, "run/")]


def run_files(folder: RunFolder, prefix: str = "") -> list[Shipped]:
    """Return the run's own files that its ranks need. `prefix`: of their paths on a host."""
    own = [folder.job, folder.payload, folder.payload.with_suffix(layout.BUFFERS)]
    if folder.modules.is_dir():
        own += sorted(path for path in folder.modules.rglob("*") if path.is_file())
    return [
        Shipped(f"{prefix}{path.relative_to(folder.path)}", path.stat().st_size, path)
        for path in own
        if path.exists()
    ]


def kept_checkpoints(folder: RunFolder) -> list[Shipped]:
    """Return the files of earlier attempts in `dist.checkpoint_dir()`, for hosts that do not have them."""
    found = []
    for path in sorted(folder.checkpoints.rglob("*")) if folder.checkpoints.is_dir() else ():
        if path.is_file() and not path.is_symlink() and not path.name.endswith(".part"):
            info = path.stat()
            name = f"run/{path.relative_to(folder.path)}"
            found.append(Shipped(name, info.st_size, path, info.st_mtime))
    return found


def bundle(files: Sequence[Shipped]) -> bytes:
    """Return the code files as a zip that Python can import. The same code gives the same bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            if file.path.startswith("code/") and isinstance(file.content, bytes):
                entry = zipfile.ZipInfo(file.path.removeprefix("code/"), (1980, 1, 1, 0, 0, 0))
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, file.content)
    return out.getvalue()


def _of_bytes(path: str, content: bytes) -> Shipped:
    return Shipped(path, len(content), content)


def _stub() -> bytes:
    return _STUB.format(version=package_version()).encode()


def stage_wish(
    settings: HostSettings, job: Job, node: int, name: str, files: Sequence[Shipped]
) -> dict[str, Any]:
    """Return the request to set up the run's stage on a host."""
    kept = {file.path: file.modified for file in files if file.modified is not None}
    wish = {"dir": settings.remote_dir, "run": job.id, "node": node, "name": name}
    wish |= {"grace_s": settings.grace_s, "stop_grace_s": job.stop_grace_s}
    wish |= {"session": job.session is not None}
    wish |= {"version": own_version(), "other_python": _other_python(settings.other_python, files)}
    return {**wish, "kept": kept}


def _other_python(allowed: bool | None, files: Sequence[Shipped]) -> str:
    """Return why hosts need the notebook's version of Python. An empty text: they do not."""
    own = own_version()
    if not allowed:
        hint = "" if allowed is None else ". Or add --other-python"
        return f"Only the same version can read the pickled cell. Run it with Python {own}{hint}"
    lacking = _same_python(files)
    if not lacking:
        return ""
    these = "this function" if len(lacking) == 1 else "these functions"
    listed = "; ".join(f"{name}: {reason}" for name, reason in lacking.items())
    return (
        f"Only Python {own} can run {these}: {listed}. Define {these} in a cell or a module, or use hosts "
        f"with Python {own}"
    )


def _same_python(files: Sequence[Shipped]) -> dict[str, str]:
    """Return functions of the payload that run only with the notebook's version of Python, with reasons."""
    from ..worker.payload import ContainerError, read_header

    found: dict[str, str] = {}
    for file in files:
        if file.path == f"run/{layout.PAYLOAD}" and isinstance(file.content, Path):
            with contextlib.suppress(ContainerError, OSError):  # a rank reports a damaged payload
                found = read_header(file.content).get("same_python", {})
    return found

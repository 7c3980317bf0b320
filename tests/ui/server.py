"""A real JupyterLab server in a process of its own, with folders of its own, for tests and benchmarks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_dist.conformance.deadlines import Deadline
from jupyter_dist.conformance.ports import take_port

__all__ = ["JupyterServer"]

TOKEN = "of-the-tests"
PYTHON = os.environ.get("JUPYTER_DIST_SERVER_PYTHON", sys.executable)
"""Where JupyterLab and its kernels run: another environment, such as one with the built wheel, or this."""
# What else may be installed beside us, for the benchmarks, and would speak up in the page.
PEERS_ON_THE_SERVER = ("ipyparallel", "jupyter_distributed")
PEERS_IN_THE_PAGE = ("ipyparallel-labextension", "jupyter-distributed")
QUIET = (
    "@jupyterlab/apputils-extension:announcements",  # asks a question at the first start
    "@jupyterlab/extensionmanager-extension",  # asks PyPI
)
_FORKED_KERNELS = f"""import sys
sys.path.append({str(Path(__file__).parents[2])!r})
from tests.rigs import kernel_forks
kernel_forks.install()
"""
OF_A_RANK = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")


class JupyterServer:
    """JupyterLab and Notebook 7 on one port; `start`, `stop` and `restart` may follow each other.

    Everything it keeps is below `folder`: notebooks in `root`, runs in `runs`, settings in `config`.
    With `forks` its kernels are forks, as those of tests/rigs/kernel_forks.py.
    """

    def __init__(self, folder: Path, base_url: str = "/", *, forks: bool = False) -> None:
        self.folder = folder
        self.base_url = base_url
        self.root = folder / "notebooks"
        self.data = folder / "data"
        self.config = folder / "config"
        self.runs = self.data / "jupyter-dist" / "runs"
        self.clusters = self.config / "jupyter-dist" / "clusters.toml"
        self.port = take_port()
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        for place in (self.root, self.data, self.config):
            place.mkdir(parents=True, exist_ok=True)
        switches = dict.fromkeys(PEERS_ON_THE_SERVER, False)
        self._write(
            self.config / "jupyter_server_config.json", {"ServerApp": {"jpserver_extensions": switches}}
        )
        self._disable(())
        if forks and sys.executable == PYTHON:
            (self.config / "jupyter_server_config.py").write_text(_FORKED_KERNELS)

    @property
    def env(self) -> dict[str, str]:
        """The environment of the server and its kernels: outside of any run, with nobody's settings."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("JUPYTER_", "JPY_")) and name not in OF_A_RANK
        }
        return {
            **inherited,
            "HOME": str(self.folder),
            "IPYTHONDIR": str(self.folder / "ipython"),
            "JUPYTER_CONFIG_DIR": str(self.config),
            "JUPYTER_DATA_DIR": str(self.data),
            "JUPYTER_RUNTIME_DIR": str(self.folder / "runtime"),
            # A frozen standard library makes the debugger of the kernel complain at its start.
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }

    def url(self, path: str = "") -> str:
        return f"http://127.0.0.1:{self.port}{self.base_url}{path}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(PYTHON, "-m", "jupyterlab", "--no-browser", f"--port={self.port}"),
                    *("--ServerApp.port_retries=0", f"--ServerApp.base_url={self.base_url}"),
                    *(f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={self.root}"),
                    *(
                        "--LabApp.expose_app_in_browser=True",
                        "--JupyterNotebookApp.expose_app_in_browser=True",
                    ),
                    *(["--allow-root"] if os.geteuid() == 0 else []),
                ],
                env=self.env,
                cwd=self.root,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = Deadline()
        while not self._answers():
            code = self._process.poll()
            if code is not None or deadline.passed():
                what = "did not answer" if code is None else f"ended with {code}"
                raise RuntimeError(f"the server {what}; its log:\n{self.log()[-4000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End the server and its kernels; what is detached from them goes on."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart(self) -> None:
        """The same server again, on the same port."""
        self.stop()
        self.start()

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @contextlib.contextmanager
    def without(self, *extensions: str) -> Iterator[None]:
        """Disable labextensions for the pages that are loaded meanwhile."""
        self._disable(extensions)
        try:
            yield
        finally:
            self._disable(())

    def set_preferences(self, plugin: str, values: dict[str, Any]) -> None:
        """Settings of a plugin such as `@jupyterlab/apputils-extension:themes`, for pages loaded later."""
        package, _, name = plugin.partition(":")
        path = self.config / "lab" / "user-settings" / package / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write(path, values)

    def _disable(self, extensions: tuple[str, ...]) -> None:
        disabled = dict.fromkeys((*QUIET, *PEERS_IN_THE_PAGE, *extensions), True)
        self._write(self.config / "labconfig" / "page_config.json", {"disabledExtensions": disabled})

    def _answers(self) -> bool:
        request = urllib.request.Request(self.url("api"), headers={"Authorization": f"token {TOKEN}"})
        try:
            with urllib.request.urlopen(request, timeout=5):
                return True
        except OSError:
            return False

    @staticmethod
    def _write(path: Path, value: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))

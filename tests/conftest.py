"""What every test gets: its own runs folder, no process left behind, real kernels, deadlines.

Fixtures: `wait_for` (a condition with a deadline), `kernel` and `start_kernel` (real IPython kernels),
`hosts` (real sshd in namespaces), `warm` (ranks are forks), and, for every test, `own_folders` and
`no_leftovers`.
Marker: `needs` (pyproject.toml).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from hypothesis import settings

from jupyter_dist.backends.job_watch import JobWatch
from jupyter_dist.conformance.deadlines import PATIENCE_S, Deadline, end_all_by, wait_until
from jupyter_dist.hosts.links.mailbox import Mailbox
from jupyter_dist.worker.launchers import fast_horovodrun
from tests.rigs import kernel_forks
from tests.rigs.databricks.workspace import databricks_workspace  # noqa: F401  the fixture
from tests.rigs.hosts import hosts  # noqa: F401  the fixture
from tests.rigs.launching import open_files
from tests.rigs.notebook_cells import notebook  # noqa: F401  the fixture
from tests.rigs.nvidia import fake_gpus  # noqa: F401  the fixture
from tests.rigs.spark_rig import kept_session, spark_context  # noqa: F401  the fixtures
from tests.rigs.warm_ranks import end_template, preloaded, warm  # noqa: F401  the fixtures, and their end
from tests.tiers.pytest_plugin import TierPlugin

# CI tries the same examples for the same code; elsewhere each run tries new ones. How long one takes says
# what else the machine does.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("here", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# A thread of OpenMP's that waits for others turns in a loop otherwise. Where there are more threads than
# cores, as beside other tests, that is most of what a network costs: ten times what it takes to train it.
# https://gcc.gnu.org/onlinedocs/libgomp/OMP_005fWAIT_005fPOLICY.html
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

collect_ignore = [] if shutil.which("nvidia-smi") else ["gpu"]

STARTED_IN = Path.cwd()
RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4,8}")
OF_A_RANK = (
    *("JUPYTER_DIST_" + name for name in ("RUN", "RUN_ID", "ATTEMPT", "GPUS")),
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TF_CONFIG", "OMP_NUM_THREADS"),
)
INSTALL = {
    "horovod": "jupyter dist install-horovod",
    "optuna": 'pip install "jupyter-dist[tune]"',
    "torch": 'pip install "jupyter-dist[torch]"',
    "tensorflow": 'pip install "jupyter-dist[tensorflow]"',
    "tf_keras": "pip install --no-deps tf_keras",
}


def _horovod_lacks_mpi() -> str | None:
    if "mpi" in fast_horovodrun.built_with():
        return None
    return "needs Horovod with MPI: apt-get install openmpi-bin libopenmpi-dev, then make .venv/.horovod-mpi"


def _mpi4py_lacks_mpi() -> str | None:
    return None if shutil.which("mpirun") else "needs MPI for mpi4py: apt-get install openmpi-bin"


LACKS: dict[str, Callable[[], str | None]] = {
    "horovod with MPI": _horovod_lacks_mpi,
    "mpi4py": _mpi4py_lacks_mpi,
}
"""What it takes to say that something may be imported and still cannot be used."""


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test its own runs, Jupyter and IPython folders, and an environment outside of any run.

    Returns the folder that will hold its runs.
    """
    for name in OF_A_RANK:
        monkeypatch.delenv(name, raising=False)
    runs = tmp_path / "runs"
    monkeypatch.setenv("JUPYTER_DIST_RUNS", str(runs))
    monkeypatch.setenv("JUPYTER_DIST_GPU_LOCKS", str(tmp_path / "gpu-locks"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    return runs


@pytest.fixture(autouse=True)
def pytests_filters_stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test is the notebook, its filters of warnings are pytest's, and would be errors on ranks."""
    monkeypatch.setattr("jupyter_dist.capture.kernel_logging.read_filters", list)


@pytest.fixture(autouse=True)
def nobody_looks_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where a test plays the supervisor, whose process then ends, end the threads that its backends have.

    They would ask a service that is gone for as long as pytest runs, and draw their pauses from `random`."""
    ends: list[Callable[[], None]] = []
    for kind, begin, end in ((Mailbox, "start", "leave"), (JobWatch, "__init__", "close")):
        monkeypatch.setattr(kind, begin, _noting(getattr(kind, begin), end, ends))
    yield
    for each in ends:
        each()


def _noting(begin: Callable[..., None], end: str, ends: list[Callable[[], None]]) -> Callable[..., None]:
    def noted(self: Any, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        ends.append(getattr(self, end))

    return noted


@pytest.fixture(autouse=True)
def no_leftovers(own_folders: Path, tmp_path: Path) -> Iterator[None]:
    """Fail a test that leaves a rank or a supervisor of its runs alive, and end what it left."""
    yield
    if not any(tmp_path.iterdir()):
        return

    def killed() -> str:
        left = run_processes(tmp_path)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return "\n".join(f"  {pid}: {what}" for pid, what in left.items())

    # 10 s is a claim: what this long after the end of a test still runs was not ended by anybody.
    wait_until(lambda: not run_processes(tmp_path), "the end of this test's runs", killed, patience_s=10)


def run_processes(root: Path) -> dict[int, str]:
    """Processes other than this one that belong to a run below `root`, with what gives them away.

    A forked rank keeps the environment block of its parent in /proc, so open files are looked at too:
    fd 1 of every rank is its output.log.
    """
    found = {}
    marker = f"JUPYTER_DIST_RUN={root}/".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        # Processes come and go while we look, and others' cannot be read.
        with contextlib.suppress(OSError):
            if marker in Path("/proc", entry, "environ").read_bytes():
                found[int(entry)] = _command(entry)
                continue
            for target in open_files(int(entry)):
                if target.startswith(f"{root}/") and RUN_ID.search(target):
                    found[int(entry)] = f"{_command(entry)} holds {target}"
                    break
    return found


def _command(pid: str) -> str:
    return Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> random.Random:
    """Chance that a red test can have again: its seed is the test's name, or JUPYTER_DIST_SEED."""
    seed = os.environ.get("JUPYTER_DIST_SEED", request.node.name)
    print(f"repeat with JUPYTER_DIST_SEED={shlex.quote(seed)}")
    return random.Random(seed)


@pytest.fixture
def wait_for() -> Callable[..., Any]:
    """`wait_for(condition, what="…")`: call it until it is true, and return what it gave.

    Fails the test, saying `what` was waited for, after the deadline. A wait has no number: what has to be
    quick is measured with a `Stopwatch`.
    """
    return wait_until


_STACKS = signal.SIGRTMIN + 9
"""Makes a kernel of the tests write its stacks: a hang in one run of a thousand is not seen twice."""


class Cell:
    """What one executed cell has sent so far: streams, displays and its error.

    `messages` holds (type, content) as they came; the rest is folded from them as a front-end would:
    `update_display_data` replaces, `clear_output` clears.
    """

    def __init__(self, kernel: Kernel, msg_id: str) -> None:
        self._kernel = kernel
        self.msg_id = msg_id
        self.messages: list[tuple[str, dict[str, Any]]] = []
        self.stdout = ""
        self.stderr = ""
        self.displays: list[dict[str, Any]] = []
        """One MIME bundle per display and result, in order, each as it was last updated."""
        self.error: str | None = None
        """`Name: message`, with the traceback's text after it, when the cell raised."""
        self.done = False
        self._shown: dict[str, int] = {}
        self._clear_next = False

    @property
    def text(self) -> str:
        """All a reader sees as plain text: streams, then displays, then the error."""
        shown = [bundle.get("text/plain", "") for bundle in self.displays]
        return "\n".join([self.stdout, self.stderr, *shown, self.error or ""])

    def until(self, condition: Callable[[Cell], Any]) -> Cell:
        """Read the cell's output until the condition holds, the cell still running or not."""
        deadline = Deadline()
        while not condition(self):
            if deadline.passed():
                told = f"the cell did not get there in {deadline.patience_s:g} s; so far:\n{self.text}"
                pytest.fail(f"{told}\n\nwhat the kernel is doing:\n{self._kernel.stacks()}")
            self._kernel.read(1.0)
        return self

    def finish(self) -> Cell:
        """Wait for the cell's end; it may have raised."""
        return self.until(lambda cell: cell.done)

    def take(self, kind: str, content: dict[str, Any]) -> None:
        self.messages.append((kind, content))
        if kind == "status":
            self.done = self.done or content["execution_state"] == "idle"
            return
        if kind == "clear_output":
            self._clear_next = True
            if content.get("wait"):
                return
        if self._clear_next:
            self._clear_next = False
            self.stdout = self.stderr = ""
            self.displays, self._shown = [], {}
        if kind == "stream":
            name = content["name"]
            setattr(self, name, getattr(self, name) + content["text"])
        elif kind in ("display_data", "execute_result"):
            self._remember(content, len(self.displays))
            self.displays.append(content["data"])
        elif kind == "update_display_data":
            place = self._shown.get(content["transient"]["display_id"])
            if place is not None:
                self.displays[place] = content["data"]
        elif kind == "error":
            colours = re.compile(r"\x1b\[[0-9;]*m")
            traceback = colours.sub("", "\n".join(content["traceback"]))
            self.error = f"{content['ename']}: {content['evalue']}\n{traceback}"

    def _remember(self, content: dict[str, Any], place: int) -> None:
        display_id = content.get("transient", {}).get("display_id")
        if display_id is not None:
            self._shown[display_id] = place


class Kernel:
    """A real IPython kernel in a process of its own, in the test's folder."""

    def __init__(self, cwd: Path) -> None:
        from jupyter_client.manager import KernelManager

        # Unix sockets, so that kernels of tests that run side by side cannot race for a port;
        # in a folder of their own, because the path of a socket must be short.
        self._sockets = Path(tempfile.mkdtemp(prefix="jd-"))
        connection = str(self._sockets / "kernel.json")
        self.manager = KernelManager(kernel_name="python3", transport="ipc", connection_file=connection)
        self._stacks = self._sockets / "stacks"
        can_tell = f"__import__('faulthandler').register({_STACKS}, open({str(self._stacks)!r}, 'w'))"
        with kernel_forks.forked():
            self.manager.start_kernel(cwd=str(cwd), extra_arguments=[f"--IPKernelApp.exec_lines={can_tell}"])
        self._cells: dict[str, Cell] = {}
        self._connect()

    def _connect(self) -> None:
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=PATIENCE_S)

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.pid)  # type: ignore[union-attr]

    def stacks(self) -> str:
        """What each of the kernel's threads is doing."""
        os.kill(self.pid, _STACKS)
        # One that is stopped, or whose main thread holds all up in C, writes nothing.
        deadline = Deadline(5)
        while not (text := self._stacks.read_text()).endswith("\n") and not deadline.passed():
            time.sleep(0.1)
        return text

    def start(self, code: str) -> Cell:
        """Execute a cell and return at once."""
        msg_id = self.client.execute(code)
        cell = self._cells[msg_id] = Cell(self, msg_id)
        return cell

    def run(self, code: str) -> Cell:
        """Execute a cell to its end, which must be without an error."""
        cell = self.start(code).finish()
        assert cell.error is None, cell.text
        return cell

    def read(self, timeout_s: float) -> None:
        """Take one message from the kernel and give it to its cell."""
        try:
            message = self.client.get_iopub_msg(timeout=timeout_s)
        except Empty:
            return
        cell = self._cells.get(message["parent_header"].get("msg_id", ""))
        if cell is not None:
            cell.take(message["msg_type"], message["content"])

    def interrupt(self) -> None:
        """What the stop button does."""
        self.manager.interrupt_kernel()

    def restart(self) -> None:
        """What Restart Kernel does: the process is replaced, its namespace is gone."""
        self.client.stop_channels()
        with kernel_forks.forked():
            self.manager.restart_kernel(now=True)
        self._connect()

    def kill(self) -> None:
        """SIGKILL the kernel's process."""
        os.kill(self.pid, signal.SIGKILL)
        wait_until(lambda: not self.manager.is_alive(), what="the kernel's end")

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.context.term()
        shutil.rmtree(self._sockets)


@pytest.fixture
def start_kernel(tmp_path: Path) -> Iterator[Callable[[], Kernel]]:
    """Start real kernels, ended with the test: `a, b = start_kernel(), start_kernel()`."""
    with contextlib.ExitStack() as stack:

        def start() -> Kernel:
            kernel = Kernel(tmp_path)
            stack.callback(kernel.close)
            return kernel

        yield start


@pytest.fixture
def kernel(start_kernel: Callable[[], Kernel]) -> Kernel:
    """A real kernel: `kernel.run("1 + 1").text`; `start` and `until` for one that is interrupted."""
    return start_kernel()


def pytest_configure(config: pytest.Config) -> None:
    # A process of pytest-xdist has no script. A call from it would count as one from a prompt in this folder,
    # and would send all modules of the tests along, with an import of every library that they name.
    main: Any = sys.modules["__main__"]
    if not hasattr(main, "__file__"):
        main.__file__ = str(Path(pytest.__file__).parent / "__main__.py")
    config.pluginmanager.register(TierPlugin(config))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool | None, bool | None]:
    """Let every wait of the test end with its own text before pytest-timeout ends the test."""
    mark = item.get_closest_marker("timeout")
    given = item.config.getoption("timeout", None)
    guard_s = float(mark.args[0] if mark else item.config.getini("timeout") if given is None else given)
    # 0 is no guard at all, as beside a debugger.
    end_all_by(time.monotonic() + guard_s - 30 if guard_s else float("inf"))
    return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        for needed in marker.args:
            module = needed.split()[0]
            if importlib.util.find_spec(module) is None:
                pytest.skip(f"needs {module}: {INSTALL.get(module, f'pip install {module}')}")
            if needed in LACKS and (lacking := LACKS[needed]()):
                pytest.skip(lacking)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End what many modules share after the last test that may use it: it costs while it idles. And no test
    leaves this process in another folder, where the next one's ranks would look for their files."""
    # A module that no test has imported has started nothing, and may need packages that are not installed.
    rigs = ("tests.rigs.ray.nodes", "tests.rigs.kubernetes.control_plane")
    for shared in filter(None, map(sys.modules.get, rigs)):
        if _in_group(item, shared.IN_SHARED) and not _in_group(nextitem, shared.IN_SHARED):
            shared.end_shared()
    end_template(item, nextitem)
    # getcwd raises where that folder is gone.
    left_in = os.readlink("/proc/self/cwd") if sys.platform == "linux" else os.getcwd()
    if left_in != str(STARTED_IN):
        os.chdir(STARTED_IN)
        pytest.fail(f"it has left this process in {left_in}", pytrace=False)


def _in_group(item: pytest.Item | None, group: str) -> bool:
    return item is not None and any(group in mark.args for mark in item.iter_markers("xdist_group"))


def _all_required() -> bool:
    return os.environ.get("JUPYTER_DIST_REQUIRE_ALL", "") not in ("", "0")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        _refuse(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        _refuse(report)
    return report


def _refuse(report: pytest.TestReport | pytest.CollectReport) -> None:
    """With JUPYTER_DIST_REQUIRE_ALL=1 a skip is a failure: CI has everything, or is broken."""
    if _all_required():
        report.outcome = "failed"
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.longrepr = f"skipped, but JUPYTER_DIST_REQUIRE_ALL is set. {why}"

"""A notebook without a browser: a real kernel, cells sent to it, and when which output arrived."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

from ._processes import Failed, Family

__all__ = ["Cell", "Notebook", "notebook"]

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Cell:
    """An executed cell: times are seconds since the epoch."""

    sent: float
    done: float = 0.0
    text: str = ""
    """What streams printed; results and displays are not in it."""
    seen: dict[str, float] = field(default_factory=dict)
    """When each match of the pattern that was watched for first arrived."""


class Notebook:
    """A kernel in a folder of its own. Every cell has a limit."""

    def __init__(
        self, family: Family, folder: Path, argv: list[str], env: Mapping[str, str] | None = None
    ) -> None:
        from jupyter_client.manager import KernelManager

        self.family = family
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._manager = KernelManager(kernel_name="python3")
        spec = self._manager.kernel_spec
        assert spec is not None
        spec.argv = [sys.executable, *argv, "-f", "{connection_file}"]
        with (folder / "kernel.log").open("wb") as log:
            self._manager.start_kernel(cwd=str(folder), env=family.environ(env), stdout=log, stderr=log)
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        try:
            self._client.wait_for_ready(timeout=60)
        except RuntimeError as error:
            raise Failed(f"the kernel did not start: {error}") from error

    def run(
        self, code: str, *, timeout_s: float, watch: re.Pattern[str] | None = None, fails: bool = False
    ) -> Cell:
        """Run a cell to its end. Raises Failed when it raises, unless it `fails`, or takes longer."""
        return self.run_all([code], timeout_s=timeout_s, watch=watch, fails=fails)[0]

    def run_all(
        self,
        codes: list[str],
        *,
        timeout_s: float,
        watch: re.Pattern[str] | None = None,
        fails: bool = False,
    ) -> list[Cell]:
        """Send cells at once, as "Run All" does, and wait for the end of the last.

        Where a cell `fails`, its traceback is text like any other.
        """
        deadline = time.monotonic() + timeout_s
        cells: dict[str, Cell] = {}
        for code in codes:
            sent = time.time()
            cells[self._client.execute(code)] = Cell(sent)
        waiting = set(cells)
        while waiting:
            try:
                left = deadline - time.monotonic()
                message = self._client.get_iopub_msg(timeout=max(0.0, left))
            except Empty:
                raise Failed(f"not done within {timeout_s:g} s") from None
            now = time.time()
            kind, content = message["msg_type"], message["content"]
            parent = message["parent_header"].get("msg_id", "")
            if watch is not None and parent not in cells and kind in ("comm_msg", "stream"):
                parent = next(iter(cells))  # a peer sends its live output outside of the cell
            cell = cells.get(parent)
            if cell is None:
                continue
            if kind == "status" and content["execution_state"] == "idle":
                cell.done = now
                waiting.discard(parent)
            elif kind == "stream":
                cell.text += content["text"]
            elif kind == "error" and fails:
                cell.text += "\n".join(content["traceback"])
            elif kind == "error":
                raise Failed(
                    f"{content['ename']}: {_COLOURS.sub('', content['evalue']).splitlines()[0][:200]}"
                )
            if watch is not None and kind != "execute_input":
                for match in watch.findall(json.dumps(content, ensure_ascii=False)):
                    cell.seen.setdefault(match, now)
        return list(cells.values())

    def open_comm(self, target: str) -> None:
        """Open a comm as a front-end's extension does."""
        content: dict[str, Any] = {"comm_id": uuid.uuid4().hex, "target_name": target, "data": {}}
        channel = self._client.shell_channel
        channel.send(self._client.session.msg("comm_open", content))

    @property
    def kernel_pid(self) -> int:
        provisioner: Any = self._manager.provisioner
        return int(provisioner.pid)

    def interrupt(self) -> None:
        """Interrupt the kernel, as Jupyter's button does."""
        self._manager.interrupt_kernel()

    def kill_kernel(self) -> None:
        """Kill the kernel with its state, and start another one in its place."""
        self._client.stop_channels()
        with (self.folder / "kernel.log").open("ab") as log:
            self._manager.restart_kernel(now=True, stdout=log, stderr=log)
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=60)

    def close(self) -> None:
        self._client.stop_channels()
        self.family.end()
        with contextlib.suppress(Exception):
            self._manager.shutdown_kernel(now=True)
        self._manager.context.term()


@contextlib.contextmanager
def notebook(
    folder: Path, *, argv: list[str] | None = None, env: Mapping[str, str] | None = None
) -> Iterator[Notebook]:
    """An IPython kernel (or the one that `argv` starts); at the end all it has started is killed."""
    family = Family()
    opened = None
    try:
        opened = Notebook(family, folder, argv or ["-m", "ipykernel_launcher"], env)
        yield opened
    finally:
        if opened is None:
            family.end()
        else:
            opened.close()


def until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Wait for a condition. Raises Failed."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.01)

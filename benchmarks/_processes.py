"""Start processes that can be found and ended again, whatever they start themselves, and weigh them."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["Failed", "Family"]

_MARKER = "BENCHMARK_FAMILY"


class Failed(Exception):
    """A contender did not do what was asked; the message goes into the table."""


class Family:
    """Everything one contender starts: found by a variable of the environment that all of it inherits."""

    def __init__(self) -> None:
        self._token = secrets.token_hex(8)
        self._known: dict[tuple[int, str], bool] = {}

    def environ(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment to start a member with."""
        return {**os.environ, **(extra or {}), _MARKER: self._token}

    def pids(self) -> list[int]:
        """The members that are alive now."""
        found = []
        known: dict[tuple[int, str], bool] = {}
        for name in os.listdir("/proc"):
            # They come and go while we look, and those of other users cannot be read.
            with contextlib.suppress(OSError):
                if not name.isdigit() or int(name) == os.getpid():
                    continue
                stat = Path("/proc", name, "stat").read_text()
                fields = stat[stat.rindex(")") + 2 :].split()
                if fields[0] == "Z":
                    continue
                identity = int(name), fields[19]
                member = self._known.get(identity)
                if member is None:
                    environ = Path("/proc", name, "environ").read_bytes()
                    member = f"{_MARKER}={self._token}".encode() in environ.split(b"\0")
                known[identity] = member
                if member:
                    found.append(int(name))
        self._known = known
        return found

    def end(self, timeout_s: float = 20.0) -> None:
        """Kill every member. Raises Failed when one does not go away."""
        self._known = {}  # a child that was seen before its exec may have become one of ours
        deadline = time.monotonic() + timeout_s
        while pids := self.pids():
            if time.monotonic() > deadline:
                raise Failed(f"processes {pids} could not be ended")
            self._signal(pids, signal.SIGKILL)
            time.sleep(0.02)

    def run(
        self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None, cwd: Path
    ) -> str:
        """Run a command to its end and return what it printed. Raises Failed after killing it."""
        process = subprocess.Popen(
            argv,
            env=self.environ(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"not done within {timeout_s:g} s") from None
        finally:
            self.end()
            process.wait()
        text = output.decode("utf-8", "replace")
        if process.returncode not in (0, -signal.SIGKILL):
            raise Failed(f"exit code {process.returncode}: {last_line(text)}")
        return text

    def memory(self, only: Collection[int] | None = None) -> int:
        """Bytes of memory of all members; a page that several share counts once (the sum of PSS).

        They stand still meanwhile: a page that another one begins or ends to share would count twice.
        `only`: weigh these members.
        """
        total = 0
        pids = self.pids()
        try:
            self._signal(pids, signal.SIGSTOP)
            for pid in pids if only is None else only:
                with contextlib.suppress(OSError):
                    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                        if line.startswith("Pss:"):
                            total += int(line.split()[1]) * 1024
        finally:
            self._signal(pids, signal.SIGCONT)
        return total

    def _signal(self, pids: Sequence[int], signum: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signum)

    @contextlib.contextmanager
    def peak_memory(self, every_s: float = 0.05) -> Iterator[list[int]]:
        """While it is open, the first item of the list is the most memory seen so far."""
        peak = [self.memory()]
        stop = threading.Event()

        def sample() -> None:
            while not stop.wait(every_s):
                peak[0] = max(peak[0], self.memory())

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield peak
        finally:
            stop.set()
            thread.join()


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it printed nothing"

"""A line from the user: the front-end's input box in a notebook, else the terminal's input."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator

__all__ = ["NoInput", "read_line"]

_LOOK_S = 0.1


class NoInput(Exception):
    """The front-end or this process has no input. The text says why."""


def read_line(prompt: str, is_wanted: Callable[[], bool]) -> str | None:
    """Ask the user for a line. Blocks. Returns None as soon as the line is no longer wanted.

    `is_wanted` is called in another thread. Raises EOFError at the end of the input, KeyboardInterrupt, and
    NoInput.
    """
    if threading.current_thread() is not threading.main_thread():
        raise NoInput("only the main thread of this process can ask")  # nothing could close the box
    watch = _Watch(is_wanted)
    try:
        with _interruptible(), watch:
            line = input(prompt)
        return None if watch.cancelled else line
    except KeyboardInterrupt:
        if not watch.cancelled:
            raise
        return None
    except NotImplementedError as error:  # nbclient and other front-ends without an input box
        raise NoInput("this notebook runs without an input box") from error
    except (OSError, RuntimeError) as error:  # pytest's input, a closed input
        raise NoInput("this process has no input") from error


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let an interrupt raise KeyboardInterrupt. In a cell that awaits, ipykernel has a handler of its own."""
    before = signal.getsignal(signal.SIGINT)
    if before is None:  # C code has set it, and Python cannot restore it
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Watch:
    """Thread that interrupts the main thread's `input()` when nobody wants the line any more."""

    def __init__(self, is_wanted: Callable[[], bool]) -> None:
        self._is_wanted = is_wanted
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="jupyter-dist-prompt", daemon=True)
        self.cancelled = False

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with self._lock:
                self._over.set()
            if self.cancelled and kind is not KeyboardInterrupt:
                time.sleep(2 * _LOOK_S)  # the interrupt of this object arrives here at the latest
        except KeyboardInterrupt:
            if not self.cancelled:
                raise
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            try:
                wanted = self._is_wanted()
            except Exception:  # the run's folder was removed
                wanted = False
            if wanted:
                continue
            with self._lock:
                if not self._over.is_set():
                    self.cancelled = True
                    main = threading.main_thread().ident
                    assert main is not None
                    signal.pthread_kill(main, signal.SIGINT)
            return

"""A stand-in of a cloud that several tests share for as long as it is whole."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import pytest

from jupyter_dist.conformance.deadlines import Deadline

__all__ = ["Faults", "KeptPlane", "Plane"]


class Faults:
    """The faults of a stand-in itself, which fail the test that caused them."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def note(self, where: str) -> None:
        """Note the exception that is being handled."""
        if not isinstance(sys.exc_info()[1], ConnectionError):  # whoever asked has ended
            self._found.append(f"{where}:\n{traceback.format_exc()}")

    def tell(self) -> None:
        """Fail the test if there were faults since the last call."""
        found, self._found = self._found, []
        if found:
            pytest.fail("the stand-in itself failed: " + "\n".join(found), pytrace=False)


class Plane(Protocol):
    """A context manager."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *_: object) -> None: ...

    def stuck(self) -> list[str]:
        """The names of jobs that no test waits for."""
        ...

    def ending(self) -> list[str]:
        """The names of active jobs that were told to end."""
        ...


P = TypeVar("P", bound=Plane)


class KeptPlane(Generic[P]):
    """The plane of a module's tests: another one follows when a test has left a job behind."""

    def __init__(self, make: Callable[[], P]) -> None:
        self._make = make
        self._plane: P | None = None

    def whole(self) -> P:
        """Return the plane, without any job that is still active. Waits for jobs that were told to end."""
        deadline = Deadline()
        while self._plane is not None and self._plane.ending() and not deadline.passed():
            time.sleep(0.02)
        if self._plane is not None and (stuck := self._plane.stuck()):
            print("the plane is replaced: jobs of an earlier test are still active:", *stuck)
            self.close()
        if self._plane is None:
            plane = self._make()
            plane.__enter__()
            self._plane = plane
        return self._plane

    def close(self) -> None:
        """End the plane. Repeatable."""
        plane, self._plane = self._plane, None
        if plane is not None:
            plane.__exit__(None, None, None)

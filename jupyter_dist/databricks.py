"""Replacements for Databricks' HorovodRunner and TorchDistributor. A notebook changes only the import line.

    from jupyter_dist.databricks import HorovodRunner, TorchDistributor

They accept the same arguments and return the same value, the value of rank 0. In addition, there is a live
view below the cell, and each rank's result in `.last_run.results`. If a rank fails, the error has its
traceback.

https://databricks.github.io/spark-deep-learning and
https://spark.apache.org/docs/latest/api/python/reference/api/pyspark.ml.torch.distributor.TorchDistributor.html
"""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import InputError
from .start import finish, start_function, start_script
from .worker.gpus.devices import visible_gpus
from .worker.output.driver_log import log_to_driver

if TYPE_CHECKING:
    from .showing.run import Run
    from .worker.output.driver_log import LogCallback as LogCallback

__all__ = ["HorovodRunner", "TorchDistributor", "log_to_driver"]

_VERBOSITIES = ("log_callback_only", "all")


class _WrongValue(InputError, ValueError):
    """An InputError that is also a ValueError, which the original classes raise and users' code may catch."""


class _NoGpus(InputError, RuntimeError):
    """An InputError that is also a RuntimeError, which the originals raise and users' code may catch."""


_WrongValue.__name__ = _NoGpus.__name__ = InputError.__name__


class _Launcher:
    """Base class of both replacements, with the newest run."""

    last_run: Run | None = None
    """The newest run, even if it failed, with `.results`, `.metrics` and `.log(rank)`; None before a run."""

    def _finish(self, begun: Run) -> Run:
        """Show a run until its end. Blocks. Raises RunFailed, RunStopped."""
        self.last_run = begun
        return finish(begun)


class HorovodRunner(_Launcher):
    """Runner of a function on every rank of a Horovod job. `hvd.init()` finds the other ranks."""

    def __init__(self, *, np: int, driver_log_verbosity: str = "log_callback_only") -> None:
        """`np` above 0: the number of Spark task slots. The run waits until they are free.

        `np` below 0: -np processes on the driver, without Spark.
        `np` 0: all slots, which Databricks has deprecated.

        `driver_log_verbosity` is "all" or "log_callback_only", without effect. The view always has each
        rank's whole log, and long logs do not flood the notebook.
        """
        try:
            self.num_processor = operator.index(np)
        except TypeError:
            raise _WrongValue(f"HorovodRunner: np needs a whole number, got {np!r}") from None
        if driver_log_verbosity not in _VERBOSITIES:
            raise _WrongValue(
                "HorovodRunner: driver_log_verbosity must be 'all' or 'log_callback_only', not "
                f"{driver_log_verbosity!r}"
            )

    def run(self, main: Callable[..., Any], **kwargs: Any) -> Any:
        """Call `main(**kwargs)` on every rank, wait, and return what rank 0 returned.

        Raises RunFailed with the traceback of the rank that failed first. Raises RunStopped, and ResultError
        if rank 0's value cannot be pickled. After any other DistError nothing was started.
        """
        np = self.num_processor
        if np == 0:
            print(
                "warning: np=0 uses all task slots of the cluster. Databricks has deprecated this. "
                "Write the number, such as np=4",
                file=sys.stderr,
            )
        given = {"backend": "horovod", "np": -np} if np < 0 else {"backend": "spark", "np": np}
        return self._finish(start_function(main, (), kwargs, given)).results[0]


class TorchDistributor(_Launcher):
    """Runner of a PyTorch function or script on every rank, with the same environment as torchrun."""

    def __init__(self, num_processes: int = 1, local_mode: bool = True, use_gpu: bool = True) -> None:
        """`local_mode`: run processes on the driver, without Spark; else in task slots of the Spark cluster.

        `use_gpu`: each process gets a GPU. On the driver, the number of GPUs limits the number of processes.

        Raises InputError: a ValueError for a wrong number, and a RuntimeError if the driver has no GPU.
        """
        try:
            self.num_processes = operator.index(num_processes)
        except TypeError:
            self.num_processes = 0
        if self.num_processes <= 0:
            raise _WrongValue(
                f"TorchDistributor: num_processes needs a whole number above 0, got {num_processes!r}"
            )
        self.local_mode, self.use_gpu = bool(local_mode), bool(use_gpu)
        if self.local_mode and self.use_gpu:
            gpus = len(visible_gpus())
            if not gpus:
                raise _NoGpus("TorchDistributor: the driver has no GPU. To train on its CPU: use_gpu=False")
            if self.num_processes > gpus:
                print(
                    f"warning: the driver has only {gpus} GPUs, so {gpus} processes start instead of "
                    f"{self.num_processes}",
                    file=sys.stderr,
                )
                self.num_processes = gpus

    def run(self, train_object: Callable[..., Any] | str, *args: Any, **kwargs: Any) -> Any:
        """Call `train_object(*args, **kwargs)` on every rank, wait, and return what rank 0 returned.

        `train_object` may be the path of a Python file. Then `args` are its arguments, and this returns None.
        Raises the same errors as `HorovodRunner.run`.
        """
        given = {
            "backend": "local" if self.local_mode else "spark",
            "np": self.num_processes,
            "gpus_per_worker": 1 if self.use_gpu else 0,
        }
        if not isinstance(train_object, str | os.PathLike):
            return self._finish(start_function(train_object, args, kwargs, given)).results[0]
        if kwargs:
            raise _WrongValue(
                "TorchDistributor: a script accepts no keyword arguments. Write them as words of a "
                f"command line: run({str(train_object)!r}, '--{next(iter(kwargs))}=…')"
            )
        self._finish(start_script(Path(train_object).expanduser(), [str(arg) for arg in args], given))
        return None


def __getattr__(name: str) -> Any:
    if name == "LogCallback":
        from .worker.output import driver_log

        return driver_log.LogCallback
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

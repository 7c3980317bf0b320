"""Advice on failures with a known or possible cause. A hint that is not certain starts with "perhaps"."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...folder import RunFolder
from ...job import Job
from .. import reader
from ..logs.last_lines import last_lines
from .failures import RankError
from .file_hints import of_surroundings
from .keras_hints import removed
from .module_hints import missing_module
from .places import is_of_user

__all__ = ["hints", "of_run"]

_NO_GROUP = "Default process group has not been initialized"
_UNPICKLED = (
    "the error is from before the cell: an object of the notebook, such as a DistributedDataParallel, "
    "needs a process group when a rank unpickles it. Create the object in the cell, after dist.init()"
)
_OF_TYPES = (
    r"'(type|NoneType|[\w.]*GenericAlias|_SpecialForm|_CallableType|TypeVar|(ABC|Enum|_Protocol)Meta)'"
)
"""What errors of Python 3.9 call the types of types."""
_SIMPLE = (
    (
        r"in this cell keras is tf_keras, which lacks it",
        "what the cell uses is of Keras 3, and this rank has tf_keras: put import os; "
        'os.environ["TF_USE_LEGACY_KERAS"] = "1" at the top of the notebook, so that it has tf_keras as well',
    ),
    (
        r"invalid device ordinal|CUDA_ERROR_INVALID_DEVICE",
        "each rank sees only its own GPUs, numbered from 0: use dist.device() and no index of your own",
    ),
    (
        r"EADDRINUSE|[Aa]ddress already in use|errno: 98",
        "another process has the port. A run gets a free one in MASTER_PORT: use it and run the cell again",
    ),
    (
        r"CUDA out of memory|torch\.\S*OutOfMemoryError",
        "the GPU is full: a smaller batch per rank, or fewer ranks on each GPU (--gpus-per-worker 1)",
    ),
    (
        r"Duplicate GPU detected",
        "ranks share a GPU, which NCCL refuses: dist.init() takes gloo there, and --gpus-per-worker 1 gives "
        "each rank a GPU of its own",
    ),
    (
        r"device-side assert triggered|illegal memory access was encountered",
        "an index or a label is out of range on the GPU, perhaps on an earlier line: run the cell once with "
        "--gpus-per-worker 0, or with --env CUDA_LAUNCH_BLOCKING=1, which names the right line",
    ),
    (
        r"not compiled with CUDA enabled|No CUDA GPUs are available|Found no NVIDIA driver",
        "no GPU can be used here: write .to(dist.device()) in place of .cuda(). dist.device() is the rank's "
        "GPU if there is one, otherwise the CPU",
    ),
    (
        r"have NCCL built in|NCCL support is not compiled",
        "this torch has no NCCL: dist.init() takes gloo where there is no GPU",
    ),
    (
        r"Collective instance \d+ expected|different input shapes at different members of the collective",
        "the workers called different collectives: give each worker equally many batches "
        "(dataset.repeat() and steps_per_epoch) and a model with the same shapes",
    ),
    (
        r"Virtual devices cannot be modified after being initialized",
        "a tensor or a dataset of an earlier cell has started TensorFlow: write "
        "set_logical_device_configuration in an earlier cell of the notebook, and ranks repeat it",
    ),
    (
        # `None | None` is an error on every Python.
        rf"unsupported operand type\(s\) for \|: (?!'NoneType' and 'NoneType'){_OF_TYPES} and {_OF_TYPES}",
        "Python 3.9 has no X | Y for types: write typing.Union[X, Y] or typing.Optional[X] on this line. "
        "Or, if it is an annotation, put from __future__ import annotations at the top of the cell",
    ),
    (
        r"cannot import name 'dist' from 'jupyter_dist'",
        "write import jupyter_dist as dist",
    ),
    (
        _NO_GROUP,
        "call dist.init() (import jupyter_dist as dist) before the first collective",
    ),
    (
        r"Process group .*is not initialized in the world group map",
        "this object belongs to a process group that was closed, for example after a session's cell had "
        "failed: make the group, its DeviceMesh and the model again",
    ),
    (
        r"Expected to have finished reduction in the prior iteration|was marked as ready twice",
        "a part of the model took no part in the loss: write DistributedDataParallel(model, "
        "find_unused_parameters=True), or remove that part. --env TORCH_DISTRIBUTED_DEBUG=INFO names it",
    ),
    (
        r"\bEOFError: EOF when reading a line\s*$",
        "the input has ended: ask in a cell before this one, and use the answer here",
    ),
    (
        r"\bBdbQuit\b",
        "`q` ends the rank, and so the run: `c` leaves the debugger and lets the rank continue",
    ),
)
"""Pairs: a pattern, and an advice that is certain if the error itself matches."""
_UNSURE = (
    (
        r"client socket has timed out",
        "the rank that this one was to meet never came, or the TCP ports between their hosts are closed",
    ),
    (
        r"(?<!CUDA )out of memory|OutOfMemoryError|RESOURCE_EXHAUSTED",
        "the GPU is full: a smaller batch per rank, or fewer ranks on each GPU (--gpus-per-worker 1)",
    ),
    (
        r"re-initialize CUDA in forked subprocess",
        "run the cell with --cold, so that its ranks start without a fork. Processes that the cell itself "
        "starts, such as a DataLoader's workers, need the start method 'spawn' to use CUDA",
    ),
    (
        r"[Cc]an't pickle|cannot pickle",
        "something that goes to another process (a DataLoader's worker, a queue) cannot be pickled: "
        "define it at the top level of a cell or in a module",
    ),
    (
        r"\bEOFError\s*$",
        "the process at the other end of a pipe or a queue has ended",
    ),
)
"""Pairs: a pattern, and an advice that is never certain, because other failures print the same text."""
_PERHAPS = "perhaps "
_LOG_LINES = 40
_NO_MODULE = re.compile(r"No module named '([\w.]+)'(?!: in this cell)")
_NO_NAME = re.compile(r"(?:name|local variable) '(\w+)' is not defined")
_NO_KEY = re.compile(r"'(\w+)'")
_SPAWNED = re.compile(r"Can't get attribute '(\w+)' on <module '__(?:mp_)?main__'")
_LACKING = re.compile(
    r"(?:multiprocessing/\w+|concurrent/futures/process)\.py.*?NameError: name '(\w+)' is not defined",
    re.DOTALL,
)


def of_run(folder: RunFolder, attempt: int, first: RankError) -> list[str]:
    """Return the advice on the first failure of an attempt. Reads the end of that rank's log."""
    log = last_lines(folder.rank(attempt, first.rank).output)[-_LOG_LINES:]
    return hints(first, reader.job(folder), log, _unnamed(folder.payload))


def hints(error: RankError, job: Job, log: Sequence[str], unnamed: Mapping[str, str]) -> list[str]:
    """Return at most three pieces of advice, none for an unknown cause.

    Args:
        log: the last lines of the rank's log.
        unnamed: names of the notebook that the cell does not name, with the reason why one was left out.
    """
    # A rank has written the frames, so that they may contain anything.
    frames = tuple(frame for frame in error.frames if isinstance(frame, Mapping))
    error = dataclasses.replace(error, frames=frames)
    own = f"{error.type}: {error.message}"
    said = f"{own}\n{error.text}"[-20_000:]
    log_text = "\n".join(log)
    # Without a traceback, the rank's last log lines may show the cause, or something else.
    text = said if error.text else f"{said}\n{log_text}"
    found = [*of_surroundings(error, job), *removed(error), *_known(own, text)]
    if _NO_GROUP in own and error.frames and not any(map(is_of_user, error.frames)):
        found = [_UNPICKLED]
    missing = _NO_MODULE.search(text)
    if missing:
        advice, sure = missing_module(missing[1], job, error.host)
        found.append(advice if sure and _NO_MODULE.search(own) else _perhaps(advice))
    lacks = _missing_name(error)
    if lacks in unnamed:
        from ...worker.pickling.lazy_names import unnamed_message

        return [*found, unnamed_message(lacks, unnamed[lacks])][:3]
    in_cell = bool(error.frames) and _is_of_a_cell(error.frames[-1])
    if lacks and error.type == "NameError" and job.label.startswith("In[") and in_cell:
        found.append(_unknown_name(lacks, job.session))
    spawned = _SPAWNED.search(f"{said}\n{log_text}")  # printed by the spawned process
    if _SPAWNED.match(error.message):
        found.append(
            f"{lacks!r} is not in the notebook, and what is unpickled refers to it. Define {lacks!r} in a "
            "cell, and run that cell before this one"
        )
    elif spawned:
        found.append(
            _perhaps(
                "a process that is spawned has what there was when it started, and could be pickled: define "
                f"{spawned[1]!r} before, at the top level of a cell, or in a module beside the notebook"
            )
        )
    lacking = _LACKING.search(f"{said}\n{log_text}")
    if lacking:
        found.append(
            _perhaps(
                f"a process that was spawned, not forked, has no {lacking[1]!r} where that cannot be "
                "pickled, is on a GPU or is one rank's connection: pass it to the process, or make it in the "
                "function"
            )
        )
    return found[:3]


def _known(own: str, text: str) -> list[str]:
    """Return advice.

    It is certain if the error itself matches. The cell may have handled an error elsewhere in the text.
    """
    found: list[str] = []
    for pattern, advice in _SIMPLE:
        if re.search(pattern, own):
            found.append(advice)
        elif re.search(pattern, text):
            found.append(_perhaps(advice))
    known = [advice.removeprefix(_PERHAPS) for advice in found]
    return found + [
        _perhaps(advice) for pattern, advice in _UNSURE if advice not in known and re.search(pattern, text)
    ]


def _perhaps(advice: str) -> str:
    return advice if advice.startswith("did you mean ") else f"{_PERHAPS}{advice}"


def _unnamed(payload: Path) -> Mapping[str, str]:
    from ...worker.payload import ContainerError, read_header

    try:
        unnamed: dict[str, str] = read_header(payload).get("unnamed", {})
    except (OSError, ContainerError):
        return {}
    return unnamed


def _is_of_a_cell(frame: Mapping[str, Any]) -> bool:
    return frame.get("label") != frame.get("file")


def _missing_name(error: RankError) -> str:
    """Return the name that `__main__` lacks, or an empty text for another error."""
    pattern = {"AttributeError": _SPAWNED, "KeyError": _NO_KEY}.get(error.type, _NO_NAME)
    last = str(error.frames[-1].get("source")) if error.frames else ""
    found = pattern.match(error.message)
    if not found or (pattern is _NO_KEY and not re.search(r"\b(globals|vars|locals)\(\)", last)):
        return ""
    return found[1]


def _unknown_name(name: str, session: Mapping[str, Any] | None) -> str:
    """Return the advice on a name that a cell lacks. `session`: of the cell, if it has one."""
    if session is not None and name in session.get("owned", ()):
        own = session.get("name")
        return (
            f"{name!r} belongs to the ranks of the session {own}, and this rank lacks it. Run the cell "
            f'that assigns it on all ranks, or send a value: jupyter_dist.session("{own}")["{name}"] = {name}'
        )
    if name == "dist":
        return "import jupyter_dist as dist, in the notebook or in this cell"
    if session is not None:
        return (
            f"{name!r} is neither in the notebook nor on this rank of the session {session.get('name')}. If "
            "the rank is a fresh process, run the cell again that assigns it"
        )
    return (
        f"{name!r} is neither in the notebook nor made by this cell. What an earlier %%distribute cell made "
        "is gone with its ranks: import in the notebook, and take values from that run's results"
    )

"""The GPUs that a rank sees if its code picks one by the local rank: those of all ranks on its machine.

Other ranks see only their own GPU, as device 0, so that a notebook's `cuda:0` is right on each of them. Code
for torchrun calls `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))`. Code for Horovod calls
`torch.cuda.set_device(hvd.local_rank())`. accelerate picks the GPU with the number of the local rank. Such
code must see the GPUs of the ranks beside it. The rank's own GPU becomes the default, for code that picks
none.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import sys
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from .. import foreign_names, import_hooks
from ..output import events

__all__ = ["SEES", "has_several", "look_at", "offer", "own", "patch_horovod", "see_all"]

SEES = "JUPYTER_DIST_GPUS_BESIDE"
"""The variable with the GPUs of the run on the rank's machine."""
# Each begins with a literal: re finds those a hundred times faster, and a payload can be large. The word
# "accelerate" alone says nothing: comments, texts to train on and vocabularies contain it.
_READS_LOCAL_RANK = re.compile(rb"LOCAL_RANK(?<![A-Z_]LOCAL_RANK)\b")
_USES_ACCELERATE = (
    re.compile(rb"accelerate(?:\.[A-Za-z_]|(?<=import accelerate)\b|(?<=from accelerate)\b)"),
    re.compile(rb"TrainingArguments\b"),
    re.compile(rb"transformers\.train"),
)
_NAMES_THE_FIRST = re.compile(rb"cuda(?:[:.]0|\(0|\.set_device\(0)\b")

_of_an_earlier_cell = False
"""Whether `see_all` has made the GPUs visible, also for later cells, and no note has said so yet."""
_chosen = False
_each = 1
"""The number of the rank's own GPUs before it saw those of the ranks beside it."""


def offer(environ: MutableMapping[str, str], gpus: Sequence[str]) -> None:
    """Let a rank see these GPUs, if its code turns out to pick one by the local rank."""
    together = ",".join(gpus)
    if environ.get("CUDA_VISIBLE_DEVICES", "-1") not in ("-1", together):
        environ[SEES] = together


def look_at(payload: Path, modules: Path) -> None:
    """Make the GPUs visible if the cell's code may pick one by the local rank. Call this before it uses one.

    They stay visible in later cells of a session. A later cell can use a number that an earlier one has kept,
    and CUDA does not read the variable again. A note warns of `cuda:0` in a later cell.

    Code that reads LOCAL_RANK may, and code with objects of accelerate or a Trainer of transformers. An
    import alone says nothing: a notebook can import a library for another cell.

    `payload`: the file with the cell, and with the texts and objects that it uses. `modules`: the folder with
    the notebook's own modules.
    """
    global _of_an_earlier_cell
    if SEES not in os.environ and not _of_an_earlier_cell:
        return
    paths = (payload, *(modules.rglob("*.py") if modules.is_dir() else ()))
    several = _each > 1 if _of_an_earlier_cell else has_several()  # of its own
    uses = (_READS_LOCAL_RANK, *(() if several else _USES_ACCELERATE))
    if SEES not in os.environ:
        if any(_has(path, (_NAMES_THE_FIRST,)) for path in paths) and not any(
            _has(path, uses) for path in paths
        ):
            events.tell(
                "cuda:0 is the same GPU on all ranks of this machine, because an earlier cell uses "
                "LOCAL_RANK or accelerate. Use dist.device() for the rank's own GPU"
            )
            _of_an_earlier_cell = False
    elif any(_has(path, uses) for path in paths):
        why_not = "an earlier cell of the session has used it. Use dist.device() in place of LOCAL_RANK"
        see_all(why_not)


def _has(path: Path, patterns: Sequence[re.Pattern[bytes]]) -> bool:
    """Return whether a file contains one of the patterns."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return any(pattern.search(content) is not None for pattern in patterns)


def has_several() -> bool:
    """Return whether the rank has several GPUs of its own.

    Then accelerate may spread a model over all GPUs that it sees (`device_map="auto"`), so that it must see
    no others.
    """
    return "," in os.environ.get("CUDA_VISIBLE_DEVICES", "")


def see_all(why_not: str) -> None:
    """Make the GPUs of the ranks beside this one visible, with the rank's own as the default.

    `why_not`: the reason to tell if CUDA has started.
    """
    global _of_an_earlier_cell
    if _see_all(why_not):
        _of_an_earlier_cell = True
        import_hooks.call("torch", _choose_for_torch)
        import_hooks.call("tensorflow", _choose_for_tensorflow)


def patch_horovod(basics: Any) -> None:
    """Make the GPUs visible.

    For the module `horovod.common.basics`, which cells import before they use a GPU.
    """
    why = (
        "CUDA was used before Horovod was imported. Import horovod first if you call "
        "torch.cuda.set_device(hvd.local_rank())"
    )
    if _see_all(why):
        basics.HorovodBasics.init = _choosing(basics.HorovodBasics.init)


def _see_all(why_not: str) -> bool:
    """Return whether the GPUs of the ranks beside this one have become visible."""
    gpus = os.environ.pop(SEES, None)
    if gpus is None:
        return False
    if _is_in_use():
        events.tell(f"this rank sees only its own GPU, as device 0, because {why_not}")
        return False
    global _each
    _each = 1 + os.environ.get("CUDA_VISIBLE_DEVICES", "").count(",")
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    # Without this variable, our code chooses one of all visible GPUs by the local rank, as under a launcher.
    os.environ.pop("JUPYTER_DIST_GPUS", None)
    return True


def _choosing(original: Callable[..., Any]) -> Callable[..., Any]:
    def init(self: Any, *args: Any, **more: Any) -> Any:
        done = original(self, *args, **more)
        global _chosen
        if not _chosen:  # now the frameworks are imported and the local rank is known
            _chosen = True
            _choose_for_torch()
            if "horovod.tensorflow" in sys.modules:
                _choose_for_tensorflow()
        return done

    return init


def _choose_for_torch() -> None:
    """Make the rank's own GPU torch's default. A later choice in the cell has priority."""
    for row, names in foreign_names.lost("worker/gpus/by_local_rank"):
        events.tell(foreign_names.note(row, names))
    torch = sys.modules.get("torch")
    if torch is not None:
        with contextlib.suppress(Exception):  # private API, and only a default is lost
            # The call runs when CUDA starts, just before the cell's first use of it.
            torch.cuda._lazy_call(lambda: torch.cuda.set_device(own(torch.cuda.device_count())))


def _choose_for_tensorflow() -> None:
    """Make the rank's own GPUs the only ones of TensorFlow. A later choice in the cell has priority."""
    config = sys.modules["tensorflow"].config
    with contextlib.suppress(Exception):  # the cell may have used TensorFlow's devices before
        gpus = config.list_physical_devices("GPU")
        if gpus:
            first = own(len(gpus))
            config.set_visible_devices(gpus[first : first + _each], "GPU")


def own(count: int) -> int:
    """Return the index of the rank's own first GPU. `count`: the number of GPUs that the rank sees.

    All ranks on the machine see the same GPUs, as under a launcher.
    """
    return int(os.environ.get("LOCAL_RANK", "0")) * _each % count


def _is_in_use() -> bool:
    """Return whether CUDA has started in this process.

    Then it has read the variable, and will not read it again.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}") == "/dev/nvidia-uvm":
                    return True
    return False

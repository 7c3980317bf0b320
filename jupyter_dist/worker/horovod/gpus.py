"""Which GPUs a rank sees that uses Horovod: all of its run on its machine, in the order of local ranks.

Other ranks see their own alone, as device 0. Cells for Horovod say `torch.cuda.set_device(hvd.local_rank())`,
or `gpus[hvd.local_rank()]` with TensorFlow, as its documentation tells them to
(https://horovod.readthedocs.io/en/stable/pytorch.html), and need those of the ranks beside them to count.
Cells without such a line have a GPU of their own nevertheless: it is made the default.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

from .. import foreign_names
from ..output import events

__all__ = ["SEES", "offer", "patch"]

SEES = "JUPYTER_DIST_HOROVOD_SEES"
"""The variable that names the GPUs of the run on the rank's machine."""

_chosen = False


def offer(environ: MutableMapping[str, str], gpus: Sequence[str]) -> None:
    """Have a rank see these as soon as it imports Horovod, where its own are others."""
    together = ",".join(gpus)
    if environ.get("CUDA_VISIBLE_DEVICES", "-1") not in ("-1", together):
        environ[SEES] = together


def patch(basics: Any) -> None:
    """See them. For the module `horovod.common.basics`, which cells import before they use a GPU."""
    gpus = os.environ.pop(SEES, None)
    if gpus is None:
        return
    if _is_in_use():
        events.tell(
            "this rank sees only its own GPU, as device 0, because CUDA was used before Horovod "
            "was imported. Import horovod first if you call "
            "torch.cuda.set_device(hvd.local_rank())"
        )
        return
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    # Where it is missing, ours take one of all that they see, by their local rank, as under horovodrun.
    os.environ.pop("JUPYTER_DIST_GPUS", None)
    basics.HorovodBasics.init = _choosing(basics.HorovodBasics.init)


def _choosing(original: Callable[..., Any]) -> Callable[..., Any]:
    def init(self: Any, *args: Any, **more: Any) -> Any:
        done = original(self, *args, **more)
        _choose()
        return done

    return init


def _choose() -> None:
    """Make one of them the default, for cells that choose none themselves: now the frameworks are imported
    and the local rank is known. What a cell says from here on still counts."""
    global _chosen
    if _chosen:
        return
    _chosen = True
    for row, names in foreign_names.lost("worker/horovod/gpus"):
        events.tell(foreign_names.note(row, names))
    with contextlib.suppress(Exception):  # private, and a default at most
        _choose_for_torch()
    with contextlib.suppress(Exception):  # the cell has used TensorFlow's devices before
        _choose_for_tensorflow()


def _choose_for_torch() -> None:
    torch = sys.modules.get("torch")
    if torch is not None:
        # Once CUDA begins, and just before the first thing that the cell does with it.
        torch.cuda._lazy_call(lambda: torch.cuda.set_device(_own(torch.cuda.device_count())))


def _choose_for_tensorflow() -> None:
    if "horovod.tensorflow" in sys.modules:
        config = sys.modules["tensorflow"].config
        gpus = config.list_physical_devices("GPU")
        if gpus:
            config.set_visible_devices(gpus[_own(len(gpus))], "GPU")


def _own(count: int) -> int:
    return int(os.environ.get("LOCAL_RANK", "0")) % count


def _is_in_use() -> bool:
    """Whether CUDA has begun in this process: then it has read the variable, and does not read it again."""
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}") == "/dev/nvidia-uvm":
                    return True
    return False

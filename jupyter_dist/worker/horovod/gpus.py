"""The GPUs that a rank with Horovod sees: all GPUs of its run on its machine, by local rank.

Other ranks see only their own GPUs, as device 0. Cells for Horovod call
`torch.cuda.set_device(hvd.local_rank())`, or use `gpus[hvd.local_rank()]` with TensorFlow, as its
documentation recommends (https://horovod.readthedocs.io/en/stable/pytorch.html). That code must see the GPUs
of the ranks beside it. Cells without such a line still get a GPU of their own: it becomes the default.
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
"""The variable with the GPUs of the run on the rank's machine."""

_chosen = False


def offer(environ: MutableMapping[str, str], gpus: Sequence[str]) -> None:
    """Make a rank see these GPUs as soon as it imports Horovod, if its own are different."""
    together = ",".join(gpus)
    if environ.get("CUDA_VISIBLE_DEVICES", "-1") not in ("-1", together):
        environ[SEES] = together


def patch(basics: Any) -> None:
    """Make the GPUs visible.

    For the module `horovod.common.basics`, which cells import before they use a GPU.
    """
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
    # Without this variable, our code chooses one of all visible GPUs by the local rank, as under horovodrun.
    os.environ.pop("JUPYTER_DIST_GPUS", None)
    basics.HorovodBasics.init = _choosing(basics.HorovodBasics.init)


def _choosing(original: Callable[..., Any]) -> Callable[..., Any]:
    def init(self: Any, *args: Any, **more: Any) -> Any:
        done = original(self, *args, **more)
        _choose()
        return done

    return init


def _choose() -> None:
    """Make one GPU the default, for cells that choose none themselves.

    At this time the frameworks are imported and the local rank is known. A later choice in the cell has
    priority.
    """
    global _chosen
    if _chosen:
        return
    _chosen = True
    for row, names in foreign_names.lost("worker/horovod/gpus"):
        events.tell(foreign_names.note(row, names))
    with contextlib.suppress(Exception):  # private API, and only a default is lost
        _choose_for_torch()
    with contextlib.suppress(Exception):  # the cell may have used TensorFlow's devices before
        _choose_for_tensorflow()


def _choose_for_torch() -> None:
    torch = sys.modules.get("torch")
    if torch is not None:
        # The call runs when CUDA starts, just before the cell's first use of it.
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
    """Return whether CUDA has started in this process.

    Then it has read the variable, and will not read it again.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}") == "/dev/nvidia-uvm":
                    return True
    return False

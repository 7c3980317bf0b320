"""Make Horovod's learning rate callbacks work with the optimizers of today's tf_keras."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["adapt"]


def adapt() -> None:
    """Imports Horovod's Keras API, where it is installed; where not, the cell's own import says so.

    The callbacks correct the momentum while they change the rate. An optimizer that keeps its momentum as a
    plain number has compiled it in: nothing can correct it, and the callbacks would fail trying.
    """
    try:
        from horovod._keras import callbacks
    except ImportError:
        return
    adjust = callbacks.LearningRateScheduleCallbackImpl._adjust_learning_rate

    def adjusted(self: Any, epoch: float) -> None:
        momentum = getattr(self.model.optimizer, "momentum", None)
        if self.momentum_correction and isinstance(momentum, (int, float)):
            self.momentum_correction = False
            if momentum:
                print(
                    f"jupyter_dist: {type(self).__name__} changes the learning rate without momentum "
                    "correction, which this optimizer cannot do; one of keras.optimizers.legacy can",
                    file=sys.stderr,
                )
        adjust(self, epoch)

    callbacks.LearningRateScheduleCallbackImpl._adjust_learning_rate = adjusted

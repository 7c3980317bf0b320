"""torchrun on one of several hosts. `python -m` with this module takes torchrun's arguments.

Its ranks are also told the number of the rendezvous they come from. That number is the same on all hosts,
which count restarts each for itself: one that joins later has seen none of them.
"""

from __future__ import annotations

import os
from typing import Any

__all__ = ["ROUND", "main"]

ROUND = "JUPYTER_DIST_ROUND"
"""The variable that holds the number."""


def main() -> None:
    """Be torchrun."""
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler as Handler
    from torch.distributed.run import main as torchrun

    next_rendezvous = Handler.next_rendezvous

    def and_tell(self: Any) -> Any:
        found = next_rendezvous(self)
        state: Any = getattr(getattr(self, "_state_holder", None), "state", None)
        if isinstance(getattr(state, "round", None), int):
            os.environ[ROUND] = str(state.round)
        return found

    Handler.next_rendezvous = and_tell
    torchrun()


if __name__ == "__main__":
    main()

"""torchrun on one of several hosts. `python -m` with this module accepts torchrun's arguments.

This module also passes the number of the rendezvous to the ranks. That number is the same on all hosts. The
count of restarts is not: each host counts for itself, and a host that joins later has counted none.
"""

from __future__ import annotations

import os
from typing import Any

__all__ = ["ROUND", "main"]

ROUND = "JUPYTER_DIST_ROUND"
"""The variable with the number of the rendezvous."""


def main() -> None:
    """Run torchrun."""
    import torch

    if not hasattr(torch, "compile"):
        raise SystemExit(
            f"torchrun of torch {torch.__version__} lacks arguments such as --local-addr. Use --backend ssh, "
            "or hosts with torch 2.0 or newer."
        )
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

"""Entry point of `jupyter dist` and of `python -m jupyter_dist`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Run the terminal's `jupyter dist`. Returns the exit status."""
    try:
        from .commands import main as run  # takes a third of a second
    except KeyboardInterrupt:
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())

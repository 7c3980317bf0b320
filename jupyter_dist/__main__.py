"""Entry point of `python -m jupyter_dist`, the same as `jupyter dist`."""

import sys

from .commands import main

if __name__ == "__main__":
    sys.exit(main())

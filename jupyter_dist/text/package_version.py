"""Version of this package, for modules that must not import the package's public modules."""

from __future__ import annotations

import functools
import re
from pathlib import Path

__all__ = ["package_version"]


@functools.cache
def package_version() -> str:
    """Return `jupyter_dist.__version__`, read from its file."""
    source = (Path(__file__).parents[1] / "__init__.py").read_text()
    found = re.search(r'^__version__ = "(.*)"', source, re.MULTILINE)
    return found[1] if found else "?"

"""Digests that distinguish results with equal reprs: two figures have the same repr, whatever they show."""

from __future__ import annotations

import hashlib
import io
import re
import sys
from pathlib import Path
from typing import Any

from .. import layout, payload

__all__ = ["content"]

_ELLIPSIS = re.compile(r"\.\.\.|…")
_MAX_BYTES = 16 << 20
"""The size in bytes up to which a result is read again.

Reading more would delay the rank. Larger results are compared by size and repr.
"""


def content(value: Any, text: str, result: Path) -> str | None:
    """Return a digest of the value's content if its repr (`text`) omits some of it, otherwise None.

    `result` is the file with the written value. A repr in angle brackets names an object without its content.
    A repr with an ellipsis was cut.
    """
    if not (text.startswith("<") or _ELLIPSIS.search(text)):
        return None
    digest = hashlib.sha256()
    drawn = _drawn(value)
    if drawn is not None:
        digest.update(drawn)
        return digest.hexdigest()[:32]
    files = [path for path in (result, result.with_name(layout.RESULT_BUFFERS)) if path.exists()]
    if sum(path.stat().st_size for path in files) > _MAX_BYTES:
        return None
    # The seal of a container is random, so it is left out of the digest.
    seal = payload.read_header(result)["seal"] or b""
    for path in files:
        data = path.read_bytes()
        digest.update(data.replace(seal, b"") if seal else data)
    return digest.hexdigest()[:32]


def _drawn(value: Any) -> bytes | None:
    """Return what a figure shows. Its pickle also contains data that differs between processes."""
    figure = sys.modules.get("matplotlib.figure")
    if figure is None or not isinstance(value, figure.Figure):
        return None
    picture = io.BytesIO()
    try:
        value.savefig(picture, format="png", dpi=50)
    except Exception:  # the pickle then distinguishes the figure
        return None
    return picture.getvalue()

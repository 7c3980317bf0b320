"""Tell apart results that look alike: two figures have one repr, whatever is drawn in them."""

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
"""More than that is not read again, which would keep the rank: sizes and reprs then have to do."""


def content(value: Any, text: str, result: Path) -> str | None:
    """A digest of what a value holds, where its repr (`text`) leaves out some of it; else None.

    `result`: the file that the value was written to. A repr in angle brackets names an object and does not
    tell it, and one with an ellipsis was cut.
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
    # By a word that is drawn anew each time a container says which of its files belong together.
    seal = payload.read_header(result)["seal"] or b""
    for path in files:
        data = path.read_bytes()
        digest.update(data.replace(seal, b"") if seal else data)
    return digest.hexdigest()[:32]


def _drawn(value: Any) -> bytes | None:
    """What a figure shows. Its pickle holds more, which differs from process to process."""
    figure = sys.modules.get("matplotlib.figure")
    if figure is None or not isinstance(value, figure.Figure):
        return None
    picture = io.BytesIO()
    try:
        value.savefig(picture, format="png", dpi=50)
    except Exception:  # a figure that cannot be drawn is told apart by its pickle
        return None
    return picture.getvalue()

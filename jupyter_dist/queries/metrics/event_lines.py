"""Many metric lines parsed at once into a table, which is faster than JSON line by line.

A rank that logs in a loop writes lines that differ only in their numbers (worker/output/events.py). The text
between the numbers is removed, and the rest is read as numbers. If one line has another form, the functions
return None, and the caller parses the lines one by one.
"""

from __future__ import annotations

import re
import warnings

import numpy as np
import numpy.typing as npt

__all__ = ["block", "table"]

_LINE = re.compile(
    rb'\{"seq":\d+,"time":\d+(?:e-6|\.\d+),"kind":"metric","step":-?\d+,'
    rb'"values":\{((?:"[^"\\]+":[-+.eE\d]+,?)+)\}\}'
)
_NAME = re.compile(rb'"([^"]+)":[^,]+')
_NUMERALS = b"0123456789.+-"
_EXPONENT = b"\x01"
"""Replaces the letter of an exponent, because that letter also occurs elsewhere.

No line contains this byte.
"""
_NUMBERS = bytes(
    ord("e") if code == _EXPONENT[0] else code if code in _NUMERALS else 32 for code in range(256)
)
"""Translation table: every byte that belongs to no number becomes a space."""
_FEW = 16
_EXACT = 2.0**53


def block(data: bytes) -> tuple[list[str], npt.NDArray[np.float64]] | None:
    """Return what `table` returns, but for whole lines of one form, and several times as fast.

    Also returns None if names contain digits. All bytes outside numerals must be the same in all lines.
    """
    count, end = data.count(b"\n"), data.find(b"\n") + 1
    first = _LINE.fullmatch(data[: end - 1]) if count >= _FEW and data.endswith(b"\n") else None
    if first is None:
        return None
    names = _NAME.findall(first[1])
    if any(name.translate(None, _NUMERALS) != name for name in names):
        return None
    data = data.replace(b"e-", _EXPONENT + b"-").replace(b"e+", _EXPONENT + b"+")
    make = data[: data.find(b"\n") + 1].translate(None, _NUMERALS + _EXPONENT)
    if data.translate(None, _NUMERALS + _EXPONENT) != make * count:
        return None
    return _rows(names, data.translate(_NUMBERS), count)


def table(lines: list[bytes]) -> tuple[list[str], npt.NDArray[np.float64]] | None:
    """Return the metrics' names, and a row for each line: its time, its step and its values.

    Returns None for few lines, or for lines that differ in their names, lack a step or are not finite.
    """
    first = _LINE.fullmatch(lines[0]) if len(lines) >= _FEW else None
    if first is None:
        return None
    names = _NAME.findall(first[1])
    joined = b"\n".join(lines)
    for part in (b'{"seq":', b',"time":', b',"kind":"metric","step":', b"}}"):
        joined = joined.replace(part, b" ")
    for place, name in enumerate(names):
        before = b"," if place else b',"values":{'
        joined = joined.replace(before + b'"' + name + b'":', b" ")
    return _rows(names, joined, len(lines))


def _rows(
    names: list[bytes], numbers_of_lines: bytes, count: int
) -> tuple[list[str], npt.NDArray[np.float64]] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            numbers = np.fromstring(numbers_of_lines, sep=" ")
        except (DeprecationWarning, ValueError):
            return None  # text is left that is not a number
    width = 3 + len(names)
    if len(numbers) != width * count:
        return None
    rows = numbers.reshape(-1, width)
    seq = rows[:, 0]
    # Each line's `seq` is larger than the previous one, unless numbers slipped into another row.
    if (np.diff(seq) <= 0).any() or (np.abs(rows[:, 2]) >= _EXACT).any() or not np.isfinite(rows).all():
        return None
    try:
        return [name.decode() for name in names], rows[:, 1:]
    except UnicodeDecodeError:
        return None

"""The values that `dist.log` accepts besides numbers, as MIME bundles.

They are pictures, texts, tables and histograms. The names `image`, `text`, `table` and `histogram` define the
kind of a value. A dict there names several values: `log(image={"input": x, "output": y})`. Under any other
name the type of the value decides. It may be a figure, an image, an array that looks like a picture, or a
data frame. A text or another array is refused there, because it was probably meant to be a number.
"""

from __future__ import annotations

import html
import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .arrays import array_of, is_array
from .media import MEDIA_TYPES
from .mime_bundles import forms, is_figure
from .png import looks_like_picture, png
from .scalars import number

__all__ = ["HISTOGRAM", "Medium", "split"]

HISTOGRAM = "application/vnd.jupyter-dist.histogram+json"
"""The MIME type of a histogram.

Its fields are the `counts` of the bins between `low` and `high`, `mean`, `count`, and the number of
non-finite values (`special`).
"""

_BINS = 48
_MOST_ROWS, _MOST_COLUMNS, _MOST_CELL = 200, 50, 300
_MOST_TEXT = 100_000
_MOST_FILE = 10_000_000
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}
_DRAWN = ("image/png", "image/jpeg", "image/svg+xml", "text/html")


class Medium(NamedTuple):
    """One logged value. `type` is one of `MEDIA_TYPES`."""

    name: str
    type: str
    data: dict[str, Any]


def split(values: Mapping[str, Any]) -> tuple[dict[str, float], list[Medium]]:
    """Separate the numbers from the other values, and prepare the others for writing.

    Raises TypeError or ValueError, with the name of the value, for a value that is neither.
    """
    numbers: dict[str, float] = {}
    media: list[Medium] = []
    for name, value in values.items():
        if name in MEDIA_TYPES and not _is_number(value):
            named = value if isinstance(value, Mapping) and not _is_table(name, value) else {name: value}
            media += [Medium(str(each), name, _made(name, str(each), one)) for each, one in named.items()]
        elif (kind := _kind(value)) is not None:
            media.append(Medium(name, kind, _made(kind, name, value)))
        elif isinstance(value, str):
            raise TypeError(
                f"{name!r} is a str, which is not a number. Log a text with log(text={{{name!r}: …}})"
            )
        else:
            numbers[name] = number(name, value)
    return numbers, media


def _is_number(value: Any) -> bool:
    try:
        number("", value)
    except TypeError:
        return False
    return True


def _is_table(name: str, value: Mapping[Any, Any]) -> bool:
    """Return whether a dict under `table` is one table by columns, rather than several tables by name."""
    return name == "table" and not any(
        _is_frame(one)
        or isinstance(one, Mapping)
        or (isinstance(one, list) and one and isinstance(one[0], (Mapping, list, tuple)))
        for one in value.values()
    )


def _kind(value: Any) -> str | None:
    """Return the kind of a value under any other name. None for a number, and for unsupported values."""
    if is_figure(value) or _is_image(value) or _is_plotly(value):
        return "image"
    if _is_frame(value):
        return "table"
    # Another array is probably a metric that was not reduced. `number` then raises the error.
    return "image" if is_array(value) and looks_like_picture(value) else None


def _is_frame(value: Any) -> bool:
    return hasattr(type(value), "columns") and hasattr(type(value), "_repr_html_")


def _is_image(value: Any) -> bool:
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(value, module.Image)


def _is_plotly(value: Any) -> bool:
    module = sys.modules.get("plotly.basedatatypes")
    return module is not None and isinstance(value, module.BaseFigure)


def _made(kind: str, name: str, value: Any) -> dict[str, Any]:
    makers = {"image": _image, "text": _text, "table": _table, "histogram": _histogram}
    try:
        return makers[kind](value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name!r} cannot be logged as {kind}: {error}") from None


def _image(value: Any) -> dict[str, Any]:
    if isinstance(value, (str, os.PathLike)):
        with open(value, "rb") as file:
            value = file.read(_MOST_FILE + 1)
    if isinstance(value, (bytes, bytearray)):
        if len(value) > _MOST_FILE:
            raise ValueError(f"a picture of more than {_MOST_FILE // 1_000_000} MB")
        for signature, mime in _SIGNATURES.items():
            if value.startswith(signature):
                return {mime: bytes(value)}
        raise ValueError("these bytes are not a PNG, JPEG, GIF or WebP")
    if is_array(value):
        return {"image/png": png(value)}
    if isinstance(value, (list, tuple)) and value and all(map(is_array, value)):
        return {"image/png": png(sys.modules["numpy"].stack([array_of(one) for one in value]))}
    data, _ = forms(value)
    kept = {mime: one for mime, one in data.items() if mime in _DRAWN or mime.endswith("+json")}
    if not kept:
        raise TypeError(
            f"{type(value).__name__} is not a picture. Log a figure, a PIL image, an array or "
            "tensor, PNG or JPEG bytes, or the path of a file"
        )
    return kept


def _text(value: Any) -> dict[str, Any]:
    if not isinstance(value, str):
        value = "\n\n".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    cut = value if len(value) <= _MOST_TEXT else f"{value[:_MOST_TEXT]}… {len(value):,} characters"
    return {"text/plain": cut}


def _table(value: Any) -> dict[str, Any]:
    if hasattr(type(value), "_repr_html_"):
        data, _ = forms(value, include=("text/html", "text/plain"))
        if "text/html" in data:
            return data
    columns, rows = _columns_and_rows(value)
    return {"text/html": _html(columns, rows), "text/plain": f"{len(rows)} × {len(columns)}"}


def _columns_and_rows(value: Any) -> tuple[list[str], list[Sequence[Any]]]:
    if isinstance(value, Mapping):  # a dict of columns
        lists = [
            list(one) if isinstance(one, (list, tuple)) or is_array(one) else [one] for one in value.values()
        ]
        return list(map(str, value)), list(itertools.zip_longest(*lists, fillvalue=""))
    array = array_of(value)
    rows = value if array is None else array.tolist()
    if not isinstance(rows, (list, tuple)):
        raise TypeError(
            f"{type(value).__name__} is not a table. Log a DataFrame, a dict of columns, a list "
            "of dicts or a list of rows"
        )
    if rows and all(isinstance(row, Mapping) for row in rows):
        columns = list(dict.fromkeys(name for row in rows for name in row))
        return list(map(str, columns)), [[row.get(name, "") for name in columns] for row in rows]
    listed = [row if isinstance(row, (list, tuple)) else [row] for row in rows]
    return list(map(str, range(max(map(len, listed), default=0)))), list[Sequence[Any]](listed)


def _html(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    def cells(tag: str, values: Sequence[Any]) -> str:
        return "".join(f"<{tag}>{html.escape(_shown(one))}</{tag}>" for one in values[:_MOST_COLUMNS])

    body = "".join(f"<tr><th>{i}</th>{cells('td', row)}</tr>" for i, row in enumerate(rows[:_MOST_ROWS]))
    more = len(rows) - _MOST_ROWS
    note = f"<p>… {more:,} more rows</p>" if more > 0 else ""
    return (
        f"<table><thead><tr><th></th>{cells('th', columns)}</tr></thead><tbody>{body}</tbody></table>{note}"
    )


def _shown(value: Any) -> str:
    return (f"{value:.6g}" if isinstance(value, float) else str(value))[:_MOST_CELL]


def _histogram(value: Any) -> dict[str, Any]:
    if isinstance(value, (list, tuple, range)):
        import numpy

        value = numpy.asarray(value)
    array = array_of(value)
    if array is None or array.dtype.kind not in "biuf":
        raise TypeError(f"{type(value).__name__} is not an array of numbers")
    numpy = sys.modules["numpy"]
    numbers = array.astype("float64").ravel()
    finite = numbers[numpy.isfinite(numbers)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    first, last = low, high
    # numpy refuses bins that its numbers cannot separate, as for sums that are 1 but for the rounding.
    least = 2 * _BINS * float(numpy.spacing(max(abs(low), abs(high))))
    if high - low < least:
        first, last = low - max(0.5, least), low + max(0.5, least)
    counts = numpy.histogram(finite, bins=_BINS, range=(first, last))
    told = {
        "counts": counts[0].tolist(),
        "low": float(counts[1][0]),
        "high": float(counts[1][-1]),
        "mean": float(finite.mean()) if finite.size else None,
        "count": int(numbers.size),
        "special": int(numbers.size - finite.size),
    }
    text = f"{numbers.size:,} values, {low:.4g} to {high:.4g}"
    return {HISTOGRAM: told, "text/plain": text}

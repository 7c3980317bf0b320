"""Arrays that are pictures, encoded as PNG. No image library is needed: zlib is part of Python.

The format: https://www.w3.org/TR/png/. A picture has height and width, with one, three or four channels
before or after them. Its values are bytes, or floats between 0 and 1, as torchvision and matplotlib define
it.
"""

from __future__ import annotations

import struct
import sys
import zlib
from typing import Any

from .arrays import array_of

__all__ = ["looks_like_picture", "png"]

_LEAST, _MOST = 8, 16_384
_LEAST_OF_FLOATS = 16
"""A smaller two-dimensional array of floats is probably a matrix."""
_SIDE = 1024
"""Of a larger picture, every second, third … pixel is shown."""
_COLOUR = {1: 0, 2: 4, 3: 2, 4: 6}
"""The format's colour types by the number of channels."""
_MOST_TILES = 64


def looks_like_picture(value: Any) -> bool:
    """Return whether the array is more useful as a picture than as numbers."""
    array = array_of(value)
    if array is None or array.ndim not in (2, 3):
        return False
    pixels = _channels_last(array)
    if pixels is None:
        return False
    height, width = pixels.shape[:2]
    if min(height, width) < _LEAST or max(height, width) > _MOST:
        return False
    if array.dtype.name == "uint8":
        return True
    enough = min(height, width) >= _LEAST_OF_FLOATS or pixels.shape[2] > 1
    return bool(array.dtype.kind == "f" and enough and array.min() >= 0 and 0 < array.max() <= 1)


def png(value: Any) -> bytes:
    """Encode an array as PNG: (H, W), (H, W, C), (C, H, W), or several of these side by side.

    Floats are between 0 and 1. Otherwise they are scaled from their minimum to their maximum. NaN is black.

    Raises ValueError, with the reason, for an array that is not a picture.
    """
    array = array_of(value)
    if array is None or array.dtype.kind not in "biuf":
        kind = getattr(value, "dtype", type(value).__name__)
        raise ValueError(f"{kind} cannot be drawn as a picture")
    if not array.size:
        raise ValueError(f"an array of shape {tuple(array.shape)} is empty")
    if array.ndim == 4:
        array = _tiled(array)
    pixels = None if array.ndim not in (2, 3) else _channels_last(array)
    if pixels is None:
        raise ValueError(
            f"an array of shape {tuple(array.shape)} is not a picture. The shape must be (H, W), "
            "(H, W, C) or (C, H, W), with 1, 3 or 4 channels"
        )
    step = -(-max(pixels.shape[:2]) // _SIDE)
    return _encoded(_bytes(pixels[::step, ::step]))


def _channels_last(array: Any) -> Any:
    """Return the array as (H, W, C), or None if no axis can be the channels."""
    if array.ndim == 2:
        return array[:, :, None]
    if array.shape[-1] in _COLOUR:
        return array
    return array.transpose(1, 2, 0) if array.shape[0] in _COLOUR else None


def _tiled(array: Any) -> Any:
    """Combine several pictures in rows, as close to a square as possible."""
    numpy = sys.modules["numpy"]
    tiles = [_channels_last(one) for one in array[:_MOST_TILES]]
    if any(tile is None for tile in tiles):
        raise ValueError(f"an array of shape {tuple(array.shape)} contains no pictures")
    across = max(1, int(numpy.ceil(numpy.sqrt(len(tiles)))))
    tiles += [numpy.zeros_like(tiles[0])] * (-len(tiles) % across)
    rows = [numpy.concatenate(tiles[i : i + across], axis=1) for i in range(0, len(tiles), across)]
    return numpy.concatenate(rows, axis=0)


def _bytes(pixels: Any) -> Any:
    numpy = sys.modules["numpy"]
    kind = pixels.dtype.kind
    if pixels.dtype.name == "uint8":
        return pixels
    if kind == "b":
        return pixels.astype("uint8") * numpy.uint8(255)
    numbers = pixels.astype("float64")
    if kind in "iu" and numbers.min() >= 0 and numbers.max() <= 255:
        return numbers.astype("uint8")
    numbers = numpy.nan_to_num(numbers, nan=0.0, posinf=0.0, neginf=0.0)
    low, high = float(numbers.min()), float(numbers.max())
    if kind != "f" or low < 0 or high > 1:
        numbers = (numbers - low) / ((high - low) or 1.0)
    return (numbers * 255 + 0.5).astype("uint8")


def _encoded(pixels: Any) -> bytes:
    numpy = sys.modules["numpy"]
    height, width, channels = pixels.shape
    # Each row begins with its filter type, 0.
    rows = numpy.zeros((height, 1 + width * channels), dtype="uint8")
    rows[:, 1:] = pixels.reshape(height, width * channels)
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOUR[channels], 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )

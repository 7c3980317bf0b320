"""Durations, sizes, numbers and signals in the words a report uses."""

from __future__ import annotations

import math
import signal

__all__ = ["clock", "count", "duration", "number", "signal_name", "size"]


def duration(seconds: float) -> str:
    """`0.12 s`, `12.3 s`, `2 min 5 s`, `1 h 3 min`."""
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def clock(seconds: float) -> str:
    """`0:07`, `12:05`, `1:02:03`."""
    whole = round(max(0.0, seconds))
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d}"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def size(nbytes: float) -> str:
    """Decimal units, three figures: `812 B`, `12.3 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 999.5:
            return f"{nbytes:.0f} {unit}" if unit == "B" or nbytes >= 99.5 else f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.0f} TB" if nbytes >= 99.5 else f"{nbytes:.3g} TB"


def count(number: int, noun: str) -> str:
    """`1 rank`, `12,345 ranks`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def number(value: float) -> str:
    """Four figures: `0.1234`, `1.5e-05`, `nan`."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.4g}"


def signal_name(code: int) -> str:
    """`SIGKILL`; `signal 64` where it has no name."""
    try:
        return signal.Signals(code).name
    except ValueError:
        return f"signal {code}"

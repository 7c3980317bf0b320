"""Durations, sizes, numbers and signals as text for people."""

from __future__ import annotations

import math
import re
import signal

__all__ = [
    "attach_call",
    "clock",
    "count",
    "duration",
    "exact",
    "number",
    "parse_duration",
    "signal_name",
    "size",
]

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def attach_call(id: str) -> str:
    """Return the call that returns a run in any notebook or script, for a message."""
    return f'jupyter_dist.attach("{id}")'


def duration(seconds: float) -> str:
    """Return for example `0.12 s`, `12.3 s`, `2 min 5 s`, `1 h 3 min`."""
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def parse_duration(value: object) -> object:
    """Convert a number, or text such as `90`, `90s`, `10m`, `2h`, `30d`, to seconds."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([smhd]?)\s*", value)
        if match is None:
            raise ValueError(f"needs a time such as 90, 90s, 10m or 2h, got {value!r:.80}")
        return float(match[1]) * _UNITS[match[2]]
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"needs a time in seconds, got {value!r}")
    return value


def clock(seconds: float) -> str:
    """Return for example `0:07`, `12:05`, `1:02:03`."""
    whole = round(max(0.0, seconds))
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d}"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def size(nbytes: float) -> str:
    """Return a size in decimal units with three digits: `812 B`, `12.3 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 999.5:
            return f"{nbytes:.0f} {unit}" if unit == "B" or nbytes >= 99.5 else f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.0f} TB" if nbytes >= 99.5 else f"{nbytes:.3g} TB"


def count(number: int, noun: str) -> str:
    """Return for example `1 rank`, `12,345 ranks`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def number(value: float) -> str:
    """Return a number with four digits: `0.1234`, `1.5e-05`, `nan`."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.4g}"


def exact(value: float) -> str:
    """Return a step or an amount. A whole number keeps all its digits: `1234567`."""
    whole = math.isfinite(value) and value == int(value) and abs(value) < 1e15
    return str(int(value)) if whole else number(value)


def signal_name(code: int) -> str:
    """Return for example `SIGKILL`, or `signal 64` if the signal has no name."""
    try:
        return signal.Signals(code).name
    except ValueError:
        return f"signal {code}"

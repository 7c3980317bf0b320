"""Progress lines from the ranks' progress events: bar, n/total, rate, time left, the slowest rank."""

from __future__ import annotations

from ..record.reader import Event
from ..text.format import clock, exact, number, size
from ..text.progress_bar import Bar, behind

__all__ = ["Progress"]

_BLOCKS = " ▏▎▍▌▋▊▉█"
_BAR_WIDTH = 20
_KEEP = 16
_BYTES = "B"
_WIDTH = 60


class Progress:
    """Latest progress bars of all ranks. Each bar has the id that its rank chose."""

    def __init__(self) -> None:
        self._bars: dict[int, dict[int, Bar]] = {}
        self._newest: dict[int, float] = {}

    def clear(self) -> None:
        self._bars.clear()
        self._newest.clear()

    def feed(self, event: Event) -> None:
        """Add a progress event. An invalid event is skipped, because a rank may write anything."""
        key = event.data.get("id")
        if not isinstance(key, int):
            return
        bar = self._bars.get(key, {}).get(event.rank) or Bar()
        if not bar.take({**event.data, "time": event.time}, _WIDTH):
            return
        self._bars.setdefault(key, {})[event.rank] = bar
        self._newest[key] = event.time
        if len(self._bars) > _KEEP:
            oldest = min(self._newest, key=lambda k: self._newest[k])
            del self._bars[oldest], self._newest[oldest]

    def lines(self, limit: int = 3, *, over: bool = False) -> list[str]:
        """Return one line per unfinished bar, outermost first. If there is none, the last finished bar.

        `over`: the run has ended, so no time left is shown.
        """
        newest = sorted(self._bars, key=lambda key: self._newest[key])
        active = [key for key in newest if not all(bar.done for bar in self._bars[key].values())]
        return [_line(self._bars[key], over) for key in sorted((active or newest[-1:])[-limit:])]


def _line(bars: dict[int, Bar], over: bool) -> str:
    slowest = behind(bars)
    bar = bars[slowest]
    parts = [f"{bar.desc}:"] if bar.desc else []
    rate = bar.rate()
    if bar.total:
        share = min(1.0, max(0.0, bar.share))
        # Rounded down, so that 100 % means finished. Multiplied first: 100 * (29 / 100) is less than 29.
        percent = min(100, max(0, int(100 * bar.n / bar.total)))
        parts.append(f"{percent:3d}% {_bar(share)} {_amount(bar.n, bar)}/{_amount(bar.total, bar)}")
    else:
        parts.append(_amount(bar.n, bar))
    if rate is not None:
        slow = rate < 1 and bar.unit != _BYTES
        parts.append(f" {number(1 / rate)} s each" if slow else f" {_amount(rate, bar)}/s")
        if bar.total and not bar.done and not over:
            parts.append(f" {clock((bar.total - bar.n) / rate)} left")
    if bar.note:
        parts.append(f" {bar.note}")
    fastest = max(other.n for other in bars.values() if other.loop == bar.loop)
    if fastest > bar.n:
        parts.append(f" slowest is rank {slowest}, the fastest is at {_amount(fastest, bar)}")
    return " ".join(parts)


def _amount(value: float, bar: Bar) -> str:
    return size(value) if bar.unit == _BYTES else exact(value)


def _bar(share: float) -> str:
    eighths = int(share * _BAR_WIDTH * 8)
    full, rest = divmod(eighths, 8)
    return f"▕{'█' * full}{_BLOCKS[rest] if rest else ''}".ljust(_BAR_WIDTH + 1) + "▏"

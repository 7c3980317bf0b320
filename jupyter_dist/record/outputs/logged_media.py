"""Logged media of ranks: pictures, texts, tables, histograms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

from ...folder import RunFolder
from ...text.safe import one_line
from . import media_html, rich_output
from .rich_output import ShownOutput

__all__ = ["Item", "Media", "media_of"]


class Item:
    """One logged thing of a rank.

    Its attributes are `name`, `step`, `rank`, `type` (image, text, table or histogram) and `time` (seconds
    since the epoch). Its content is read at the first access to `data`.
    """

    def __init__(self, rank: int, shown: ShownOutput, media: Path) -> None:
        self.rank, self.name, self.step, self.type = rank, shown.name, shown.step, shown.type
        self.time = shown.time
        self._shown, self._media = shown, media

    @property
    def data(self) -> dict[str, Any]:
        """Return the content by MIME type: a picture's bytes, a text, or parsed JSON.

        Lost parts are left out.
        """
        return rich_output.decoded(self._media, self._shown)

    def __repr__(self) -> str:
        return f"<{self.type} {one_line(self.name, 60)!r} of rank {self.rank} at step {self.step}>"

    def _repr_html_(self) -> str:
        return media_html.item_html(self._shown, self._media)


class Media(Sequence[Item]):
    """Logged media of all ranks, in the order of names, steps and ranks.

    `media.of("samples", step=3, rank=0)` returns a part of them. `media.names` lists the names.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = list(items)

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(item.name for item in self._items))

    def of(self, name: str | None = None, step: int | None = None, rank: int | None = None) -> Media:
        """Return the items with this name, step and rank. None means any."""
        asked = {"name": name, "step": step, "rank": rank}
        return Media(
            [
                item
                for item in self._items
                if all(value is None or getattr(item, key) == value for key, value in asked.items())
            ]
        )

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Media: ...
    def __getitem__(self, index: int | slice) -> Item | Media:
        return Media(self._items[index]) if isinstance(index, slice) else self._items[index]

    def __repr__(self) -> str:
        told = [f"{name!r}: {len(self.of(name))}" for name in self.names[:50]]
        return f"<Media {{{', '.join(told)}}}>"

    def _repr_html_(self) -> str:
        return media_html.media_html([(item.rank, item._shown, item._media) for item in self._items])


def media_of(folder: RunFolder, attempt: int) -> Media:
    """Return all logged media of an attempt. If a rank logged a step twice, the later item counts."""
    found: dict[tuple[int, str, int, int], Item] = {}
    order: dict[str, int] = {}
    for rank in folder.ranks(attempt):
        files = folder.rank(attempt, rank)
        for shown in rich_output.read(files, rich_output.KINDS[2:]):
            place = order.setdefault(shown.name, len(order))
            found[place, shown.name, shown.step, rank] = Item(rank, shown, files.media)
    return Media([found[key] for key in sorted(found)])

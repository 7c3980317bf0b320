"""Rich output and logged media as HTML without scripts, limited to a size that suits a notebook file."""

from __future__ import annotations

import html
import json

from ..errors import DistError
from ..folder import RunFolder
from ..job import Job
from ..queries import media_pages
from ..queries.answers.media import Content, Exhibit
from ..record.outputs.media_html import histogram_html
from ..record.outputs.rich_output import PICTURES, data_url
from ..text.fold import ranges
from ..text.safe_html import safe_html
from ..worker.output.logged_media import HISTOGRAM

__all__ = ["Drawing", "Shown"]

_MOST_BYTES = 2_000_000
"""Size limit. A server drops a kernel's output beyond a MB a second, averaged over three seconds."""
_MOST_TEXT = 20_000
_ORDER = ("text/html", "image/svg+xml", *PICTURES, HISTOGRAM, "text/markdown", "text/latex", "text/plain")
_GRID = "display:flex;flex-wrap:wrap;gap:0.5em 1em;margin:0.5em 0;align-items:flex-start"
_CELL = "min-width:0;max-width:100%;overflow:auto"
_RANKS = "opacity:0.8;font-family:monospace;font-size:0.9em"
_PRE = "margin:0;white-space:pre-wrap"

Shown = list[tuple[list[int], Exhibit]]
"""Different exhibits, each with its ranks. The bytes are those of the exhibit's own first rank."""


class Drawing:
    """Writer of displays as HTML, up to the size limit. `ranks`: the number of ranks that are shown."""

    def __init__(self, folder: RunFolder, job: Job, attempt: int, ranks: int, left_out: int) -> None:
        self.folder, self.job, self.attempt, self.ranks = folder, job, attempt, ranks
        self.left_out = left_out
        self._used = 0

    def row(self, exhibits: Shown) -> str:
        """Return what ranks show at one place, side by side."""
        wanted = exhibits if self.job.kept_displays == "all" else exhibits[:1]
        cells = []
        for ranks, exhibit in wanted:
            shown = self._shown(exhibit)
            if not shown or self._used + len(shown) > _MOST_BYTES:
                self.left_out += 1
                continue
            self._used += len(shown)
            head = f'<div style="{_RANKS}">[{ranges(ranks, 30)}]</div>' if self.ranks != 1 else ""
            cells.append(f'<div style="{_CELL}">{head}{shown}</div>')
        others = [rank for ranks, _ in exhibits[len(wanted) :] for rank in ranks]
        if others:
            told = f"[{ranges(others, 30)}] show something else"
            cells.append(f'<div style="opacity:0.8">{told}</div>')
        return f'<div style="{_GRID}">{"".join(cells)}</div>' if cells else ""

    def _shown(self, exhibit: Exhibit) -> str | None:
        contents = {content["mime"]: content for content in exhibit["contents"]}
        for mime in _ORDER:
            if mime not in contents:
                continue
            data = self._data(exhibit["ranks"][0], contents[mime])
            if data is None:
                continue
            if mime in PICTURES:
                return f'<img style="max-width:100%;background:#fff" src="{data_url(mime, data)}">'
            text = data.decode("utf-8", "replace")
            if mime == "text/html":
                return safe_html(text)
            if mime == HISTOGRAM:
                return histogram_html(json.loads(text))
            return f'<pre style="{_PRE}">{html.escape(text[:_MOST_TEXT])}</pre>'
        return None

    def _data(self, rank: int, content: Content) -> bytes | None:
        if "text" in content:
            return content["text"].encode()
        if "json" in content:
            return json.dumps(content["json"]).encode()
        try:
            return media_pages.content(
                self.folder,
                rank,
                content["offset"],
                content["bytes"],
                content["hash"],
                content["mime"],
                self.attempt,
            ).data
        except DistError:
            return None

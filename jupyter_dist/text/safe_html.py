"""Cleaning of a rank's HTML for a notebook file, which a browser shows as the user's own.

The output is written anew from the parsed input. It contains only tags and attributes for the layout of text
and tables, and pictures with embedded data. Everything else is left out, and its text stays, except code.
"""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

__all__ = ["safe_html"]

_TAGS = frozenset(
    [
        *("a", "abbr", "b", "blockquote", "br", "caption", "center", "code", "col", "colgroup", "dd", "del"),
        *("details", "div", "dl", "dt", "em", "figcaption", "figure", "h1", "h2", "h3", "h4", "h5", "h6"),
        *("hr", "i", "img", "ins", "kbd", "li", "mark", "ol", "p", "pre", "q", "s", "samp", "small", "span"),
        *("strong", "sub", "summary", "sup", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "tt", "u"),
        *("ul", "var"),
    ]
)
_VOID = frozenset(["br", "col", "hr", "img"])
_CODE = frozenset(
    [
        *("head", "iframe", "math", "noscript", "object", "script", "style", "svg", "template"),
        *("textarea", "title", "xmp"),
    ]
)
"""Tags that are left out together with their content."""
_ATTRIBUTES = frozenset(
    [
        *("align", "alt", "border", "colspan", "height", "rowspan", "scope", "title", "valign", "width"),
    ]
)
_SIZE = re.compile(r"[0-9]{1,5}(?:\.[0-9]+)?(?:px|%)?")
_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*")
_LINK = re.compile(r"https?://[^\s\"'<>]+")


def safe_html(text: str, limit: int = 200_000) -> str:
    """Return the HTML without anything that runs, fetches or covers other parts of the page. Tags are closed.

    Input beyond `limit` characters is left out, and "…" replaces it.
    """
    writer = _Writer()
    writer.feed(text[:limit])
    writer.close()
    return writer.done("…" if len(text) > limit else "")


class _Writer(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._open: list[str] = []
        self._in_code: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _CODE:
            self._in_code.append(tag)
        elif tag in _TAGS and not self._in_code:
            kept = "".join(_attribute(tag, name, value or "") for name, value in attrs)
            if tag == "img" and " src=" not in kept:
                return
            self._parts.append(f"<{tag}{kept}>")
            if tag not in _VOID:
                self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._in_code:
            del self._in_code[self._in_code.index(tag) :]
        elif tag in self._open and not self._in_code:
            while self._open:  # tags opened inside this one end with it
                last = self._open.pop()
                self._parts.append(f"</{last}>")
                if last == tag:
                    return

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        if not self._in_code:
            self._parts.append(html.escape(data))

    def done(self, rest: str) -> str:
        return "".join(self._parts) + rest + "".join(f"</{tag}>" for tag in reversed(self._open))


def _attribute(tag: str, name: str, value: str) -> str:
    if tag == "img" and name == "src" and _PICTURE.fullmatch(value):
        return f' src="{value}"'
    if tag == "a" and name == "href" and _LINK.fullmatch(value):
        return f' href="{html.escape(value)}" rel="noopener noreferrer" target="_blank"'
    if name in ("width", "height") and not _SIZE.fullmatch(value):
        return ""
    return f' {name}="{html.escape(value)}"' if name in _ATTRIBUTES else ""

"""Write the table of private names in docs/changing.md from the registry: `python tools/canaries.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from jupyter_dist.worker.foreign_names import ROWS

__all__ = ["main", "table", "with_table"]

DOCS = Path(__file__).parents[1] / "docs/changing.md"
_BEGIN = "<!-- canaries: made by tools/canaries.py -->\n"
_END = "<!-- end of canaries -->\n"
_ONE = {"pytorch_lightning": "lightning", "lightning_fabric": "lightning"}
"""Packages with the same source."""


def table() -> str:
    """One line for each library, feature and consequence, in the registry's order."""
    lines = ["Library | Names | Used by | When missing", "---|---|---|---", *_lines()]
    return "\n".join(lines) + "\n"


def _lines() -> Iterator[str]:
    found: dict[tuple[str, str, str], tuple[list[str], list[str]]] = {}
    for row in ROWS:
        library = "Python" if row.library in sys.stdlib_module_names else _ONE.get(row.library, row.library)
        names, users = found.setdefault((library, row.feature, row.missing.value), ([], []))
        names += [name.rpartition(".")[2] for name in row.names] or [row.module]
        users += row.users
    for (library, feature, missing), (names, users) in found.items():
        shown = ", ".join(f"`{name}`" for name in dict.fromkeys(names))
        by = ", ".join(f"`{user}.py`" for user in dict.fromkeys(users))
        yield f"{library} | {shown} | {by} | {missing}: {feature[0].lower()}{feature[1:]}"


def with_table(text: str) -> str:
    """The text of the page with today's table in its place."""
    before, _, rest = text.partition(_BEGIN)
    return f"{before}{_BEGIN}\n{table()}\n{_END}{rest.partition(_END)[2]}"


def main() -> None:
    """Rewrite the page."""
    DOCS.write_text(with_table(DOCS.read_text()))


if __name__ == "__main__":
    main()

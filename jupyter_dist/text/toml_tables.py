"""Changes of the tables in a TOML document, such as the saved clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tomlkit
from tomlkit.items import Table

__all__ = ["rename", "update", "writable"]


def writable(document: tomlkit.TOMLDocument, key: str) -> Any:
    """Return the table of tables with this key, to change it. Create it if there is none.

    Also create it anew, with the same tables, if it has another form: an inline table, dotted keys, or tables
    with others between them. tomlkit cannot add a table to all of these forms.
    """
    found = document.get(key)
    if isinstance(found, Table):
        return found
    made = tomlkit.table(is_super_table=True)
    if found is not None:
        for name, values in found.unwrap().items():
            made[name] = values
        del document[key]
    document[key] = made
    return document[key]


def rename(saved: Any, old: str, new: str) -> None:
    """Rename a table. Remove and add all tables, so that the renamed one keeps its position."""
    if new in saved:
        saved.remove(new)
    items = [(name, saved[name]) for name in saved]
    for name, _ in items:
        saved.remove(name)
    for name, table in items:
        saved.append(new if name == old else name, table)


def update(table: Any, values: Mapping[str, Any]) -> None:
    """Give a table these values. Lines of values that stay keep their comments."""
    for key in [key for key in table if key not in values]:
        del table[key]
    for key, value in values.items():
        if key not in table or table[key] != value:
            table[key] = value

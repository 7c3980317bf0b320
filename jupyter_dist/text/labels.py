"""How runs are told apart by people: a name, tags and a note, and what each may be."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["read_name", "read_note", "read_tags"]

_MOST_TAGS = 20
_TAG, _NAME, _NOTE = 40, 120, 4000


def read_name(text: str) -> str:
    """A name: one line. Raises ValueError, as the others here do, with what is wrong."""
    name = text.strip()
    if len(name) > _NAME or not name.isprintable():
        raise ValueError(f"needs one line of {_NAME} characters at most, got {len(name)} characters")
    return name


def read_note(text: str) -> str:
    """A note: any text of some length."""
    if len(text) > _NOTE:
        raise ValueError(f"needs {_NOTE} characters at most, got {len(text)}")
    return text.strip()


def read_tags(tags: str | Iterable[str]) -> tuple[str, ...]:
    """Tags from `baseline,large` or from several texts; each once, in their order."""
    given = (
        tags.split(",") if isinstance(tags, str) else [part for tag in tags for part in str(tag).split(",")]
    )
    found = tuple(dict.fromkeys(tag.strip() for tag in given if tag.strip()))
    for tag in found:
        if len(tag) > _TAG or not tag.isprintable():
            raise ValueError(f"needs tags of {_TAG} characters at most, got {tag[:60]!r}")
    if len(found) > _MOST_TAGS:
        raise ValueError(f"needs {_MOST_TAGS} tags at most, got {len(found)}")
    return found

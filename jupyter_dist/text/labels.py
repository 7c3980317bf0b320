"""Labels by which people distinguish runs: a name, tags and a note, and the limits of each."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["read_name", "read_note", "read_tags"]

_MOST_TAGS = 20
_TAG, _NAME, _NOTE = 40, 120, 4000


def read_name(text: str) -> str:
    """Check a name, which is one line. Raises ValueError with the problem, as the other functions here do."""
    name = text.strip()
    if len(name) > _NAME or not name.isprintable():
        raise ValueError(f"needs one line of {_NAME} characters at most, got {len(name)} characters")
    return name


def read_note(text: str) -> str:
    """Check a note, which is any text of limited length."""
    if len(text) > _NOTE:
        raise ValueError(f"needs {_NOTE} characters at most, got {len(text)}")
    return text.strip()


def read_tags(tags: str | Iterable[str]) -> tuple[str, ...]:
    """Parse tags from `baseline,large` or from several texts. Each tag occurs once, in the given order."""
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

"""The values of a run's options: what each may be, and the error for what it may not be.

An error continues a sentence that begins with the flag.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Callable

from pydantic import AfterValidator

from .flags import shown
from .host_list import parse_hosts
from .search.early_stopping import ALONE, read_policy
from .search.notation import as_text, read_dimension
from .search.spec import read_sizes
from .text.labels import read_tags
from .worker.hints import NAMES
from .worker.session import place

__all__ = [
    "checked",
    "environment",
    "hints",
    "hosts",
    "is_set_for_ranks",
    "modules",
    "name_in_code",
    "patterns",
    "ranks",
    "session_name",
    "sizes",
    "space",
    "stopping",
    "tags",
    "texts",
    "variable",
]

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_METRIC_NAME = re.compile(r"[^\W\d][^=\x00-\x1f]{0,99}")
_SET_FOR_RANKS = frozenset(
    ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TF_CONFIG"]
)


def variable(value: str) -> str:
    if not value.isidentifier() or keyword.iskeyword(value):
        raise ValueError(f"needs the name of a variable, got {shown(value)}")
    return name_in_code(value)


def name_in_code(name: str) -> str:
    """Return a variable's name as Python stores it: the µ of a keyboard is another letter in a namespace.

    Source: https://docs.python.org/3/reference/lexical_analysis.html#identifiers
    """
    return unicodedata.normalize("NFKC", name)


def environment(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _ENV_NAME.fullmatch(name):
            raise ValueError(
                f"needs NAME=VALUE with a name of letters, digits and _, got the name {shown(name)}"
            )
        if is_set_for_ranks(name):
            raise ValueError(f"cannot set {name}: jupyter-dist sets it on every rank. Use another name")
        if "\0" in text:
            raise ValueError(f"cannot set {name}: its value contains a NUL character. Remove that character")
    return value


def is_set_for_ranks(name: str) -> bool:
    """Return whether jupyter-dist sets an environment variable on every rank."""
    return name in _SET_FOR_RANKS or name.startswith("JUPYTER_DIST_")


def patterns(value: dict[str, str]) -> dict[str, str]:
    for name, pattern in value.items():
        if not _METRIC_NAME.fullmatch(name):
            raise ValueError(
                f"needs NAME=REGEX with a name that begins with a letter, got the name {shown(name)}"
            )
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise ValueError(
                f"{name!r}: {shown(pattern)} is not a regular expression ({error.msg})"
            ) from None
        if "value" not in compiled.groupindex and compiled.groups != 1:
            raise ValueError(
                f"{name!r}: {shown(pattern)} has {compiled.groups} groups. Put exactly one group "
                "around the number, as in 'loss=loss: ([0-9.]+)', or name one (?P<value>…)"
            )
    return value


def hosts(value: str) -> str:
    parse_hosts(value)
    return value


def modules(value: str) -> str:
    if value not in ("auto", "none") and not all(
        re.fullmatch(r"\s*[^\W\d]\w*(\.[^\W\d]\w*)*\s*", part) for part in value.split(",")
    ):
        raise ValueError(f"needs auto, none or names of modules such as model,data, got {shown(value)}")
    return value


def texts(value: object) -> object:
    if not isinstance(value, dict):
        return value
    found = {}
    for name, one in value.items():
        try:
            found[name] = as_text(one)
        except ValueError as error:
            raise ValueError(f"{shown(name)} {error}") from None
    return found


def space(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(f"needs NAME=RANGE with the name of a variable, got the name {shown(name)}")
        try:
            read_dimension(text)
        except ValueError as error:
            raise ValueError(f"{shown(f'{name}={text}')}: {error}") from None
    return {name_in_code(name): text for name, text in value.items()}


def checked(read: Callable[[str], object]) -> AfterValidator:
    """Return the check that `read` accepts a value, which stays as it is."""
    return AfterValidator(lambda value: (read(value), value)[1])


def sizes(value: object) -> str:
    return ",".join(map(str, read_sizes(value)))


def stopping(value: object) -> object:
    """True and False are good for Python."""
    if isinstance(value, bool):
        return ALONE if value else None
    if isinstance(value, str) and value != ALONE:
        read_policy(value)
    return value


def tags(value: object) -> str:
    return ",".join(read_tags(value if isinstance(value, str | list | tuple) else str(value)))


def hints(value: str) -> str:
    for name in value.split(","):
        if name.strip() not in NAMES:
            raise ValueError(f"needs names of hints: {', '.join(NAMES)}. Got {shown(name)}")
    return ",".join(name.strip() for name in value.split(","))


def session_name(value: str) -> str:
    if not place.is_name(value):
        raise ValueError(
            f"needs a name of letters, digits, dots, - and _, with at most 64 characters, got {shown(value)}"
        )
    return value


def ranks(value: object) -> str:
    """Return the ranks of `0,2-3` or a list of numbers as text: `0,2,3`."""
    found: set[int] = set()
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
        between = range(int(match[1]), int(match[2] or match[1]) + 1) if match else ()
        if not between:
            raise ValueError(f"needs ranks such as 0 or 0,2-3, got {shown(part)}")
        found.update(between)
    return ",".join(map(str, sorted(found)))

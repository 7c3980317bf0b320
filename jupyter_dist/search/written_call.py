"""A name with parameters, as people write a policy or a scheduler: `asha(max_t=100,grace_period=5)`.

An error message continues a sentence that begins with the flag's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

__all__ = ["read_call"]


def read_call(text: str, known: Mapping[str, Sequence[str]]) -> tuple[str, dict[str, str]] | None:
    """Return the name and the parameters' texts. `known`: the parameters of each name.

    None if the text does not begin with a known name. Raises ValueError for parameters that do not fit.
    """
    match = re.fullmatch(r"(\w+)\s*(?:\((.*)\))?", text.strip())
    if match is None or match[1] not in known:
        return None
    kind, found = match[1], dict[str, str]()
    for piece in filter(None, map(str.strip, (match[2] or "").split(","))):
        name, _, value = map(str.strip, piece.partition("="))
        if name not in known[kind]:
            raise ValueError(
                f"{kind} has no parameter {name!r:.80}. Its parameters are {', '.join(known[kind])}"
            )
        if name in found:
            raise ValueError(f"{kind} sets {name} twice. Write it once")
        found[name] = value
    return kind, found

"""Detection of secrets by their name or their text. A secret must not be written down without a request.

A run records the small values that its cell uses, and one of them may be a password. The functions recognise
a secret by:

- its name (`API_KEY`, `hf_token`),
- the key formats of well-known services,
- a URL with credentials in it,
- letters and digits that form no words.

A harmless value that is left out costs a column in a table. A secret that is written down costs more. So a
doubtful value counts as a secret.
"""

from __future__ import annotations

import math
import re
from collections import Counter

__all__ = ["has_form_of_a_key", "is_confidential", "named_like_a_secret", "reads_like_a_secret"]

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SURELY = re.compile(
    r"passw(or)?d|passphrase|pwd|secret|credential|api_?key|access_?key|private_?key|bearer|auth(?!or)|cookie"
    r"|conn(ection)?_?str|dsn|sas_?url|webhook",
    re.IGNORECASE,
)
_PERHAPS = {"token", "tokens", "key", "keys", "pass", "pin", "sas", "session", "signature", "salt", "license"}
_COUNTING = {
    *("max", "min", "num", "n", "nb", "count", "per", "dim", "dims", "size", "len", "length", "total"),
    *(
        "head",
        "heads",
        "value",
        "masked",
        "mask",
        "prob",
        "ratio",
        "rate",
        "drop",
        "dropout",
        "new",
        "id",
        "ids",
    ),
}
"""Words beside which `token` or `key` is something counted: max_tokens=512, num_keys=8, pad_token_id=0."""
_FORMS = re.compile(
    r"\b(?:sk|pk|rk)[-_][A-Za-z0-9]|\bgh[opsur]_\w|\bgithub_pat_|\bglpat-|\bhf_[A-Za-z0-9]{6}|\bnpm_[A-Za-z0-9]{8}"
    r"|\bA(?:KIA|SIA|ROA)[0-9A-Z]{8}|\bxox[a-z]-|\beyJ[A-Za-z0-9_-]{6}|\bAIza|\bdapi[0-9a-f]{8}|\bya29\.|\bpypi-A"
    r"|-----BEGIN|\b[Bb]earer\s+\S|AccountKey=|SharedAccess",
)
"""Beginnings of keys of well-known services.

https://docs.github.com/en/code-security/secret-scanning lists those of many services.
"""
_IN_A_URL = re.compile(
    r"://[^/\s@]+@|[?&;](?:sig|signature|token|key|password|secret|access_token|api_?key|x-amz-[\w-]+)=",
    re.IGNORECASE,
)
_RUN = re.compile(r"[A-Za-z0-9+/=_.~-]{16,}")
_PIECE = re.compile(r"[a-z]+|[A-Z][a-z]+|[A-Z]+(?![a-z])")
_VOWEL = re.compile(r"[aeiouyAEIOUY]")
_UNSPOKEN = re.compile(
    r"[^aeiouyAEIOUY]{4}|[aeiou]{4}|[jqxzvw][bcdfghjkmnpqstvwxz]|[bcdfghjkmpqtvwxz][jqxzvw]"
)
"""Letter sequences that are rare in words of European languages, and frequent in random letters."""
_MIN_ENTROPY = 2.8
_LONGEST_WORD = 15


def is_confidential(name: str, value: object) -> bool:
    """Return whether the value of that name should not be written down."""
    return named_like_a_secret(name, value) or (isinstance(value, str) and reads_like_a_secret(value))


def named_like_a_secret(name: str, value: object = "") -> bool:
    """Return whether the name is that of a secret. Numbers that count tokens or keys are not secrets."""
    if _SURELY.search(name):
        return True
    words = {word.lower() for word in _WORD.findall(name)}
    if not words & _PERHAPS:
        return False
    return not (isinstance(value, int | float) and (isinstance(value, bool) or words & _COUNTING))


def has_form_of_a_key(text: str) -> bool:
    """Return whether the text has a service's key format, or is a URL with credentials."""
    return bool(_FORMS.search(text) or _IN_A_URL.search(text))


def reads_like_a_secret(text: str) -> bool:
    """Return whether the text has a key format, is a URL with credentials, or looks random."""
    return has_form_of_a_key(text) or any(_looks_random(run) for run in _RUN.findall(text))


def _looks_random(run: str) -> bool:
    """Return whether few of the characters belong to words, and many of them differ."""
    wordy = sum(len(piece) for piece in _PIECE.findall(run) if _is_word(piece))
    letters = sum(map(str.isalnum, run))
    if not letters or wordy / letters >= 0.4:
        return False
    counts = Counter(run).values()
    return -sum(n / len(run) * math.log2(n / len(run)) for n in counts) >= _MIN_ENTROPY


def _is_word(piece: str) -> bool:
    vowels = len(_VOWEL.findall(piece))
    return (
        4 <= len(piece) <= _LONGEST_WORD and 0.2 <= vowels / len(piece) <= 0.7 and not _UNSPOKEN.search(piece)
    )

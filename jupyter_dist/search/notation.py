"""Parser of a dimension as people write it: `loguniform(1e-5,1e-1)`, `choice(32,64)`, `int(1,8)`.

The names are those of the libraries that users know, with the meaning that they have there:

- Ray Tune: uniform, quniform, loguniform, randint and lograndint (the upper end left out), qrandint (the
  upper end included), choice: https://docs.ray.io/en/latest/tune/api/search_space.html
- Optuna: float and int with log=True or step=…, both ends included; categorical:
  https://optuna.readthedocs.io/en/stable/reference/generated/optuna.trial.Trial.html
- SageMaker: continuous, integer and categorical, with or without `Parameter` behind, and scaling_type=:
  https://docs.aws.amazon.com/sagemaker/latest/dg/automatic-model-tuning-define-ranges.html

An error message continues a sentence that begins with the given text: "'lr=unifrom(0,1)': there is no …".
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .dimensions import Choice, Dimension, Real, Scaling, Value, Whole

__all__ = ["as_text", "read_dimension"]

_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\((.*)\)\s*", re.DOTALL)
_KEYWORD = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)\s*(.*)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][\w./:@+-]*")
_PIECE = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^,'"]+|,|['"]""", re.DOTALL)
_NO_WORDS = {"true": "True", "false": "False", "none": "None", "null": "None"}
_NOT_FINITE = re.compile(r"[+-]?(inf|infinity|nan)", re.IGNORECASE)
_MOST_CHOICES = 10_000
_SCALINGS: Mapping[str, Scaling] = {
    "linear": "",
    "logarithmic": "",
    "reverselogarithmic": "ReverseLogarithmic",
    "auto": "Auto",
}
_OF_RANGES = ("log", "scaling", "scaling_type", "step")


def as_text(given: object) -> object:
    """Convert a dimension given in Python to the notation of a flag.

    A list becomes a choice. So does a tuple, a `range`, or an array of one dimension. Raises ValueError.
    """
    shape = getattr(given, "shape", None)
    if isinstance(shape, tuple) and hasattr(given, "tolist"):
        if len(shape) != 1:
            raise ValueError(f"needs an array of one dimension, got {len(shape)}. Write array.ravel()")
        given = given.tolist()
    if isinstance(given, range):
        if len(given) > _MOST_CHOICES:
            raise ValueError(
                f"has {len(given):,} values, but at most {_MOST_CHOICES:,} are possible. Write "
                f"'int({min(given[0], given[-1])},{max(given[0], given[-1])})'"
            )
        given = list(given)
    if isinstance(given, list | tuple):
        return f"choice({','.join(repr(_plain(one)) for one in given)})"
    return given


def _plain(value: Any) -> object:
    """Return Python's number for one of NumPy, whose repr is `np.float64(0.1)`."""
    return value.item() if getattr(value, "shape", None) == () else value


def read_dimension(text: str) -> Dimension:
    """Parse a dimension. Raises ValueError, whose message contains what to write instead."""
    call = _CALL.fullmatch(text)
    if call is None:
        if "," in text:
            raise ValueError(f"write a list of values as choice({text.strip().strip('[]()')})")
        raise ValueError("needs a range such as loguniform(1e-5,1e-1), int(1,8) or choice(32,64)")
    name, arguments = call[1].lower(), call[2]
    make = _FORMS.get(name)
    if make is None:
        near = difflib.get_close_matches(name, _FORMS, 1)
        cure = f"did you mean {near[0]}?" if near else f"valid ranges: {', '.join(sorted(_FORMS))}"
        raise ValueError(f"unknown range {call[1]!r}; {cure}")
    positional, keywords = _arguments(arguments)
    return make(name, positional, keywords)


def _arguments(text: str) -> tuple[list[str], dict[str, str]]:
    pieces: list[str] = [""]
    for piece in _PIECE.findall(text):
        if piece == ",":
            pieces.append("")
        else:
            pieces[-1] += piece
    if not pieces[-1].strip():
        pieces.pop()  # a trailing comma is valid, as in Python
    if any(not piece.strip() for piece in pieces):
        raise ValueError("a value is missing between two commas")
    positional: list[str] = []
    keywords: dict[str, str] = {}
    for piece in pieces:
        keyword = _KEYWORD.fullmatch(piece)
        if keyword is None:
            positional.append(piece.strip())
        else:
            keywords[keyword[1].lower()] = keyword[2].strip()
    return positional, keywords


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"needs a number in place of {text!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"needs a finite number in place of {text!r}")
    return value


def _whole(text: str) -> int:
    value = _number(text)
    if value != int(value):
        raise ValueError(f"needs a whole number in place of {text!r}. Use float(low,high) for other numbers")
    return int(value)


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise ValueError(f"log must be True or False, not {text!r}")
    return text.lower() in ("true", "1")


def _scaling(keywords: Mapping[str, str], default: str = "Linear") -> tuple[bool, Scaling]:
    """Return whether the range is logarithmic, and a scaling that only SageMaker knows."""
    given = (keywords.get("scaling") or keywords.get("scaling_type") or default).strip("'\"").lower()
    if given not in _SCALINGS:
        raise ValueError(f"scaling must be Linear, Logarithmic, ReverseLogarithmic, Auto, not {given!r}")
    log = given == "logarithmic" or _switch(keywords.get("log", "False"))
    return log, "" if log or "step" in keywords else _SCALINGS[given]


def _ends(
    name: str,
    positional: Sequence[str],
    keywords: Mapping[str, str],
    read: Callable[[str], Any],
    known: Sequence[str] = (),
    third: bool = False,
) -> list[Any]:
    """Return the numbers in the brackets: two, or three if the third is the step."""
    unknown = sorted(keywords.keys() - set(known))
    if unknown:
        cure = f"Its parameters are {', '.join(known)}" if known else f"Write {name}(low,high)"
        raise ValueError(f"{name} has no parameter {unknown[0]!r}. {cure}")
    wanted = f"{name}(low,high,step)" if third else f"{name}(low,high)"
    if len(positional) != 2 + third:
        raise ValueError(f"needs {2 + third} numbers, got {len(positional)}. Write {wanted}")
    found = [read(text) for text in positional]
    if found[0] >= found[1]:
        raise ValueError(f"the lower end must be smaller than the upper end. Write {wanted}")
    return found


def _real(low: float, high: float, log: bool, step: float | None = None) -> Real:
    if log and step is not None:
        raise ValueError("accepts log or step, but not both")
    if log and low <= 0:
        raise ValueError(f"a logarithmic range must begin above 0, not at {low:g}")
    if step is not None:
        if not 0 < step <= high - low or math.isinf((high - low) / step):
            raise ValueError(f"the step must be above 0 and fit between {low:g} and {high:g}, got {step:g}")
        high = Real(low, high, step=step).point(math.floor((high - low) / step + 1e-9))
    return Real(low, high, log, step)


def _integer(low: int, high: int, log: bool, step: int = 1) -> Whole:
    if log and step != 1:
        raise ValueError("accepts log or step, but not both")
    if log and low < 1:
        raise ValueError(f"a logarithmic range of whole numbers must begin at 1 or above, not at {low}")
    if not 1 <= step <= max(1, high - low):
        raise ValueError(f"the step must be a whole number that fits between {low} and {high}, got {step}")
    return Whole(low, low + (high - low) // step * step, log, step)


def _floats(name: str, positional: Sequence[str], keywords: Mapping[str, str]) -> Dimension:
    if name in ("uniform", "loguniform"):
        low, high = _ends(name, positional, keywords, _number)
        return _real(low, high, name == "loguniform")
    if name == "quniform":
        low, high, step = _ends(name, positional, keywords, _number, third=True)
        return _real(low, high, False, step)
    low, high = _ends(name, positional, keywords, _number, _OF_RANGES)
    log, scaling = _scaling(keywords, "Auto" if name.startswith("continuous") else "Linear")
    if scaling == "ReverseLogarithmic" and not 0 <= low < high < 1:
        raise ValueError("a ReverseLogarithmic range must lie between 0 and 1, without the 1")
    found = _real(low, high, log, _number(keywords["step"]) if "step" in keywords else None)
    return dataclasses.replace(found, scaling=scaling)


def _integers(name: str, positional: Sequence[str], keywords: Mapping[str, str]) -> Dimension:
    if name == "qrandint":
        low, high, step = _ends(name, positional, keywords, _whole, third=True)
        return _integer(low, high, False, step)
    if name in ("randint", "lograndint"):  # as in Ray Tune and numpy, the upper end is excluded
        low, high = _ends(name, positional, keywords, _whole)
        return _integer(low, high - 1, name == "lograndint")
    low, high = _ends(name, positional, keywords, _whole, _OF_RANGES)
    log, scaling = _scaling(keywords, "Auto" if name.startswith("integer") else "Linear")
    if scaling == "ReverseLogarithmic":
        raise ValueError("ReverseLogarithmic needs continuous(low,high): whole numbers do not lie below 1")
    found = _integer(low, high, log, _whole(keywords.get("step", "1")))
    return dataclasses.replace(found, scaling=scaling)


def _choice(name: str, positional: Sequence[str], keywords: Mapping[str, str]) -> Dimension:
    if keywords:
        key, value = next(iter(keywords.items()))
        raise ValueError(f"a text with '=' needs quotes: {name}('{key}={value}')")
    if not positional:
        raise ValueError(f"needs values to choose from: {name}(32,64)")
    if len(positional) > _MOST_CHOICES:
        raise ValueError(f"has {len(positional):,} values, but at most {_MOST_CHOICES:,} are possible")
    values = tuple(_value(text) for text in positional)
    for at, one in enumerate(values):
        if Choice(values[:at]).holds(one):
            raise ValueError(f"lists {one!r} twice. Write each value once")
    return Choice(values)


def _value(text: str) -> Value:
    """Parse a number, True, False, None, a text in quotes, or a word that needs no quotes."""
    if text in _NO_WORDS:  # as a text, even "false" would be true
        raise ValueError(f"write {_NO_WORDS[text]}, or {text!r} if you mean the text")
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"needs a finite number in place of {text!r}. Put it in quotes if you mean the text")
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        if _WORD.fullmatch(text):
            return text
        raise ValueError(f"{text!r} is neither a number nor a word. Put a text in quotes") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"needs a finite number in place of {text!r}")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(
        f"{text!r} is a {type(value).__name__}, which cannot be a choice. Use a name for it "
        "as the choice, and look the name up in the cell"
    )


_FORMS: dict[str, Callable[[str, Sequence[str], Mapping[str, str]], Dimension]] = {
    **dict.fromkeys(
        ("uniform", "loguniform", "quniform", "float", "continuous", "continuousparameter"), _floats
    ),
    **dict.fromkeys(("int", "randint", "lograndint", "qrandint", "integer", "integerparameter"), _integers),
    **dict.fromkeys(("choice", "categorical", "categoricalparameter"), _choice),
}

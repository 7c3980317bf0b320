"""Command-line flags from pydantic models: one scanner for the magics and the terminal.

A field `gpus_per_worker` is the flag `--gpus-per-worker`. `json_schema_extra` can change this:

- `"flags": ["-np"]`: other names (`[]`: no flag).
- `"metavar"`, `"wanted"`: other words in the help and in errors.
- `"verbatim": True`: no notebook variables are inserted into the value.
- `"words": 2`: the value may be two words.

A validator's message continues after the flag's name: "needs …, got …". This module neither prints nor exits.
Its errors are InputError.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from .errors import InputError

__all__ = [
    "Flag",
    "Scanned",
    "build",
    "find_value",
    "flags_of",
    "named",
    "nearest",
    "problems_of",
    "scan",
    "shown",
    "split_line",
    "unknown_flag",
    "written",
]

M = TypeVar("M", bound=BaseModel)
Kind = Literal["switch", "value", "list", "pairs"]
_HELP = ("--help", "-h")


@dataclass(frozen=True)
class Flag:
    """One flag. Messages use `names[0]`."""

    field: str
    names: tuple[str, ...]
    kind: Kind
    wanted: str
    metavar: str
    help: str
    default: Any = None
    verbatim: bool = False
    words: int = 1
    alone: str | None = None
    """The value of a flag without a value. The next word is its value only if it matches `value_like`."""
    value_like: str = ""


@dataclass(frozen=True)
class Scanned:
    """A parsed command line. `values`: field name → text; `rest`: the words that are no flags."""

    values: Mapping[str, Any] = field(default_factory=dict)
    rest: tuple[str, ...] = ()
    help: bool = False


@cache
def flags_of(model: type[BaseModel]) -> tuple[Flag, ...]:
    """Return a model's flags, in the order of its fields. Their source is its JSON schema, as in forms."""
    schema = model.model_json_schema()
    found = (
        _flag(name, _resolve(about, schema), model) for name, about in schema.get("properties", {}).items()
    )
    return tuple(flag for flag in found if flag.names)


def _resolve(about: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    # An enum's schema is in $defs. Pydantic puts the field's own keys beside the reference.
    found = dict(about)
    if "$ref" in found:
        found = {**schema["$defs"][found.pop("$ref").rsplit("/", 1)[-1]], **found}
    if "anyOf" in found:
        found["anyOf"] = [_resolve(option, schema) for option in found["anyOf"]]
    return found


def _flag(name: str, about: Mapping[str, Any], model: type[BaseModel]) -> Flag:
    options = [o for o in about.get("anyOf", [about]) if o.get("type") != "null"]
    first = options[0] if options else {}
    kinds: dict[Any, Kind] = {"boolean": "switch", "array": "list", "object": "pairs"}
    kind = kinds.get(first.get("type"), "value")
    field_info = model.model_fields[name]
    return Flag(
        field=name,
        names=tuple(about.get("flags", ["--" + name.replace("_", "-")])),
        kind=kind,
        wanted=about.get("wanted") or _wanted({**about, **first}, kind),
        metavar=about.get("metavar") or _metavar(name, first, kind),
        help=about.get("description") or about.get("title", ""),
        default=None if field_info.is_required() else field_info.get_default(call_default_factory=True),
        verbatim=bool(about.get("verbatim")),
        words=int(about.get("words", 1)),
        alone=about.get("alone"),
        value_like=about.get("value_like", ""),
    )


def _wanted(about: Mapping[str, Any], kind: Kind) -> str:
    if "enum" in about:
        return "one of " + ", ".join(str(choice) for choice in about["enum"])
    if "const" in about:
        return str(about["const"])
    if kind == "switch":
        return "true or false"
    if kind == "pairs":
        return "NAME=VALUE"
    what = {"integer": "a whole number", "number": "a number"}.get(about.get("type", ""), "a value")
    low, high = about.get("minimum"), about.get("maximum")
    if low is not None and high is not None:
        return f"{what} from {low} to {high}"
    if low is not None:
        return f"{what} of at least {low}"
    if high is not None:
        return f"{what} of at most {high}"
    if about.get("exclusiveMinimum") is not None:
        return f"{what} above {about['exclusiveMinimum']:g}"
    return what


def _metavar(name: str, about: Mapping[str, Any], kind: Kind) -> str:
    if kind == "switch":
        return ""
    if kind == "pairs":
        return "NAME=VALUE"
    if "enum" in about:
        return "|".join(str(choice) for choice in about["enum"])
    return {"integer": "N", "number": "X"}.get(about.get("type", ""), name.upper())


def split_line(line: str) -> list[str]:
    """Split a magic's line into words, with quotes as in a shell. Raises InputError."""
    try:
        return shlex.split(line)
    except ValueError as error:
        what = "a quote is not closed" if "quotation" in str(error) else "it ends in a lone backslash"
        raise InputError(f"cannot read {shown(line.strip())}: {what}") from None


def shown(value: object) -> str:
    """Return a value's repr for a message, shortened to at most a line."""
    text = repr(value)
    return text if len(text) <= 80 else text[:60] + "…" + text[-15:]


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that begins with this word, else the most similar one; None without any."""
    names = list(known)
    longer = [name for name in names if name.startswith(word) and len(word.lstrip("-")) > 2]
    return min(longer, key=len, default=next(iter(difflib.get_close_matches(word, names, n=1)), None))


def _is_flag(token: str) -> bool:
    # "-1" and "-.5" are values, because no flag begins with a digit. So is a quoted "--bind-to core".
    return re.match(r"--?[A-Za-z][^\s=]*(=|$)", token) is not None


def _has_several_flags(token: str) -> bool:
    # A quoted "--nodes=2 --mpi=pmix" is the value of --mpi-args, although it also looks like one flag.
    return re.search(r"\s--?[A-Za-z]", token) is not None


def scan(
    tokens: Sequence[str],
    flags: Iterable[Flag],
    *,
    expand: Callable[[str], str] | None = None,
    unknown: Callable[[str], InputError] | None = None,
    first_word_ends: bool = False,
) -> Scanned:
    """Parse a command line. Raises InputError.

    `expand` converts values and words. `unknown` creates the error for an unknown flag.
    `first_word_ends`: leave everything after the first word that is no flag unchanged, in `rest`.
    """
    by_name = {name: flag for flag in flags for name in flag.names}
    values: dict[str, Any] = {}
    rest: list[str] = []
    wants_help = False
    left = list(tokens)
    while left:
        token = left.pop(0)
        if token == "--":
            rest += left
            break
        if not _is_flag(token):
            rest.append(expand(token) if expand else token)
            if first_word_ends:
                rest += left
                break
            continue
        name, equals, value = token.partition("=")
        if name in _HELP and name not in by_name:
            wants_help = True
            continue
        flag, on = _lookup(name, by_name)
        if flag is None:
            raise (unknown or (lambda name: unknown_flag(name, by_name)))(name)
        if flag.kind == "switch":
            if equals:
                raise InputError(f"{name} accepts no value, got {shown(value)}. Write {name} alone")
            values[flag.field] = on
            continue
        if not equals:
            taken = _take_value(left, flag)
            if taken is None:
                after = left[0] if left and left[0] not in (*by_name, "--") else None
                how = (
                    ""
                    if after is None
                    else f". Write a value that begins with a dash as {shown(f'{name}={after}')}"
                )
                raise InputError(f"{name} needs a value: {flag.wanted}{how}")
            value = taken
        if expand and not flag.verbatim:
            value = expand(value)
        _store(values, flag, name, value)
    return Scanned(values, tuple(rest), wants_help)


def _take_value(left: list[str], flag: Flag) -> str | None:
    """Take a flag's value from the words that follow it; None if it has none there."""
    if flag.alone is not None and not (left and re.fullmatch(flag.value_like, left[0])):
        return flag.alone
    if not left or left[0] == "--" or (_is_flag(left[0]) and not _has_several_flags(left[0])):
        return None
    value = left.pop(0)
    while len(re.split("[ ,]", value)) < flag.words and left and not _is_flag(left[0]):
        value = f"{value} {left.pop(0)}"
    return value


def written(flags: Iterable[Flag], values: Mapping[str, Any]) -> list[str]:
    """Return the words from which `scan` reads these values, in the order of the flags, without quotes."""
    words: list[str] = []
    for flag in flags:
        value, name = values.get(flag.field), flag.names[0]
        if value is None:
            continue
        if flag.kind == "switch":
            words.append(name if value is True else f"--no-{name.lstrip('-')}")
            continue
        if flag.alone is not None and value == flag.alone:
            words.append(name)
            continue
        if isinstance(value, Mapping):
            each = [f"{key}={_as_typed(one)}" for key, one in value.items()]
        else:
            each = [_as_typed(one) for one in (value if isinstance(value, list | tuple) else [value])]
        for text in each:
            words += [f"{name}={text}"] if _is_flag(text) or text == "--" else [name, text]
    return words


def _as_typed(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def named(name: str, flags: Iterable[Flag]) -> Flag | None:
    """Return the flag with this name; None without one."""
    return _lookup(name, {each: flag for flag in flags for each in flag.names})[0]


def _lookup(name: str, by_name: Mapping[str, Flag]) -> tuple[Flag | None, bool]:
    flag = by_name.get(name) or by_name.get(name.replace("_", "-"))  # torchrun's spelling
    if flag is not None:
        return flag, True
    if name.startswith("--no-"):
        flag = by_name.get("--" + name.removeprefix("--no-"))
        if flag is not None and flag.kind == "switch":
            return flag, False
    return None, False


def unknown_flag(name: str, known: Iterable[str]) -> InputError:
    """Return the error for an unknown flag, with the most similar known flag."""
    names = sorted({*known, "--help"}, key=str.lower)
    near = nearest(name, names)
    cure = f"did you mean {near}?" if near else f"valid flags: {', '.join(names)}"
    return InputError(f"unknown flag {shown(name)}; {cure}")


def _store(values: dict[str, Any], flag: Flag, name: str, value: str) -> None:
    if flag.kind == "list":
        values.setdefault(flag.field, []).append(value)
    elif flag.kind == "pairs":
        key, equals, rest = value.partition("=")
        if not equals or not key:
            # The value may be a secret without its name, so the message only repeats a plain word.
            got = shown(value) if re.fullmatch(r"\w{1,30}", value) else "something else"
            raise InputError(f"{name} needs {flag.wanted}, got {got}")
        if values.setdefault(flag.field, {}).setdefault(key, rest) != rest:
            raise InputError(f"{name} sets {key} twice. Write it once")
    elif flag.field in values:
        raise InputError(f"{flag.names[0]} appears twice. Write it once")
    else:
        values[flag.field] = value


def find_value(
    tokens: Sequence[str], name: str, known: Callable[[str], Flag | None], *, first_word_ends: bool = False
) -> str | None:
    """Return the value of one flag, before the other flags are known; None if it is not there.

    `known`: returns the flag with a name, if it is known. `first_word_ends`: see `scan`.
    """
    left = list(tokens)
    while left:
        token, equals, value = left.pop(0).partition("=")
        if token == "--" or (first_word_ends and not _is_flag(token)):
            return None
        flag = None if equals else known(token)
        if flag is not None and flag.kind != "switch":
            value = _take_value(left, flag) or ""
        if token == name and (equals or value):
            return value
    return None


def build(
    model: type[M], values: Mapping[str, Any], spelled: Callable[[str], str], also: Iterable[str] = ()
) -> M:
    """Create the model. Raises InputError with one clear message.

    `spelled` converts a field's name to the user's spelling. `also`: further names that an unknown name may
    mean.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(_explain(model, first, spelled, also)) from None


def problems_of(model: type[BaseModel], values: Mapping[str, Any]) -> dict[str, str]:
    """Return field → error of these values, as a sentence to show beside the field.

    The key `""` has an error of several values together. It is found only if each value alone is valid.
    """
    try:
        model.model_validate(dict(values))
    except ValidationError as error:
        found: dict[str, str] = {}
        for one in error.errors(include_url=False):
            said = _explain(model, one, lambda field: "", ()).strip()
            found.setdefault(_field_of(one), said[:1].upper() + said[1:])
        return found
    return {}


def _field_of(found: ErrorDetails) -> str:
    return str(found["loc"][0]) if found["loc"] else ""


def _explain(
    model: type[BaseModel], first: ErrorDetails, spelled: Callable[[str], str], also: Iterable[str]
) -> str:
    about = {flag.field: flag for flag in flags_of(model)}
    name = _field_of(first)
    if first["type"] == "extra_forbidden":
        known = [*also, *about]
        near = nearest(name, known)
        return f"{name!r} is not an option here; " + (
            f"did you mean {near!r}?" if near else f"valid options: {', '.join(known)}"
        )
    if first["type"] == "missing":
        return f"{spelled(name)} is required"
    said = str(first["ctx"]["error"]) if first["type"] in ("value_error", "assertion_error") else None
    if not name:
        return said or first["msg"]
    if said is not None:
        return f"{spelled(name)} {said}"
    got = shown(first["input"])
    if first["type"] == "less_than_equal":
        return f"{spelled(name)} can be at most {first['ctx']['le']:g}, got {got}"
    wanted = about[name].wanted if name in about else "another value"
    return f"{spelled(name)} needs {wanted}, got {got}"

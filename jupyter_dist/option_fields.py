"""The fields of an options model: one call makes the flag, the form's field, the help and the conflicts."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

__all__ = ["SEVERAL", "check_conflicts", "flag", "matching"]

_LIMITS = ("ge", "gt", "le", "lt", "pattern", "max_length")


def flag(
    default: Any,
    title: str,
    help: str,
    *names: str,
    value: tuple[str, str] | None = None,
    excludes: Mapping[str, str] | Iterable[str] = (),
    needs: Iterable[str] = (),
    **more: Any,
) -> Any:
    """Return the field of one option.

    Args:
        default: The value without the flag. An empty dict is made anew for each model.
        title: The label in the form.
        help: The text of `--help` and of the form.
        names: The flag's names. Default: the field's name with dashes.
        value: Words for the value: its short name in `--help`, and what it must be, for errors.
        excludes: Fields that cannot be used together with this one. A mapping adds the reason.
        needs: Fields of which this one needs at least one.
        more: The limits of pydantic's `Field` (`ge`, `le`, …), and the words that `flags` describes.
    """
    extra = {name: value for name, value in more.items() if name not in _LIMITS}
    if value:
        extra["metavar"], extra["wanted"] = value
    if names:
        extra["flags"] = list(names)
    if excludes:
        extra["excludes"] = dict(excludes) if isinstance(excludes, Mapping) else dict.fromkeys(excludes, "")
    if needs:
        extra["needs"] = list(needs)
    made: dict[str, Any] = {"default_factory": dict} if default == {} else {"default": default}
    limits = {name: more[name] for name in _LIMITS if name in more}
    return Field(title=title, description=help, json_schema_extra=extra or None, **made, **limits)


SEVERAL = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
"""Accept one text in place of several."""


def matching(pattern: str | re.Pattern[str], wanted: str) -> AfterValidator:
    """Return the check that a text, or each of several texts, matches the whole pattern. None passes.

    `wanted` completes the error "needs …".
    """

    def check(value: Any) -> Any:
        for each in (value,) if isinstance(value, str) else value or ():
            if not re.fullmatch(pattern, each):
                raise ValueError(f"needs {wanted}, got {each!r:.100}")
        return value

    return AfterValidator(check)


def check_conflicts(options: BaseModel) -> None:
    """Raise ValueError if two options exclude each other, or if an option lacks another one that it needs."""
    for name, field in type(options).model_fields.items():
        extra = field.json_schema_extra
        if not isinstance(extra, dict) or not _is_used(options, name):
            continue
        excluded, needed = extra.get("excludes"), extra.get("needs")
        for other, reason in excluded.items() if isinstance(excluded, dict) else ():
            if _is_used(options, other):
                why = f"{reason}. " if reason else ""
                raise ValueError(
                    f"{_spelled(options, name)} cannot be combined with {_spelled(options, other)}. "
                    f"{why}Remove one of them"
                )
        if isinstance(needed, list) and not any(_is_used(options, str(other)) for other in needed):
            this, wanted = _spelled(options, name), " or ".join(_spelled(options, str(one)) for one in needed)
            raise ValueError(f"{this} works only with {wanted}. Remove {this}, or add {wanted}")


def _is_used(options: BaseModel, name: str) -> bool:
    value = getattr(options, name)
    return value is not False and value != _defaults(type(options))[name]


@functools.cache
def _defaults(kind: type[BaseModel]) -> dict[str, Any]:
    return {name: field.get_default(call_default_factory=True) for name, field in kind.model_fields.items()}


def _spelled(options: BaseModel, name: str) -> str:
    extra = type(options).model_fields[name].json_schema_extra
    names = extra.get("flags") if isinstance(extra, dict) else None
    return str(names[0]) if isinstance(names, list) and names else "--" + name.replace("_", "-")

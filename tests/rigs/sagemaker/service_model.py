"""Requests held to AWS's own model of the service, as botocore brings it."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["Refusal", "check"]


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def check(shape: Any, value: Any, path: str = "") -> None:
    """As the service does; botocore itself looks at types and required members only. Raises Refusal."""
    about = shape.metadata

    def refuse(why: str) -> None:
        told = f"1 validation error detected: Value '{value}' at '{path}' failed to satisfy constraint: {why}"
        raise Refusal(400, "ValidationException", told)

    if shape.type_name == "structure":
        for name in value:
            if name not in shape.members:
                refuse(f"{name} is not known")
            check(shape.members[name], value[name], f"{path}.{name}".strip("."))
    elif shape.type_name == "list":
        if not about.get("min", 0) <= len(value) <= about.get("max", 1000):
            refuse(f"{about.get('min', 0)} to {about.get('max')} members")
        for number, each in enumerate(value, 1):
            check(shape.member, each, f"{path}.{number}.member")
    elif shape.type_name == "map":
        if len(value) > about.get("max", 1000):
            refuse(f"at most {about['max']} members")
        for key, each in value.items():
            check(shape.key, key, f"{path}.key")
            check(shape.value, each, f"{path}.value")
    elif shape.type_name == "string":
        pattern = about.get("pattern", ".*")
        if "\\p{" not in pattern and not re.fullmatch(pattern, value, re.DOTALL):
            refuse(f"Member must satisfy regular expression pattern: {pattern}")
        if not about.get("min", 0) <= len(value) <= about.get("max", 10**6):
            refuse(f"{about.get('min', 0)} to {about.get('max')} characters")
        if shape.enum and value not in shape.enum:
            refuse(f"Member must satisfy enum value set: {shape.enum}")
    elif shape.type_name in ("integer", "long") and not (
        about.get("min", value) <= value <= about.get("max", value)
    ):
        refuse(f"from {about.get('min')} to {about.get('max')}")

"""The values of the options: what each may be, and the error for what it may not be.

An error continues a sentence that begins with the flag.
"""

from __future__ import annotations

import json
import re
from typing import Annotated

from pydantic import AfterValidator, Field

__all__ = ["S3", "EntryName", "ExactName", "Ids", "JobName", "Role", "Values"]

_ARN = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@/_-]+")


def _role(value: str | None) -> str | None:
    if value is not None and not _ARN.fullmatch(value):
        raise ValueError(
            "needs the ARN of a role such as arn:aws:iam::123456789012:role/Train, got "
            f"{value!r:.100}. `aws iam get-role --role-name NAME` shows it"
        )
    return value


def _s3(value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"s3://[^/,\s]+(/[^\0\n]*)?", value):
        raise ValueError(f"needs s3://BUCKET/PREFIX, got {value!r:.100}")
    return value


def _ids(value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"[0-9a-zA-Z-]{1,32}(,[0-9a-zA-Z-]{1,32})*", value):
        raise ValueError(f"needs ids with commas between, such as subnet-1,subnet-2, got {value!r:.100}")
    return value


def _job_name(value: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,29}", value):
        raise ValueError(f"needs up to 30 letters, digits and dashes between, got {value!r:.100}")
    return value


def _exact_name(value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", value):
        raise ValueError(f"needs up to 63 letters, digits and dashes between, got {value!r:.100}")
    return value


def _checked_values(given: dict[str, str]) -> dict[str, str]:
    for name, value in given.items():
        if len(json.dumps(value)) > 2500 or not 0 < len(name) <= 256:
            raise ValueError(f"{name!r:.80}: a name has at most 256 characters, and a value at most 2500")
    return given


S3 = Annotated[str | None, AfterValidator(_s3)]
EntryName = Annotated[str | None, Field(pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,119}$")]
Ids = Annotated[str | None, AfterValidator(_ids)]
Role = Annotated[str | None, AfterValidator(_role)]
JobName = Annotated[str, AfterValidator(_job_name)]
ExactName = Annotated[str | None, AfterValidator(_exact_name)]
Values = Annotated[dict[str, str], AfterValidator(_checked_values)]

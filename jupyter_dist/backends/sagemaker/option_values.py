"""The values of the options: what each may be, and the error for what it may not be.

An error continues a sentence that begins with the flag.
"""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import AfterValidator

from ...option_fields import matching

__all__ = ["S3", "EntryName", "ExactName", "Ids", "JobName", "Role", "Values"]


def _checked_values(given: dict[str, str]) -> dict[str, str]:
    for name, value in given.items():
        if len(json.dumps(value)) > 2500 or not 0 < len(name) <= 256:
            raise ValueError(f"{name!r:.80}: a name has at most 256 characters, and a value at most 2500")
    return given


def _dashed(most: int) -> AfterValidator:
    wanted = f"up to {most} letters, digits and dashes between"
    return matching(rf"[a-zA-Z0-9](-*[a-zA-Z0-9]){{0,{most - 1}}}", wanted)


S3 = Annotated[str | None, matching(r"s3://[^/,\s]+(/[^\0\n]*)?", "s3://BUCKET/PREFIX")]
EntryName = Annotated[str | None, _dashed(120)]
Ids = Annotated[
    str | None,
    matching(
        r"[0-9a-zA-Z-]{1,32}(,[0-9a-zA-Z-]{1,32})*", "ids with commas between, such as subnet-1,subnet-2"
    ),
]
Role = Annotated[
    str | None,
    matching(
        r"arn:aws[a-z-]*:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@/_-]+",
        "the ARN of a role such as arn:aws:iam::123456789012:role/Train (`aws iam get-role --role-name NAME` "
        "shows it)",
    ),
]
JobName = Annotated[str, _dashed(30)]
ExactName = Annotated[str | None, _dashed(63)]
Values = Annotated[dict[str, str], AfterValidator(_checked_values)]

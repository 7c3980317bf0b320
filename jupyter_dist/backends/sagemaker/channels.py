"""The inputs of a training job, converted from a flag's text to the service's format. Pure.

training=s3://bucket/prefix,mode=FastFile,distribution=ShardedByS3Key,content_type=text/csv
training=fsx://fs-0123456789abcdef0/mount/data,ro          efs:// likewise
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["channel", "check_channels", "needs_vpc"]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SYSTEM = re.compile(r"(efs|fsx)://(fs-[0-9a-f]{8,})(/[^,]*)?")
_SYSTEMS = {"efs": "EFS", "fsx": "FSxLustre"}
_ALLOWED = {
    "mode": ("File", "FastFile", "Pipe"),
    "distribution": ("FullyReplicated", "ShardedByS3Key"),
    "s3_data_type": ("S3Prefix", "ManifestFile", "AugmentedManifestFile"),
    "compression": ("None", "Gzip"),
    "record_wrapping": ("None", "RecordIO"),
    "content_type": None,
}
"""Settings that may follow the URL of an S3 input, with their values.

The names are those of the SDK's TrainingInput.
"""
_OF_CHANNEL = {
    "mode": "InputMode",
    "compression": "CompressionType",
    "record_wrapping": "RecordWrapperType",
    "content_type": "ContentType",
}


def channel(name: str, text: str) -> dict[str, Any]:
    """Return an entry of InputDataConfig. Raises ValueError, whose text continues after the flag's name.

    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_Channel.html
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"needs NAME=URL with a name of letters, digits, '.', '_' and '-', got {name!r:.80}")
    url, *parts = text.split(",")
    if url.startswith(("efs://", "fsx://")):
        return {"ChannelName": name, "DataSource": {"FileSystemDataSource": _file_system(name, url, parts)}}
    if not re.fullmatch(r"s3://[^/]+/?.*", url):
        raise ValueError(
            f"{name!r} needs s3://BUCKET/PREFIX, efs://fs-ID/PATH or fsx://fs-ID/PATH, got {url!r:.80}"
        )
    given = dict(_pair(name, part) for part in parts)
    found: dict[str, Any] = {
        "DataSource": {
            "S3DataSource": {
                "S3DataType": given.get("s3_data_type", "S3Prefix"),
                "S3Uri": url,
                "S3DataDistributionType": given.get("distribution", "FullyReplicated"),
            }
        },
        "ChannelName": name,
    }
    return found | {_OF_CHANNEL[key]: value for key, value in given.items() if key in _OF_CHANNEL}


def check_channels(given: Mapping[str, str]) -> dict[str, str]:
    """Return the value of --input unchanged. Raises ValueError."""
    for name, text in given.items():
        channel(name, text)
    if len(given) > 20:
        raise ValueError(f"accepts at most 20 inputs, got {len(given)}")
    return dict(given)


def needs_vpc(given: Mapping[str, str]) -> str | None:
    """Return the first input on a file system, which instances can mount only inside its VPC.

    None: no such input.
    """
    return next((name for name, text in given.items() if _SYSTEM.match(text)), None)


def _file_system(name: str, url: str, parts: list[str]) -> dict[str, str]:
    match = _SYSTEM.fullmatch(url)
    if match is None or not match[3]:
        raise ValueError(
            f"{name!r} needs a file system and a folder, such as "
            f"fsx://fs-0123456789abcdef0/mount/data, got {url!r:.80}"
        )
    if parts not in ([], ["ro"], ["rw"]):
        raise ValueError(f"{name!r}: a file system needs ro or rw as its option, got {','.join(parts)!r:.80}")
    return {
        "FileSystemId": match[2],
        "FileSystemType": _SYSTEMS[match[1]],
        "DirectoryPath": match[3],
        "FileSystemAccessMode": parts[0] if parts else "ro",
    }


def _pair(name: str, part: str) -> tuple[str, str]:
    key, equals, value = part.partition("=")
    if not equals or key not in _ALLOWED:
        raise ValueError(f"{name!r}: {part!r:.80} is none of {', '.join(f'{known}=…' for known in _ALLOWED)}")
    allowed = _ALLOWED[key]
    if allowed is not None and value not in allowed:
        raise ValueError(f"{name!r}: {key} is one of {', '.join(allowed)}, got {value!r:.80}")
    return key, value

"""The inputs of a training job as its containers find them: /opt/ml/input/data/NAME."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .instances import Instances

__all__ = ["NoData", "config", "lay_out"]

_DATA = "/opt/ml/input/data"
_PIPE = 'while [ -e "$0" ]; do n=$((${n:--1}+1)); mkfifo "$1_$n"; cat "$0"/* > "$1_$n"; done'
"""An epoch after the other, each in a pipe of its own, for as long as there is somebody who reads it.
https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-running-container.html"""


class NoData(Exception):
    """An input that is not there."""


def config(request: Mapping[str, Any]) -> dict[str, Any]:
    """inputdataconfig.json."""
    return {
        channel["ChannelName"]: {
            "TrainingInputMode": _mode(channel, request),
            "S3DistributionType": channel["DataSource"]
            .get("S3DataSource", {})
            .get("S3DataDistributionType", "FullyReplicated"),
            "RecordWrapperType": channel.get("RecordWrapperType", "None"),
        }
        for channel in request.get("InputDataConfig", [])
    }


def lay_out(
    request: Mapping[str, Any],
    instances: Instances,
    host: str,
    hosts: list[str],
    s3: Any,
    systems: Mapping[str, Mapping[str, bytes]],
) -> None:
    """Bring the inputs to a host. `systems`: the files of file systems, by their ids. Raises NoData."""
    for channel in request.get("InputDataConfig", []):
        place = f"{_DATA}/{channel['ChannelName']}"
        system = channel["DataSource"].get("FileSystemDataSource")
        if system is not None:
            files = _of_system(system, systems)
        else:
            files = _of_bucket(channel["DataSource"]["S3DataSource"], s3, hosts.index(host), len(hosts))
        pipe = _mode(channel, request) == "Pipe"
        folder = f"/var/pipe/{channel['ChannelName']}" if pipe else place
        instances.hosts.exec(host, ["sh", "-c", 'rm -rf "$0" && mkdir -p "$0"', folder])
        for name, data in files.items():
            instances.write(host, f"{folder}/{name}", data)
        if pipe:
            # Not one of the container's processes: it ends when the container's folder is gone.
            loop = f'setsid sh -c \'{_PIPE}\' "$0" "$1" < /dev/null > /dev/null 2>&1 &'
            instances.hosts.exec(host, ["sh", "-c", loop, folder, place])


def _mode(channel: Mapping[str, Any], request: Mapping[str, Any]) -> str:
    return str(channel.get("InputMode") or request["AlgorithmSpecification"]["TrainingInputMode"])


def _of_bucket(source: Mapping[str, Any], s3: Any, place: int, count: int) -> dict[str, bytes]:
    bucket, _, prefix = source["S3Uri"].removeprefix("s3://").partition("/")
    try:
        listed = s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    except s3.exceptions.NoSuchBucket:
        listed = []
    keys = sorted(each["Key"] for each in listed)
    if not keys:
        raise NoData(f"Data download failed:NoSuchKey: No objects found at {source['S3Uri']}")
    if source.get("S3DataDistributionType") == "ShardedByS3Key":
        keys = keys[place::count]
    return {
        key[len(prefix) :].lstrip("/") or os.path.basename(key): s3.get_object(Bucket=bucket, Key=key)[
            "Body"
        ].read()
        for key in keys
    }


def _of_system(source: Mapping[str, Any], systems: Mapping[str, Mapping[str, bytes]]) -> dict[str, bytes]:
    files = systems.get(source["FileSystemId"])
    folder = source["DirectoryPath"].strip("/") + "/"
    if files is None or not any(name.startswith(folder) for name in files):
        raise NoData(f"Failed to mount {source['FileSystemId']}:{source['DirectoryPath']}")
    return {name[len(folder) :]: data for name, data in files.items() if name.startswith(folder)}

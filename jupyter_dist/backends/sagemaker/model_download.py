"""The download of a training job's /opt/ml/model: SageMaker puts model.tar.gz into S3 at the job's end.

https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-output.html
"""

from __future__ import annotations

import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ...errors import DistError
from ..job_watch import NotThere
from .account import AwsAccount
from .jobs import look_at

__all__ = ["fetch_model"]

_UPLOAD_S = 120.0
"""Seconds to wait for a job that is still uploading its model."""


def fetch_model(account: AwsAccount, names: Sequence[str], into: Path) -> None:
    """Unpack the model of the first of these jobs that exists. Raises DistError.

    Nothing is written outside of `into`, whatever the archive contains.
    """
    for name in names:
        try:
            url = _url_of(account, name)
        except NotThere:
            continue
        _fetch(account, url, into)
        return
    raise DistError(f"the training job {' or '.join(names)} no longer exists in {account.region}")


def _url_of(account: AwsAccount, name: str) -> str:
    until = time.monotonic() + _UPLOAD_S
    while (seen := look_at(account, name)).status in ("InProgress", "Stopping"):
        if time.monotonic() > until:
            raise DistError(f"job {name} still {seen.waits_for}: ask again later, or see {seen.page}")
        time.sleep(1.0)
    if seen.model is None:
        raise DistError(f"{seen.ended}: it has left no model")
    return seen.model


def _fetch(account: AwsAccount, url: str, into: Path) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise DistError(
            "unpacking an archive safely needs Python 3.10.12, 3.11.4 or newer. Unpack it "
            f"yourself: aws s3 cp {url} . and tar -xzf model.tar.gz"
        )
    bucket, _, key = url.removeprefix("s3://").partition("/")
    with tempfile.TemporaryFile(dir=into.parent) as file:
        try:
            with account.asking(f"read {url}", "s3") as s3:
                s3.download_fileobj(bucket, key, file)
        except NotThere as error:
            raise DistError(
                f"there is no {url}: the job has written no model, or it was removed since"
            ) from error
        file.seek(0)
        try:
            with tarfile.open(fileobj=file, mode="r:gz") as archive:
                archive.extractall(into, filter=_private)
        except tarfile.TarError as error:
            raise DistError(f"{url} cannot be unpacked, and was not: {error}") from error


def _private(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
    """Filter a member as Python's filter `data` does.

    Only the user may read it, like all of a run's folder.
    """
    kept = tarfile.data_filter(member, path)
    return kept.replace(mode=0o700 if kept.isdir() else (kept.mode or 0) & 0o700 | 0o600, deep=False)

"""The store in S3 as hosts use it, with the answers of S3 for a bucket of another region."""

from __future__ import annotations

import email.message
import io
import urllib.error

import pytest

from jupyter_dist.agent.stores import s3_store
from jupyter_dist.agent.stores.s3_store import S3Store
from jupyter_dist.agent.stores.store import StoreError

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-west-1"}


def _refusal(status: int, code: str, header: str | None, more: str = "") -> urllib.error.HTTPError:
    headers = email.message.Message()
    if header is not None:
        headers["x-amz-bucket-region"] = header
    body = io.BytesIO(f"<Error><Code>{code}</Code>{more}</Error>".encode())
    return urllib.error.HTTPError("url", status, code, headers, body)


@pytest.mark.parametrize(
    ("status", "code", "header", "more"),
    [
        (301, "PermanentRedirect", "us-west-2", ""),
        (400, "AuthorizationHeaderMalformed", None, "<Region>us-west-2</Region>"),
    ],
)
def test_a_bucket_of_another_region_is_used_there(
    status: int, code: str, header: str | None, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """boto3 does so on this machine, so a host has to do it too."""
    asked: list[tuple[str, str]] = []

    def exchange(method: str, url: str, headers: dict[str, str], *_: object) -> bytes:
        asked.append((url, headers["authorization"].split("/")[2]))
        if "us-west-2" not in url:
            raise _refusal(status, code, header, more)
        return b"content"

    monkeypatch.setattr(s3_store, "exchange", exchange)
    store = S3Store("mail", "runs", CREDENTIALS)
    assert store.get("x") == b"content"
    assert store.get("y") == b"content"
    assert asked == [
        ("https://s3.eu-west-1.amazonaws.com/mail/runs/x", "eu-west-1"),
        ("https://s3.us-west-2.amazonaws.com/mail/runs/x", "us-west-2"),
        ("https://s3.us-west-2.amazonaws.com/mail/runs/y", "us-west-2"),
    ]


@pytest.mark.parametrize("header", [None, "eu-west-1", "evil.example.com/"])
def test_a_redirect_without_another_region_is_an_error(
    header: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exchange(*_: object) -> bytes:
        raise _refusal(301, "PermanentRedirect", header)

    monkeypatch.setattr(s3_store, "exchange", exchange)
    with pytest.raises(StoreError, match="answers 301 PermanentRedirect"):
        S3Store("mail", "runs", CREDENTIALS).get("x")

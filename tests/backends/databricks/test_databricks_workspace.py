"""Errors of databricks-sdk, in particular of a sign-in that has expired meanwhile."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jupyter_dist.backends.databricks.workspace import Workspace
from jupyter_dist.backends.job_watch import CredentialsExpired
from jupyter_dist.errors import DistError, Unreachable

pytestmark = pytest.mark.needs("databricks.sdk")


def _signed_in() -> Workspace:
    workspace = Workspace(None, "work")
    workspace._client = object()
    return workspace


@pytest.mark.parametrize(
    ("kind", "told", "error", "said"),
    [
        (
            "application/json",
            {"error": "invalid_client", "error_description": "Expired secret"},
            CredentialsExpired,
            r"cannot look: no token is issued: invalid_client: Expired secret.*auth login --profile work",
        ),
        ("text/html", {}, Unreachable, "the workspace does not look at the moment"),
    ],
    ids=["secret", "503"],
)
def test_a_token_that_is_not_issued_is_told_as_a_trouble(
    kind: str, told: dict[str, str], error: type[DistError], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the client library's own function, which raises no error of its kind."""
    from databricks.sdk import oauth

    answer = SimpleNamespace(ok=False, headers={"Content-Type": kind}, json=lambda: told, content=b"<html>")
    monkeypatch.setattr(oauth.requests, "post", lambda *_, **__: answer)
    with pytest.raises(error, match=said), _signed_in().asking("look"):
        oauth.retrieve_token("id", "secret", "https://example.com/token", {})


@pytest.mark.parametrize(
    ("printed", "error"),
    [
        (
            "A new access token could not be retrieved because the refresh token is invalid. To "
            "reauthenticate, run the following command:\n  $ databricks auth login --profile work",
            CredentialsExpired,
        ),
        ("dial tcp: lookup adb-1.2.azuredatabricks.net: no such host", Unreachable),
    ],
    ids=["signed out", "no network"],
)
def test_a_sign_in_of_the_command_line_that_has_expired(printed: str, error: type[DistError]) -> None:
    from databricks.sdk.credentials_provider import CliTokenSource

    source = CliTokenSource(["sh", "-c", f"echo '{printed}' >&2; exit 1"], "type", "token", "expiry")
    with pytest.raises(error, match="cannot get access token"), _signed_in().asking("look"):
        source.refresh()

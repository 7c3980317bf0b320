"""The credentials of a role, which a platform gives out for a while; botocore's are found in the same way."""

from __future__ import annotations

import datetime
import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.agent.stores.aws_credentials import Credentials, endpoint_of
from jupyter_dist.agent.stores.s3_store import S3Store
from jupyter_dist.agent.stores.store import DeniedError, StoreError

ROLE = "arn:aws:iam::123456789012:role/trainer"
TOLD = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{AccessKeyId}</AccessKeyId>
<SecretAccessKey>{SecretAccessKey}</SecretAccessKey><SessionToken>{Token}</SessionToken>
<Expiration>{Expiration}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""
REFUSED = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>
<Code>{}</Code><Message>Not authorized to perform it</Message></Error></ErrorResponse>"""


class Platform:
    """STS, a container's platform at /role and an EC2 machine's at /latest. Each gives out another key each
    time, good for `good_s`, or refuses with `refuses`."""

    def __init__(self) -> None:
        self.good_s, self.asked, self.refuses = 3600.0, 0, ""
        self.tokens: list[str | None] = []
        platform = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                given = self.headers.get("x-aws-ec2-metadata-token")
                if self.path == "/role":
                    platform.tokens.append(self.headers.get("authorization"))
                    self._answer(200, json.dumps(platform.key()))
                elif given != "for-this-machine":
                    self._answer(401 if self.path.startswith("/latest") else 404, "none")
                elif self.path.endswith("/security-credentials/"):
                    self._answer(200, "of-the-node")
                else:
                    assert self.path.endswith("/security-credentials/of-the-node")
                    self._answer(200, json.dumps({"Code": "Success", **platform.key()}))

            def do_PUT(self) -> None:
                assert self.headers["x-aws-ec2-metadata-token-ttl-seconds"]
                found = self.path == "/latest/api/token"
                self._answer(200 if found else 404, "for-this-machine")

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                asked = dict(urllib.parse.parse_qsl(self.rfile.read(length).decode()))
                assert asked["Action"] == "AssumeRoleWithWebIdentity"
                assert asked["RoleArn"] == ROLE
                assert asked["RoleSessionName"]
                platform.tokens.append(asked["WebIdentityToken"])
                if platform.refuses:
                    self._answer(403, REFUSED.format(platform.refuses))
                else:
                    self._answer(200, TOLD.format(**platform.key()))

            def _answer(self, code: int, body: str) -> None:
                self.send_response(code)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def key(self) -> dict[str, str]:
        self.asked += 1
        until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=self.good_s)
        return {
            "AccessKeyId": f"key-{self.asked}",
            "SecretAccessKey": "secret",
            "Token": "session",
            "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def environ(self, kind: str, token: Path) -> dict[str, str]:
        """What a host's environment has of it."""
        token.write_text("of-file")
        return {
            "service account": {
                "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
                "AWS_ROLE_ARN": ROLE,
                "AWS_ENDPOINT_URL_STS": self.url,
                "AWS_REGION": "eu-west-1",
            },
            "container": {
                "AWS_CONTAINER_CREDENTIALS_FULL_URI": self.url + "/role",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token),
            },
            "machine": {"AWS_EC2_METADATA_SERVICE_ENDPOINT": self.url + "/"},
        }[kind]


@pytest.fixture
def platform() -> Iterator[Platform]:
    made = Platform()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(params=["service account", "container", "machine"])
def environ(request: pytest.FixtureRequest, platform: Platform, tmp_path: Path) -> dict[str, str]:
    return platform.environ(request.param, tmp_path / "token")


def test_they_are_asked_for_once_and_anew_before_they_expire(
    platform: Platform, environ: dict[str, str]
) -> None:
    held = Credentials(environ)
    first = held.get()
    assert first["AWS_ACCESS_KEY_ID"] == "key-1"
    assert first["AWS_SESSION_TOKEN"] == "session"
    assert held.get() is first
    assert set(platform.tokens) <= {"of-file"}
    platform.good_s = 60.0  # less than is left to chance
    held = Credentials(environ)
    assert held.get()["AWS_ACCESS_KEY_ID"] == "key-2"
    assert held.get()["AWS_ACCESS_KEY_ID"] == "key-3"


def test_botocore_finds_the_same(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = pytest.importorskip("botocore.session")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_EC2_METADATA_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    theirs = session.Session().get_credentials().get_frozen_credentials()
    assert theirs.access_key == "key-1"
    ours = Credentials(environ).get()
    assert ours["AWS_SECRET_ACCESS_KEY"] == theirs.secret_key
    assert ours["AWS_SESSION_TOKEN"] == theirs.token


def test_a_platform_that_is_away_costs_nothing_while_they_are_good(
    platform: Platform, environ: dict[str, str]
) -> None:
    platform.good_s = 60.0
    held = Credentials(environ)
    assert held.get()["AWS_ACCESS_KEY_ID"] == "key-1"
    for name, value in environ.items():
        environ[name] = value.replace(platform.url, "http://127.0.0.1:9")
    assert held.get()["AWS_ACCESS_KEY_ID"] == "key-1"
    if "AWS_EC2_METADATA_SERVICE_ENDPOINT" in environ:
        assert Credentials(environ).get() == {}, "it is no machine of EC2"
    else:
        with pytest.raises(StoreError, match="the role's credentials are not to be had"):
            Credentials(environ).get()


def test_a_role_that_is_not_for_this_account(platform: Platform, tmp_path: Path) -> None:
    environ = platform.environ("service account", tmp_path / "token")
    platform.refuses = "AccessDenied"
    with pytest.raises(DeniedError, match=f"may not assume the role {ROLE} .AccessDenied: Not auth.*OIDC"):
        Credentials(environ).get()
    platform.refuses = "IDPCommunicationError"
    with pytest.raises(StoreError, match=f"{ROLE} is not to be had: IDPCommunicationError") as raised:
        Credentials(environ).get()
    assert not isinstance(raised.value, DeniedError), "it may change by itself"
    platform.refuses = ""
    (tmp_path / "token").write_text("the next one")
    assert Credentials(environ).get()["AWS_ACCESS_KEY_ID"] == "key-1"
    assert platform.tokens[-1] == "the next one"


def test_the_environments_own_come_first_and_the_account_before_the_container(
    platform: Platform, tmp_path: Path
) -> None:
    kinds = ("service account", "container", "machine")
    every = {name: v for kind in kinds for name, v in platform.environ(kind, tmp_path / "token").items()}
    own = {"AWS_ACCESS_KEY_ID": "own", **every}
    assert Credentials(own).get() is own
    Credentials(every).get()
    assert platform.tokens == ["of-file"]
    del every["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
    Credentials(every).get()
    assert platform.tokens == ["of-file"] * 2, "by its token again"
    assert Credentials({"AWS_EC2_METADATA_DISABLED": "true"}).get() == {}, "none: requests are not signed"


def test_where_a_service_is_asked() -> None:
    assert endpoint_of("sts", {"AWS_REGION": "eu-west-1"}) == "https://sts.eu-west-1.amazonaws.com"
    assert endpoint_of("s3", {"AWS_DEFAULT_REGION": "cn-north-1"}) == "https://s3.cn-north-1.amazonaws.com.cn"
    environ = {"AWS_ENDPOINT_URL": "http://all:1/", "AWS_ENDPOINT_URL_S3": "http://s3:2"}
    assert endpoint_of("sts", environ) == "http://all:1"
    assert endpoint_of("s3", environ) == "http://s3:2"


@pytest.mark.parametrize(
    ("region", "partition"), [("eu-west-1", "aws"), ("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")]
)
def test_the_policy_that_a_host_lacks_is_of_its_partition(region: str, partition: str) -> None:
    """IAM accepts no ARNs of another one."""
    told = S3Store("mail", "runs", {"AWS_REGION": region})._denied("PUT", "runs/x")
    assert f"is not allowed s3:PutObject on arn:{partition}:s3:::mail/runs/x" in told
    (statement,) = (json.loads(part) for part in told.partition("Its policy needs: ")[2:])
    assert statement["Resource"] == [f"arn:{partition}:s3:::mail", f"arn:{partition}:s3:::mail/runs/*"]

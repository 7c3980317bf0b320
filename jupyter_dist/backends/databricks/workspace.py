"""A Databricks workspace and the user's credentials. Only databricks-sdk sees the credentials.

The credentials have the same sources as for all of Databricks' tools (unified authentication): a profile of
~/.databrickscfg, the sign-in of `databricks auth login`, the environment, or the cloud's own tools.
https://docs.databricks.com/aws/en/dev-tools/auth/unified-auth
"""

from __future__ import annotations

import configparser
import contextlib
import re
import shlex
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import DistError, InputError, LaunchError, Unreachable
from ..job_watch import CredentialsExpired, NotThere

__all__ = ["Workspace", "check_profile", "profiles"]

_ANSWER_S = 20
_RETRY_S = 5
"""Seconds for which databricks-sdk itself retries.

The callers here retry much longer, and the view shows the error to the user meanwhile.
"""
_SIGN_IN_AGAIN = re.compile(r"cannot get access token: .*(refresh token|auth login|az login)", re.DOTALL)
"""Errors of the command line tools that issue tokens, if only a new sign-in helps."""


class Workspace:
    """A workspace. For several threads.

    The first request signs in. After a rejection, the next request signs in again, because the user may have
    renewed the credentials.
    """

    def __init__(self, host: str | None, profile: str | None) -> None:
        self._host, self._profile = host, profile
        self._lock = threading.Lock()
        self._client: Any = None

    def client(self) -> Any:
        """Return the `databricks.sdk.WorkspaceClient`.

        Raises CredentialsExpired if there are no credentials.
        """
        with self._lock:
            if self._client is None:
                self._client = self._sign_in()
            return self._client

    @contextlib.contextmanager
    def asking(self, what: str) -> Iterator[Any]:
        """Yield the client. `what` completes the error text after `cannot`, such as `read the cluster 'c'`.

        Raises NotThere, CredentialsExpired, LaunchError for any other permanent error, and Unreachable.
        """
        try:
            yield self.client()
        except DistError:
            raise
        except OSError as error:  # all errors of databricks-sdk's requests are of this kind
            raise self._told(what, error) from error
        except ValueError as error:  # databricks-sdk has got no new token in place of an expired one
            raise self._without_token(what, error) from error

    def _sign_in(self) -> Any:
        from databricks.sdk import WorkspaceClient
        from databricks.sdk.core import Config

        named = {"host": self._host, "profile": self._profile}
        try:
            config = Config(
                **{name: value for name, value in named.items() if value is not None},
                http_timeout_seconds=_ANSWER_S,
                retry_timeout_seconds=_RETRY_S,
            )
            return WorkspaceClient(config=config)
        except ValueError as error:
            raise CredentialsExpired(
                f"no sign-in for the workspace: {_first(error)}. {self._cure()}"
            ) from error

    def _cure(self) -> str:
        login = ["databricks", "auth", "login"]
        login += [] if self._host is None else ["--host", self._host]
        login += [] if self._profile is None else ["--profile", self._profile]
        return (
            f"In a terminal: {shlex.join(login)}; or set DATABRICKS_HOST and DATABRICKS_TOKEN where "
            "JupyterLab is started, and never in a notebook"
        )

    def _without_token(self, what: str, error: Exception) -> DistError:
        """Return the error for a token that was not issued. The service's own failure is bytes, and passes.

        https://github.com/databricks/databricks-sdk-py/blob/main/databricks/sdk/oauth.py (retrieve_token)
        """
        if error.args and isinstance(error.args[0], bytes):
            return Unreachable(f"the workspace does not {what} at the moment: no token is issued")
        with self._lock:
            self._client = None
        return CredentialsExpired(f"cannot {what}: no token is issued: {_first(error)}. {self._cure()}")

    def _told(self, what: str, error: OSError) -> DistError:
        from databricks.sdk import errors

        if _SIGN_IN_AGAIN.search(str(error)):
            return self._without_token(what, error)
        said = _first(error)
        if isinstance(error, errors.Unauthenticated):
            with self._lock:
                self._client = None
            return CredentialsExpired(
                f"cannot {what}: the workspace knows no such user (401): {said}. {self._cure()}"
            )
        if isinstance(error, errors.PermissionDenied):
            with self._lock:
                self._client = None
            return LaunchError(f"cannot {what}: it is not allowed (403): {said}")
        if isinstance(error, errors.NotFound):
            return NotThere(f"cannot {what}: it is not there (404): {said}")
        passing = (errors.TooManyRequests, errors.InternalError, errors.TemporarilyUnavailable)
        if isinstance(error, errors.DatabricksError) and not isinstance(
            error, (*passing, errors.DeadlineExceeded, errors.Aborted)
        ):
            return LaunchError(
                f"cannot {what}: the workspace answers {error.error_code or 'an error'}: {said}"
            )
        return Unreachable(f"the workspace does not {what} at the moment: {type(error).__name__}: {said}")


def _first(error: Exception) -> str:
    """Return an error's text without the client's settings, which databricks-sdk appends."""
    text = str(error).partition(". Config: ")[0].partition(". Env: ")[0]
    return text.strip().split("\n")[0].rstrip(".")[:300] or type(error).__name__


def _config_file(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("DATABRICKS_CONFIG_FILE") or "~/.databrickscfg").expanduser()


def profiles(environ: Mapping[str, str]) -> list[str]:
    """Return the profiles with which the user can sign in. Raises InputError."""
    known = configparser.ConfigParser(interpolation=None)
    try:
        known.read(_config_file(environ), "utf-8")
    except (OSError, configparser.Error, UnicodeDecodeError) as error:
        why = str(error).splitlines()[0]
        raise InputError(f"{str(_config_file(environ))!r} cannot be read: {why}") from None
    return [*(["DEFAULT"] if known.defaults() else []), *sorted(known.sections())]


def check_profile(host: str | None, profile: str | None, environ: Mapping[str, str]) -> None:
    """Check that there are credentials to sign in with, without any request. Raises InputError."""
    path, wanted = _config_file(environ), profile or environ.get("DATABRICKS_CONFIG_PROFILE")
    known = profiles(environ)
    if wanted is not None and wanted not in known:
        there = f"it has: {', '.join(known)}" if known else "it has none"
        raise InputError(
            f"there is no profile {wanted!r} in {str(path)!r}; {there}. In a terminal: "
            f"databricks auth login --profile {shlex.quote(wanted)}"
        )
    if wanted is None and host is None and not environ.get("DATABRICKS_HOST") and "DEFAULT" not in known:
        raise InputError(
            "the backend 'databricks' needs a workspace: --profile NAME (one of `databricks auth profiles`), "
            "or --host https://….cloud.databricks.com"
        )

"""The options of every backend that reaches other hosts by ssh."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from ...errors import InputError, MissingEngine
from ...hosts import rsync as _rsync
from ...hosts.openssh import LOCAL, SshSettings
from ...text.format import parse_duration
from .._base import Options

__all__ = ["HostOptions", "LauncherHostOptions", "Line", "check_hosts"]


def _one_line(value: str | None) -> str | None:
    if value is not None and ("\n" in value or "\0" in value or not value.strip()):
        raise ValueError(f"needs one line of text, got {value!r}")
    return value


Line = Annotated[str | None, AfterValidator(_one_line)]


Grace = Annotated[float, BeforeValidator(parse_duration)]


def _grace(seconds: int) -> Any:
    return Field(
        default=float(seconds),
        ge=5,
        title="Grace",
        description="How long ranks go on while their host and this machine cannot reach each other, "
        f"before they are given up and end: 90, 90s, 10m. Default: {seconds}",
        json_schema_extra={"metavar": "TIME", "wanted": "a time of at least 5 seconds, such as 90s or 10m"},
    )


def _own_first(schema: dict[str, Any]) -> None:
    """In the help and the form, what a backend adds stands before how its hosts are reached."""
    fields = schema["properties"]
    own = {name: field for name, field in fields.items() if name not in HostOptions.model_fields}
    schema["properties"] = {**own, **fields}


class HostOptions(Options):
    """Which hosts, and how they are reached."""

    model_config = ConfigDict(json_schema_extra=_own_first)

    hosts: tuple[dict[str, Any], ...] = Field(default=(), title="Hosts", json_schema_extra={"flags": []})
    python: Line = Field(
        default=None,
        title="Python",
        description="The Python on the hosts, of the notebook's version. Default: the notebook's own path, "
        "where it is there too, else the one of that version on the host's PATH",
        json_schema_extra={"metavar": "PATH", "wanted": "the path of a Python"},
    )
    remote_dir: Line = Field(
        default="~/.cache/jupyter-dist/hosts",
        title="Remote folder",
        description="Where the run's files lie on the hosts while it runs. "
        "Default: ~/.cache/jupyter-dist/hosts",
        json_schema_extra={"metavar": "DIR", "wanted": "the path of a folder"},
    )
    rsync: tuple[str, ...] = Field(
        default=(),
        title="Files to copy",
        description="Copy this file or folder to every host with rsync; the ranks then start where it "
        "arrives. Repeatable, or several with commas",
        json_schema_extra={"metavar": "PATHS", "wanted": "the path of a file or folder"},
    )
    ssh_config: Line = Field(
        default=None,
        title="ssh configuration",
        description="A configuration file for ssh, in place of ~/.ssh/config",
        json_schema_extra={"metavar": "FILE", "wanted": "the path of a file"},
    )
    ssh_port: int | None = Field(
        default=None, ge=1, le=65535, title="ssh port", description="The port of the hosts' sshd"
    )
    grace: Grace = _grace(300)

    @property
    def rsync_paths(self) -> tuple[str, ...]:
        return tuple(path.strip() for part in self.rsync for path in part.split(",") if path.strip())

    def settings(self) -> SshSettings:
        return SshSettings(
            python=self.python,
            remote_dir=self.remote_dir or "~/.cache/jupyter-dist/hosts",
            config=self.ssh_config,
            port=self.ssh_port,
            grace_s=self.grace,
            rsync=self.rsync_paths,
        )


class LauncherHostOptions(HostOptions):
    """For a launcher on this machine, which nothing takes on again: its ranks are not kept waiting."""

    grace: Grace = _grace(60)


def check_hosts(asked: HostOptions, *, users: bool = True) -> None:
    """What can be told before anything is connected. Raises InputError, MissingEngine.

    `users`: whether a host may be named with one, as in me@node1.
    """
    for host in () if users else asked.hosts:
        user, at, name = str(host["name"]).rpartition("@")
        if at:
            raise InputError(
                f"the launcher does not take a user with a host: name {name}, and say `User {user}` for it "
                "in ~/.ssh/config (or in the file of --ssh-config)"
            )
    if any(host["name"] != LOCAL for host in asked.hosts) and shutil.which("ssh") is None:
        raise MissingEngine("other hosts need the OpenSSH client: apt-get install openssh-client")
    if asked.ssh_config is not None and not Path(asked.ssh_config).expanduser().is_file():
        raise InputError(f"--ssh-config: there is no file {asked.ssh_config!r}")
    _rsync.check(asked.rsync_paths)

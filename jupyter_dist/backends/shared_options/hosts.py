"""The options of every backend that connects to other hosts by ssh."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, Field

from ...cluster_form import Form
from ...errors import InputError, MissingEngine
from ...hosts import rsync as _rsync
from ...hosts.openssh import LOCAL, SshSettings
from ...option_fields import flag
from .agent import Duration, Line, OtherPythonOptions, grace_field

__all__ = ["HostOptions", "LauncherHostOptions", "check_hosts"]


def _own_first(schema: dict[str, Any]) -> None:
    """Sort a backend's own options before the options for hosts in the help and the form."""
    fields = schema["properties"]
    own = {name: field for name, field in fields.items() if name not in HostOptions.model_fields}
    schema["properties"] = {**own, **fields}


class HostOptions(OtherPythonOptions):
    """The hosts, and how to connect to them."""

    model_config = ConfigDict(json_schema_extra=_own_first)

    form: ClassVar[Form] = Form(
        sections={
            "Hosts": "hostfile python other_python rsync ssh_config ssh_port",
        },
    )

    hosts: tuple[dict[str, Any], ...] = Field(default=(), title="Hosts", json_schema_extra={"flags": []})
    python: Line = flag(
        None,
        "Python",
        "The Python on the hosts. It must have the notebook's version, unless --other-python is "
        "given. Default: the notebook's own path if it exists there, else the Python of that version on the "
        "host's PATH",
        value=("PATH", "the path of a Python"),
    )
    rsync: tuple[str, ...] = flag(
        (),
        "Files to copy",
        "Copy this file or folder to every host with rsync. The ranks then start in the "
        "copy. Repeatable, or several paths with commas",
        value=("PATHS", "the path of a file or folder"),
    )
    ssh_config: Line = flag(
        None,
        "ssh configuration",
        "A configuration file for ssh instead of ~/.ssh/config",
        value=("FILE", "the path of a file"),
    )
    ssh_port: int | None = flag(None, "ssh port", "The port of the hosts' sshd", ge=1, le=65535)

    @property
    def rsync_paths(self) -> tuple[str, ...]:
        return tuple(path.strip() for part in self.rsync for path in part.split(",") if path.strip())

    def settings(self) -> SshSettings:
        return SshSettings(
            python=self.python,
            remote_dir=self.remote_dir or SshSettings.remote_dir,
            config=self.ssh_config,
            port=self.ssh_port,
            grace_s=self.grace,
            rsync=self.rsync_paths,
            other_python=self.other_python,
        )


class LauncherHostOptions(HostOptions):
    """Options of a launcher on this machine. Nothing reconnects to its ranks, so they do not wait."""

    grace: Duration = grace_field(60)


def check_hosts(asked: HostOptions, *, users: bool = True) -> None:
    """Check the hosts without any connection. Raises InputError, MissingEngine.

    `users`: whether a host's name may contain a user, as in me@node1, or be an address of IPv6.
    """
    for host in () if users else asked.hosts:
        user, at, name = str(host["name"]).rpartition("@")
        if name.startswith("["):
            raise InputError(
                f"The launcher accepts no IPv6 address as a host, as in {name}. Add a `Host` with `HostName "
                f"{name.strip('[]')}` to ~/.ssh/config (or to the file of --ssh-config), and write its name"
            )
        if at:
            raise InputError(
                f"The launcher accepts no user name in a host, as in {host['name']}. Write only "
                f"{name}, and add `User {user}` for it to ~/.ssh/config (or to the file of "
                "--ssh-config)"
            )
    if any(host["name"] != LOCAL for host in asked.hosts) and shutil.which("ssh") is None:
        raise MissingEngine("other hosts need the OpenSSH client: apt-get install openssh-client")
    if asked.ssh_config is not None and not Path(asked.ssh_config).expanduser().is_file():
        raise InputError(f"--ssh-config: there is no file {asked.ssh_config!r}")
    _rsync.check(asked.rsync_paths)

"""Causes of failed ssh connections, and their cures.

ssh's own error often names the cause. For a key or a refused login, two further runs of ssh find the cure:
`ssh -G` resolves the host's name, and `ssh -v` reports each step of a login. They run meanwhile: a
supervisor asks for what they have found, and never waits.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable
from typing import IO, ClassVar

from ..worker.host.os_errors import reason
from . import child_processes
from .openssh import CONNECT_TIMEOUT_S, SshSettings, bare, connection_refused, options

__all__ = ["SshDiagnosis", "diagnose"]

_LIMIT_S = 2.0 * CONNECT_TIMEOUT_S
_MOST_AT_ONCE = 32
"""Diagnoses that may run ssh at the same time, so that a thousand refused logins do not fill this machine."""
_APART_S = 0.02
"""Time between the starts of two diagnoses: a turn of the supervisor starts few processes."""
_MOST_BYTES = 1 << 20


class SshDiagnosis:
    """Why ssh could not connect to a host. `text` is complete from the start, and may become more exact."""

    _running: ClassVar[set[SshDiagnosis]] = set()
    _next_start: ClassVar[float] = 0.0

    def __init__(self, text: str, more: _More | None = None) -> None:
        self.text, self._more = text, more
        self.first = text
        """The text before the search."""

    def look(self) -> bool:
        """Advance the search. Returns whether `text` is final. Does not block."""
        if self._more is None:
            return True
        if self not in self._running:
            now = time.monotonic()
            if len(self._running) >= _MOST_AT_ONCE or now < self._next_start:
                return False
            self._running.add(self)
            self._more.start()
            SshDiagnosis._next_start = time.monotonic() + _APART_S
        if not self._more.is_done():
            return False
        self.text = self._more.text()
        self.close()
        return True

    def close(self) -> None:
        """End the search. Repeatable."""
        self._running.discard(self)
        if self._more is not None:
            self._more.close()
        self._more = None


def diagnose(host: str, settings: SshSettings, code: int | None, said: str, printed: str) -> SshDiagnosis:
    """Describe why ssh could not connect to a host, and the cure. Does not block.

    `code`: the client's exit code; None if the client did not end in time. `said`: its stderr.
    `printed`: the output of the login, without our answer.
    """
    lines = [line.strip() for line in said.replace("\r", "").split("\n") if line.strip()]
    last = lines[-1] if lines else ""
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in said:
        return _searched(host, settings, _changed_key)
    if "Host key verification failed" in said or re.search(r"No \S+ host key is known for", said):
        return _searched(host, settings, _unknown_key)
    if "Permission denied" in said or "Too many authentication failures" in said:
        return _searched(
            host, settings, lambda target: f"it refuses the login ({last}). {target.cure_of_login()}"
        )
    return SshDiagnosis(_plain(host, settings, code, said, printed, lines))


def _plain(
    host: str, settings: SshSettings, code: int | None, said: str, printed: str, lines: list[str]
) -> str:
    last = lines[-1] if lines else ""
    if "Could not resolve hostname" in said:
        return (
            "its name cannot be resolved: check the spelling, or give it a HostName in ~/.ssh/config "
            "(or in the file of --ssh-config)"
        )
    if "Connection refused" in said:
        return f"it refuses connections ({last}): is its sshd running, and on that port?"
    if re.search(r"timed out|No route to host|Network is unreachable|Host is down", said):
        return f"it cannot be reached ({last}): is it on, and in this network?"
    if re.search(r"Bad owner or permissions|Bad configuration option|terminating, .* bad config|"
                 r"Can't open user config file", said):  # fmt: skip
        return f"ssh does not accept its configuration ({'; '.join(lines[-2:])})"
    if connection_refused(said):
        return (
            f"it closes connections before the login ({last}): its sshd, or that of a machine on the way, "
            "takes fewer at once (MaxStartups), or none from this machine"
        )
    if code is None:
        return (
            f"it accepted the connection, but gave no sign within the time ({last or 'nothing was said'}): "
            f"does `ssh {_shown(host, settings)} true` return at once? A file that its login reads, such as "
            "~/.bashrc, may start another shell or wait for something"
        )
    if code == 255 and last:
        return f"ssh failed: {last}"
    shown = " ".join((printed + " " + said).split())[-300:]
    return (
        f"its login does not run /bin/sh (exit code {code}"
        + (f"; it said: {shown}" if shown else "")
        + "): the account needs an ordinary shell"
    )


def _searched(host: str, settings: SshSettings, told: Callable[[_Target], str]) -> SshDiagnosis:
    return SshDiagnosis(told(_Target(host, settings)), _More(host, settings, told))


def _unknown_key(target: _Target) -> str:
    fingerprint = target.fingerprint()
    return (
        "its host key is not known here, and unknown hosts are never accepted silently. "
        + (f"It offers {fingerprint}: compare that with the host's own, then: " if fingerprint else "")
        + target.keyscan()
    )


def _changed_key(target: _Target) -> str:
    fingerprint = target.fingerprint()
    return (
        "its host key is not the one that was known here: the host was set up anew, or somebody else "
        f"answers in its place. It offers {fingerprint or 'another key'}. Only if that is the host's own: "
        f"ssh-keygen -R {shlex.quote(target.known_as())} -f {shlex.quote(target.known_hosts)}, "
        f"then {target.keyscan()}"
    )


class _More:
    """The two runs of ssh for one host. `told`: makes the text of what they have printed."""

    def __init__(self, host: str, settings: SshSettings, told: Callable[[_Target], str]) -> None:
        self._host, self._settings, self._told = host, settings, told
        self._resolving, self._loud = _Output(), _Output()
        self._until = 0.0

    def start(self) -> None:
        name, own = bare(self._host), options(self._settings)
        self._until = time.monotonic() + _LIMIT_S
        self._resolving.start(["ssh", *own, "-G", "--", name], subprocess.PIPE, subprocess.DEVNULL)
        loud = ["ssh", "-v", *own[:-1], "LogLevel=DEBUG1", "--", name, "true"]
        self._loud.start(loud, subprocess.DEVNULL, subprocess.PIPE)

    def is_done(self) -> bool:
        ended = [output.read() for output in (self._resolving, self._loud)]
        return all(ended) or time.monotonic() > self._until

    def text(self) -> str:
        return self._told(_Target(self._host, self._settings, self._resolving.text, self._loud.text))

    def close(self) -> None:
        self._resolving.close()
        self._loud.close()


class _Output:
    """What a process writes to one of its streams. The object owns the process and the stream."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._data = b""

    @property
    def text(self) -> str:
        return self._data.decode(errors="replace")

    def start(self, argv: list[str], out: int, errors: int) -> None:
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            print(f"cannot run {argv[0]} to find out more: {reason(error)}", flush=True)
            return
        os.set_blocking(self._stream.fileno(), False)

    @property
    def _stream(self) -> IO[bytes]:
        assert self._process is not None
        stream = self._process.stdout or self._process.stderr
        assert stream is not None
        return stream

    def read(self) -> bool:
        """Read what has been written. Returns whether the process has ended. Does not block."""
        if self._process is None:
            return True
        ended = self._process.poll() is not None  # before the read, so that no output is lost
        try:
            while (data := os.read(self._stream.fileno(), 65536)) and len(self._data) < _MOST_BYTES:
                self._data += data
        except BlockingIOError:
            pass
        return ended

    def close(self) -> None:
        if self._process is not None:
            self._stream.close()
            child_processes.end(self._process)
            self._process = None


class _Target:
    """The address, port and files to which ssh resolves a host's name."""

    def __init__(
        self, host: str, settings: SshSettings, resolved: str = "", debug: str | None = None
    ) -> None:
        """`resolved`: the output of `ssh -G`. `debug`: that of `ssh -v`; None if it is not known yet."""
        self._host, self._settings, self._debug = bare(host), settings, debug
        told: dict[str, str] = {}
        for line in resolved.splitlines():
            name, _, value = line.partition(" ")
            told.setdefault(name, value)
        self.name = told.get("hostkeyalias") or told.get("hostname", self._host)
        self._address = told.get("hostname", self._host)
        self._port = told.get("port", "22")
        self.known_hosts = told.get("userknownhostsfile", "~/.ssh/known_hosts").split()[0]

    def fingerprint(self) -> str | None:
        """Return the host's key fingerprint, such as `ssh-ed25519 SHA256:…`; None if the host sends none."""
        match = re.search(r"Server host key: (\S+ \S+)", self._debug or "")
        return None if match is None else match[1]

    def cure_of_login(self) -> str:
        """Describe how to make the host accept a login that it has refused."""
        said = self._debug or ""
        open_ = re.search(r"Permissions (\d+) for '(.+)' are too open", said)
        if open_ is not None:
            return (
                f"Others may read the key {open_[2]!r}, so ssh does not use it: chmod 600 {_path(open_[2])}"
            )
        # The host accepts this key, but the login failed: ssh cannot read the key without its passphrase.
        accepted = re.search(r"Server accepts key: (.+) \S+ SHA256:\S+(?!.*agent$)", said, re.MULTILINE)
        if accepted is not None and "Authenticated to" not in said:
            return (
                f"It takes the key {accepted[1]!r}, which has a passphrase, and nothing is asked for: "
                f"ssh-add {_path(accepted[1])}, in the session that the notebook server runs in"
            )
        offered = re.findall(r"Offering public key: (.+) \S+ SHA256:", said)
        none = ", and no key was there to offer"
        tried = f", and it was offered {', '.join(map(repr, offered))}" if offered else none
        return (
            f"Passwords are never asked for{'' if self._debug is None else tried}: load your key with "
            "ssh-add or name it in ~/.ssh/config, and put it on the host with ssh-copy-id "
            + _shown(self._host, self._settings)
        )

    def known_as(self) -> str:
        return self.name if self._port == "22" else f"[{self.name}]:{self._port}"

    def keyscan(self) -> str:
        """Return the command that adds the host to the known hosts."""
        port = "" if self._port == "22" else f"-p {self._port} "
        return f"ssh-keyscan {port}{shlex.quote(self._address)} >> {_path(self.known_hosts)}"


def _path(path: str) -> str:
    return path if path.startswith("~/") and shlex.quote(path[2:]) == path[2:] else shlex.quote(path)


def _shown(host: str, settings: SshSettings) -> str:
    return (
        shlex.quote(bare(host))
        if settings.config is None
        else f"-F {shlex.quote(settings.config)} {bare(host)}"
    )

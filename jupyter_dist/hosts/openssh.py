"""The OpenSSH client: its command line to connect to hosts, and the causes of its failures."""

from __future__ import annotations

import base64
import functools
import re
import shlex
import shutil
import subprocess
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..agent import stage_program
from .settings import HostSettings

__all__ = [
    "CONNECT_TIMEOUT_S",
    "EATEN",
    "LOCAL",
    "SshSettings",
    "bare",
    "command",
    "connection_refused",
    "diagnose",
    "finding_python",
    "no_python",
    "opening",
    "options",
    "own_version",
    "pythons",
    "version",
]

CONNECT_TIMEOUT_S = 10
LOCAL = "localhost"
"""The name of this machine, which needs no ssh."""

# The script gets user data only through `read`, never as shell code. The login shell gets the script in
# single quotes, so it must not contain quotes, newlines, `!` or backslashes (csh, fish).
_SCRIPT = (
    "IFS= read -r word; IFS= read -r wanted; found=; others=; "
    'while IFS= read -r python && [ -n "$python" ]; do '
    'case "$python" in "~/"*) python="$HOME/${python#??}";; esac; '
    '[ -z "$found" ] || continue; '
    'has=$("$python" -c "import sys; print(sys.version_info[0], sys.version_info[1], sep=chr(46))" '
    "</dev/null 2>/dev/null); "
    'if [ "$has" = "$wanted" ]; then found=$python; '
    'elif [ -n "$has" ]; then others="$others, $python is $has"; fi; done; '
    'if [ -z "$found" ]; then echo "$word python $others"; exit 69; fi; '
    'exec "$found" -I -c '
    '"import sys,base64,zlib;exec(zlib.decompress(base64.b64decode(sys.stdin.buffer.raw.readline())))" '
    '"$word"'
)


@dataclass(frozen=True)
class SshSettings(HostSettings):
    """Settings for ssh connections, and paths on the hosts."""

    python: str | None = None
    """The Python on the hosts; None: the notebook's path, else another Python of the same version."""
    config: str | None = None
    """A file for `ssh -F`."""
    port: int | None = None
    identity: str | None = None
    """A file for `ssh -i`."""


def options(settings: SshSettings) -> list[str]:
    """Return options with which ssh never prompts, rejects unknown hosts and detects dead connections."""
    told = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "ConnectTimeout": CONNECT_TIMEOUT_S,
        "ServerAliveInterval": 5,
        "ServerAliveCountMax": 3,
        "ControlMaster": "no",
        "ClearAllForwardings": "yes",
        "PermitLocalCommand": "no",
        "RemoteCommand": "none",
        "LogLevel": "ERROR",
    }
    chosen = [word for name, value in told.items() for word in ("-o", f"{name}={value}")]
    files = {"-F": settings.config, "-i": settings.identity}
    named = [word for flag, file in files.items() if file for word in (flag, _absolute(file))]
    port = [] if settings.port is None else ["-p", str(settings.port)]
    return [*named, *port, *chosen]


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def command(host: str, settings: SshSettings) -> list[str]:
    """Return the command that connects to a host's agent. Its input must begin with `opening`."""
    if host == LOCAL:
        return ["/bin/sh", "-c", _SCRIPT]
    remote = f"exec /bin/sh -c {shlex.quote(_SCRIPT)}"
    return ["ssh", "-T", *options(settings), "--", bare(host), remote]


def finding_python() -> str:
    """Return the script for /bin/sh that reads `opening` and then runs the stage program."""
    return _SCRIPT


def bare(host: str) -> str:
    """Return a host name for ssh: an IPv6 address without its brackets."""
    return host.replace("[", "").replace("]", "")


def pythons(settings: SshSettings) -> tuple[str, ...]:
    """Return the Pythons to try on a host, in this order."""
    if settings.python is not None:
        return (settings.python,)
    own = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    # A login without a terminal may have a shorter PATH than one with a terminal.
    places = ("~/.local/bin", "/usr/local/bin", "/opt/conda/bin")
    return (sys.executable, own, "python3", "python", *(f"{place}/{own}" for place in places))


def own_version() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def opening(word: str, candidates: Sequence[str]) -> bytes:
    """Return the first lines for a host: the word that marks its answer, the Pythons to try, the program."""
    lines = [word, own_version(), *candidates, ""]
    return "\n".join(lines).encode() + b"\n" + _program() + b"\n"


@functools.cache
def _program() -> bytes:
    return base64.b64encode(zlib.compress(Path(stage_program.__file__).read_bytes(), 9))


def version() -> str | None:
    """Return the client's version; None if ssh is not installed."""
    if shutil.which("ssh") is None:
        return None
    try:
        done = subprocess.run(["ssh", "-V"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return (done.stderr or done.stdout).strip().split(",")[0] or None


EATEN = (
    "its login reads what is sent to the run: something in a file such as ~/.bashrc takes its input. "
    "Let that happen in interactive shells alone"
)


def connection_refused(said: str) -> bool:
    """Return whether an sshd has closed the connection before the login.

    By default an sshd does this at random if more than ten logins are pending. It may be the sshd of the host
    or of a jump host.
    """
    return re.search(r"(kex_exchange_identification|banner exchange): .*(closed|reset)", said) is not None


def diagnose(host: str, settings: SshSettings, code: int | None, said: str, printed: str) -> str:
    """Describe why ssh could not connect to a host, and the cure.

    `code`: the client's exit code; None if the client did not end in time. `said`: its stderr.
    `printed`: the output of the login, without our answer. Blocks: it may run ssh again, for a fingerprint.
    """
    lines = [line.strip() for line in said.replace("\r", "").split("\n") if line.strip()]
    last = lines[-1] if lines else ""
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in said:
        return _changed_key(host, settings)
    if "Host key verification failed" in said or re.search(r"No \S+ host key is known for", said):
        return _unknown_key(host, settings)
    if "Could not resolve hostname" in said:
        return (
            "its name cannot be resolved: check the spelling, or give it a HostName in ~/.ssh/config "
            "(or in the file of --ssh-config)"
        )
    if "Permission denied" in said or "Too many authentication failures" in said:
        return f"it refuses the login ({last}). " + _Target(host, settings).cure_of_login()
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


def no_python(settings: SshSettings, others: str) -> str:
    """Describe why no Python of a host fits. `others`: the Pythons found, as `, PATH is VERSION, …`."""
    own = own_version()
    found = others.strip(", ")
    named = "" if settings.python is None else f" at {settings.python!r}"
    if not found:
        return (
            f"it has no Python{named}: install Python {own}, which the notebook has "
            f"(`uv python install {own}` needs no root), or name it with --python"
        )
    return (
        f"it has no Python {own}{named} ({found}): what travels is pickled by the notebook's Python {own}, "
        "which only the same version reads. Name one with --python, or install one there: "
        f"`uv python install {own}` needs no root"
    )


def _unknown_key(host: str, settings: SshSettings) -> str:
    target = _Target(host, settings)
    fingerprint = target.fingerprint()
    return (
        "its host key is not known here, and unknown hosts are never accepted silently. "
        + (f"It offers {fingerprint}: compare that with the host's own, then: " if fingerprint else "")
        + target.keyscan()
    )


def _changed_key(host: str, settings: SshSettings) -> str:
    target = _Target(host, settings)
    fingerprint = target.fingerprint()
    return (
        "its host key is not the one that was known here: the host was set up anew, or somebody else "
        f"answers in its place. It offers {fingerprint or 'another key'}. Only if that is the host's own: "
        f"ssh-keygen -R {shlex.quote(target.known_as())} -f {shlex.quote(target.known_hosts)}, "
        f"then {target.keyscan()}"
    )


class _Target:
    """The address, port and files to which ssh resolves a host's name."""

    def __init__(self, host: str, settings: SshSettings) -> None:
        self._host, self._settings = bare(host), settings
        told: dict[str, str] = {}
        shown = _run(["ssh", *options(settings), "-G", "--", self._host])
        for line in shown.stdout.splitlines():
            name, _, value = line.partition(" ")
            told.setdefault(name, value)
        self.name = told.get("hostkeyalias") or told.get("hostname", self._host)
        self._address = told.get("hostname", self._host)
        self._port = told.get("port", "22")
        self.known_hosts = told.get("userknownhostsfile", "~/.ssh/known_hosts").split()[0]

    def _said(self) -> str:
        """Return the client's debug output for a login."""
        loud = [*options(self._settings)[:-1], "LogLevel=DEBUG1"]
        return _run(["ssh", "-v", *loud, "--", self._host, "true"]).stderr

    def fingerprint(self) -> str | None:
        """Return the host's key fingerprint, such as `ssh-ed25519 SHA256:…`; None if the host sends none."""
        match = re.search(r"Server host key: (\S+ \S+)", self._said())
        return None if match is None else match[1]

    def cure_of_login(self) -> str:
        """Describe how to make the host accept a login that it has refused."""
        said = self._said()
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
        none = "no key was there to offer"
        tried = f"it was offered {', '.join(map(repr, offered))}" if offered else none
        return (
            f"Passwords are never asked for, and {tried}: load your key with ssh-add or name it in "
            f"~/.ssh/config, and put it on the host with ssh-copy-id {_shown(self._host, self._settings)}"
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


def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=2 * CONNECT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return subprocess.CompletedProcess(argv, 255, "", "")

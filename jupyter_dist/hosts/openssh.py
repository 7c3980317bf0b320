"""The OpenSSH client: its command line to connect to hosts. ssh_diagnosis.py has the causes of failures."""

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
from ..folder import RunFolder, write_bytes
from .settings import HostSettings

__all__ = [
    "CONNECT_TIMEOUT_S",
    "EATEN",
    "LOCAL",
    "OLDEST",
    "SshSettings",
    "bare",
    "command",
    "connection_refused",
    "finding_python",
    "no_python",
    "opening",
    "options",
    "other_python_hint",
    "own_version",
    "pythons",
    "ssh_script",
    "version",
]

CONNECT_TIMEOUT_S = 10
OLDEST = ".".join(map(str, stage_program.OLDEST_PYTHON))
"""The oldest Python of a rank, as text. `_SCRIPT` knows it too."""
LOCAL = "localhost"
"""The name of this machine, which needs no ssh."""

# The script gets user data only through `read`, never as shell code. The login shell gets the script in
# single quotes, so it must not contain quotes, newlines, `!` or backslashes (csh, fish).
_SCRIPT = (
    "IFS= read -r word; IFS= read -r wanted; IFS= read -r any; found=; other=; others=; "
    'while IFS= read -r python && [ -n "$python" ]; do '
    'case "$python" in "~/"*) python="$HOME/${python#??}";; esac; '
    '[ -z "$found" ] || continue; '
    'has=$("$python" -c "import sys; print(sys.version_info[0], sys.version_info[1], sep=chr(46))" '
    "</dev/null 2>/dev/null); "
    'if [ "$has" = "$wanted" ]; then found=$python; '
    'elif [ -n "$has" ]; then others="$others, $python is $has"; '
    'case "$has" in 3.9|3.[1-9][0-9]) [ -n "$other" ] || other=$python;; esac; fi; done; '
    '[ -z "$any" ] || [ -n "$found" ] || found=$other; '
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


def opening(word: str, candidates: Sequence[str], other_python: bool | None = None) -> bytes:
    """Return the first lines for a host: the word that marks its answer, the Pythons to try, the program.

    `other_python`: whether another version of Python will do.
    """
    lines = [word, own_version(), "any" if other_python else "", *candidates, ""]
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


def no_python(settings: SshSettings, others: str) -> str:
    """Describe why no Python of a host fits. `others`: the Pythons found, as `, PATH is VERSION, …`."""
    found = others.strip(", ")
    named = "" if settings.python is None else f" at {settings.python!r}"
    own = own_version()
    if not found:
        return (
            f"it has no Python{named}: install Python {own}, which the notebook has "
            f"(`uv python install {own}` needs no root), or name it with --python"
        )
    if settings.other_python:
        return (
            f"it has no Python from {OLDEST} on{named} ({found}). Ranks need Python {OLDEST} or newer. Name "
            f"one with --python, or install one there: `uv python install {own}` needs no root"
        )
    return (
        f"it has no Python {own}{named} ({found}): what travels is pickled by the notebook's Python {own}, "
        "which only the same version reads. Name one with --python, or install one there: "
        f"`uv python install {own}` needs no root{other_python_hint(found)}"
    )


def other_python_hint(found: str) -> str:
    """Return what to add to a command, if one of the Pythons found can run ranks. Otherwise an empty text."""
    return ". Or add --other-python" if re.search(r" is 3\.(9|\d\d)", found) else ""


def ssh_script(folder: RunFolder, settings: SshSettings) -> Path:
    """Write a script that calls ssh with our options, for launchers that call ssh. Returns its path."""
    path = folder.path / "bin" / "ssh"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_bytes(path, f'#!/bin/sh\nexec {_real_ssh()} {shlex.join(options(settings))} "$@"\n'.encode())
    path.chmod(0o700)
    return path


def _real_ssh() -> str:
    return shlex.quote(shutil.which("ssh") or "/usr/bin/ssh")

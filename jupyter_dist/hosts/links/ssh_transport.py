"""The ssh transport: the streams of an ssh login are the pipe to a stage program."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from ...worker.host.os_errors import reason
from .. import openssh
from ..openssh import SshSettings
from ..ssh_diagnosis import SshDiagnosis, diagnose
from ..staged_files import Shipped
from .link import LinkError, Reach
from .stream import Pipe, StreamLink

__all__ = ["SshTransport", "by_ssh"]


def by_ssh(settings: SshSettings) -> Reach:
    """Return a `Reach` that creates links over ssh. The host `localhost` needs no ssh."""

    def reach(host: str, wish: Mapping[str, Any], files: Sequence[Shipped]) -> StreamLink:
        return StreamLink(host, SshTransport(host, settings), wish, files)

    return reach


class SshTransport:
    """Transport that logs in to one host. Each `open` is a new login."""

    def __init__(self, host: str, settings: SshSettings) -> None:
        self._host, self._settings = host, settings
        self._found: SshDiagnosis | None = None

    def open(self) -> Pipe:
        word = secrets.token_hex(12)
        argv = openssh.command(self._host, self._settings)
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise LinkError(f"cannot run {argv[0]}: {reason(error)}", final=True) from None
        return Pipe.of_process(
            process, word, openssh.opening(word, openssh.pythons(self._settings), self._settings.other_python)
        )

    def unanswered(self, code: int | None, said: str, printed: str) -> LinkError:
        found = diagnose(self._host, self._settings, code, said, printed)
        if self._found is not None and self._found.first == found.first:
            found = self._found  # a retry has failed in the same way, and need not be examined again
        self._found = found
        return LinkError(found.text, busy=openssh.connection_refused(said), diagnosis=found)

    def refused(self, words: Sequence[str]) -> LinkError:
        if words[:1] == ["python"]:
            others = words[1] if len(words) > 1 else ""
            return LinkError(openssh.no_python(self._settings, others), final=True)
        return LinkError(openssh.EATEN, final=True)

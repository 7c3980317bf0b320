"""Texts for errors of the operating system that users can cure."""

from __future__ import annotations

import errno
import resource

__all__ = ["is_out_of_files", "reason"]


def is_out_of_files(error: OSError) -> bool:
    """Return whether this process (EMFILE) or this machine (ENFILE) has too many open files."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def reason(error: OSError) -> str:
    """Return the text of an error, with the cure if too many files are open."""
    text = error.strerror or str(error)
    if error.errno == errno.EMFILE:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        text += (
            f". A process may open {limit} files here. Raise the limit: run `ulimit -n 65536`, "
            "then start the process again from the same shell"
        )
    elif error.errno == errno.ENFILE:
        text += ". All processes of this machine share a limit. Ask its administrator to raise fs.file-max"
    return text

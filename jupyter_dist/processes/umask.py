"""The umask of this process."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile

__all__ = ["current_umask"]


def current_umask() -> int:
    """Return the umask without changing it. `os.umask` would change the files that other threads make."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        for line in file:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    with tempfile.TemporaryDirectory() as place:
        folder = os.path.join(place, "mode")
        os.mkdir(folder, 0o777)
        return 0o777 & ~stat.S_IMODE(os.stat(folder).st_mode)

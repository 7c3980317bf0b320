"""Places in a cell at which its ranks wait until the test lets them pass: files in place of sleeps.

gates = Gates(tmp_path)
run = start(gates.source + "print('up')\\ngate('epoch 2')\\nprint('on')")
...                       # look at what is shown now, for as long as that takes
gates.open("epoch 2")
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["Gates"]

_SOURCE = """\
def gate(name):
    import os, time
    while not os.path.exists(os.path.join({folder!r}, name)):
        time.sleep(0.02)
"""


class Gates:
    """The gates of a cell. `folder`: a folder of this machine that its ranks see as well."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "gates"
        self._folder.mkdir(exist_ok=True)

    @property
    def source(self) -> str:
        """Code of a cell: the function `gate(name)`, which returns once the gate is open."""
        return _SOURCE.format(folder=str(self._folder))

    def path(self, name: str) -> Path:
        """The file that is there once the gate is open, for programs that are not Python."""
        return self._folder / name

    def open(self, *names: str) -> None:
        """Let everybody pass, now and later. Repeatable."""
        for name in names:
            self.path(name).touch()

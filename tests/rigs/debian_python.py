"""CPythons of Debian's other releases, for a machine that lacks them: 10 s each, the first time.

    python -m tests.rigs.debian_python       make them, and print where they are

Their packages are unpacked below ~/.cache/jupyter-dist, together with their own C library. A small program of
ours starts each interpreter. apt writes into a folder of its own: nothing is installed, and root is not
needed.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.rigs.made_once import made_once, place

__all__ = ["NEWEST", "OLDEST", "PATHS", "RELEASES", "made"]

OLDEST, NEWEST = "3.9", "3.14"
"""The oldest Python of a rank, which is never a notebook's, and the newest one."""
RELEASES = {OLDEST: "bullseye", NEWEST: "forky"}

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCE = f"deb [signed-by={KEYS}] http://deb.debian.org/debian {{release}} main\n"

SETTINGS = """
Dir::Etc::SourceList "{apt}/sources.list";
Dir::Etc::SourceParts "-";
Dir::State "{apt}";
Dir::State::Status "/dev/null";
Dir::Cache "{apt}";
Debug::NoLocking "true";
APT::Sandbox::User "";
"""
"""What keeps apt away from this machine's packages and lists."""

PROGRAM = """
extern int Py_BytesMain(int, char **);
int main(int count, char **words) { return Py_BytesMain(count, words); }
"""

NEEDED = ("libc.so.6", "libpthread.so.0", "libdl.so.2", "libutil.so.1", "librt.so.1", "libm.so.6")
"""The C library, whose symbols the program asks for, and its parts for packages with compiled code."""

_NAME = "python"
_MADE_OF = {
    minor: "\n".join([minor, SOURCE.format(release=release), SETTINGS, PROGRAM, *NEEDED])
    for minor, release in RELEASES.items()
}
_FOLDERS = {minor: place(_NAME, what) for minor, what in _MADE_OF.items()}
PATHS = {minor: folder / "usr" / "bin" / f"python{minor}" for minor, folder in _FOLDERS.items()}
"""Where the interpreters are, once they are made: minor version → path."""


def made(minor: str) -> Path:
    """An interpreter, which is made where it is missing.

    Raises CalledProcessError or OSError where this machine is no Debian, has no compiler, or is offline."""
    made_once(_NAME, _MADE_OF[minor], functools.partial(_make, minor))
    return PATHS[minor]


def _make(minor: str, part: Path) -> None:
    part.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="jd-apt-") as folder:
        apt = Path(folder)
        (apt / "lists" / "partial").mkdir(parents=True)
        (apt / "archives" / "partial").mkdir(parents=True)
        (apt / "sources.list").write_text(SOURCE.format(release=RELEASES[minor]))
        (apt / "apt.conf").write_text(SETTINGS.format(apt=apt))
        environment = {**os.environ, "APT_CONFIG": str(apt / "apt.conf")}
        package = ("--yes", "--no-install-recommends", "--download-only", f"libpython{minor}")
        for words in (["update"], ["install", *package]):
            subprocess.run(["apt-get", "-qq", *words], env=environment, stdout=sys.stderr, check=True)
        for archive in sorted((apt / "archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", archive, part], check=True)
    if (part / "lib").exists():  # where releases before Debian 13 have their C library
        shutil.copytree(part / "lib", part / "usr" / "lib", symlinks=True, dirs_exist_ok=True)
    _link(minor, next(part.glob("usr/lib/*/libc.so.6")).parent, part)


def _link(minor: str, libraries: Path, part: Path) -> None:
    """Compile what starts the interpreter with the C library and the other libraries of its packages."""
    folder = _FOLDERS[minor]
    program = part / PATHS[minor].relative_to(folder)
    program.parent.mkdir(exist_ok=True)
    # The folder gets its name when it is complete.
    there = folder / libraries.relative_to(part)
    loader = next(libraries.glob("ld-linux*.so.*")).name
    needed = [libraries / name for name in (f"libpython{minor}.so.1.0", *NEEDED)]
    options = ["--no-as-needed", "--allow-shlib-undefined", "--disable-new-dtags"]
    options += [f"-rpath={there}", f"--dynamic-linker={there / loader}"]
    # The options go before the libraries, as the first one is about those that follow.
    words = ["cc", "-x", "c", "-", "-x", "none", "-o", str(program)]
    words += [f"-Wl,{option}" for option in options]
    subprocess.run([*words, *map(str, needed)], input=PROGRAM.encode(), check=True)


if __name__ == "__main__":
    for minor in RELEASES:
        print(made(minor))

"""CPython 3.14 of Debian's next release, for a machine that has none: 10 s the first time.

    python -m tests.rigs.debian_python       make it, and print where it is

Its packages are unpacked below ~/.cache/jupyter-dist, together with their own C library. A small program of
ours starts the interpreter. apt writes into a folder of its own: nothing is installed, and root is not
needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.rigs.made_once import made_once, place

__all__ = ["MINOR", "PATH", "made"]

MINOR = "3.14"

SOURCE = (
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian forky main\n"
)

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

NEEDED = ("libpthread.so.0", "libdl.so.2", "libutil.so.1", "librt.so.1", "libm.so.6")
"""Parts of the C library that packages with compiled code ask for: the machine's own would not fit."""

_NAME, _MADE_OF = "python", "\n".join([MINOR, SOURCE, SETTINGS, PROGRAM, *NEEDED])
_FOLDER = place(_NAME, _MADE_OF)
PATH = _FOLDER / "usr" / "bin" / f"python{MINOR}"
"""Where the interpreter is, once it is made."""


def made() -> Path:
    """The interpreter, which is made where it is missing.

    Raises CalledProcessError or OSError where this machine is no Debian, has no compiler, or is offline."""
    made_once(_NAME, _MADE_OF, _make)
    return PATH


def _make(part: Path) -> None:
    part.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="jd-apt-") as folder:
        apt = Path(folder)
        (apt / "lists" / "partial").mkdir(parents=True)
        (apt / "archives" / "partial").mkdir(parents=True)
        (apt / "sources.list").write_text(SOURCE)
        (apt / "apt.conf").write_text(SETTINGS.format(apt=apt))
        environment = {**os.environ, "APT_CONFIG": str(apt / "apt.conf")}
        package = ("--yes", "--no-install-recommends", "--download-only", f"libpython{MINOR}")
        for words in (["update"], ["install", *package]):
            subprocess.run(["apt-get", "-qq", *words], env=environment, stdout=sys.stderr, check=True)
        for archive in sorted((apt / "archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", archive, part], check=True)
    _link(next(part.glob("usr/lib/*/libc.so.6")).parent, part / "usr" / "bin" / f"python{MINOR}", part)


def _link(libraries: Path, program: Path, part: Path) -> None:
    """Compile what starts the interpreter with the C library and the other libraries of its packages."""
    program.parent.mkdir(exist_ok=True)
    # The folder gets its name when it is complete.
    there = _FOLDER / libraries.relative_to(part)
    loader = next(libraries.glob("ld-linux*.so.*")).name
    needed = [libraries / name for name in (f"libpython{MINOR}.so.1.0", *NEEDED)]
    options = ["--no-as-needed", "--allow-shlib-undefined", "--disable-new-dtags"]
    options += [f"-rpath={there}", f"--dynamic-linker={there / loader}"]
    # The options go before the libraries, as the first one is about those that follow.
    words = ["cc", "-x", "c", "-", "-x", "none", "-o", str(program)]
    words += [f"-Wl,{option}" for option in options]
    subprocess.run([*words, *map(str, needed)], input=PROGRAM.encode(), check=True)


if __name__ == "__main__":
    print(made())

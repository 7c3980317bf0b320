"""The container file that transfers values to the ranks, and results back.

    PATH            pickle of the header (plain builtins), then the body's pickle (protocol 5). In a payload
                    two pickles follow: the notebook's names of functions and classes in the body, and the
                    second part (see pickling/lazy_names.py)
    PATH.buffers    a seal of 64 bytes that names the container, then the body's out-of-band buffers,
                    each on a multiple of 64 bytes; exists only if the body has any

A reader maps the buffers copy on write. Processes that load the same container share its memory, and each may
write to its arrays. Loading runs code from the body. So a container is refused if another user owns it or
could have written it. This module needs only the standard library and cloudpickle.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import pickle
import secrets
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import layout
from .pickling import Dumped, Trace, dump, loading, name_classes
from .pickling.code_places import CodePlaces, digest
from .pickling.file_maps import NO_MAPS
from .pickling.lazy_names import LazyNames
from .pickling.unpickling import HERE, Unpickler, Writer

__all__ = [
    "CELL_FORMAT",
    "HERE",
    "ContainerError",
    "Dumped",
    "OtherFormat",
    "Trace",
    "UntrustedContainer",
    "check_format",
    "dump",
    "link_or_copy",
    "load",
    "read_header",
    "rewrite_header",
    "shown_texts",
    "write",
    "write_value",
    "writer_of",
]

VERSION = 1
CELL_FORMAT = 2
"""The format of a payload's header, as far as ranks read it: raise it if ranks need another key."""
_ALIGN = 64
_MAP_FROM = 1 << 20  # a smaller file is cheaper to copy than to map, and a copy keeps no file open


class ContainerError(Exception):
    """The file is not a container, or is only a part of one."""


class OtherFormat(ContainerError):
    """Another version of jupyter-dist has made the payload."""


class UntrustedContainer(ContainerError):
    """Another user owns the container or could have written it. It is never loaded."""


def write(
    path: Path,
    header: Mapping[str, Any],
    body: bytes,
    buffers: Sequence[memoryview] = (),
    prepared: Path | None = None,
) -> int:
    """Write a container and return its size in bytes. Readers see the complete container or none.

    `prepared`: a file to use, if it exists. By default it is the hidden file that the folder of a session's
    cell has. To make a file takes longer than to write into it. If the write fails, the file that a caller
    has passed remains with its space, for a report of the failure.

    The files get mode 0600, independent of the umask. An OSError, such as a full disk, passes through. Then
    no partial file remains under the name of a container.
    """
    places, end = _places(buffers)
    seal = _seal() if buffers else None
    full = {
        "version": VERSION,
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        **header,
        "body": len(body),
        "buffers": places,
        "read_only": [i for i, view in enumerate(buffers) if view.readonly],
        "seal": seal,
    }
    head = pickle.dumps(full, protocol=5)
    aside = path.with_suffix(layout.BUFFERS)
    temporaries: list[tuple[Path, Path]] = []
    try:
        if seal is not None:
            # The buffers are written first. If the header can be read, its buffers can be mapped.
            with _new(aside, temporaries, None) as file:
                file.write(seal)
                for (offset, _), view in zip(places, buffers):
                    file.seek(offset)
                    file.write(view)
                file.truncate(end)
        with _new(path, temporaries, prepared or path.with_name(layout.hidden(path.name))) as file:
            file.write(head)
            file.write(body)
            file.truncate()
        for temporary, final in temporaries:
            os.replace(temporary, final)
    except BaseException:
        for temporary, _ in temporaries:
            if temporary != prepared:
                temporary.unlink(missing_ok=True)
        raise
    return len(head) + len(body) + (end if buffers else 0)


def write_value(
    path: Path,
    value: Any,
    trace: Trace | None = None,
    reader: Writer = HERE,
    prepared: Path | None = None,
) -> int:
    """Write a rank's result as a container and return its size in bytes. `trace` gets the names in it.

    `reader`: the notebook's Python, which may be another version. `prepared`: see `write`.

    Raises any exception of the value's pickling. Then nothing is written.
    """
    main = sys.modules["__main__"].__dict__
    name_classes(main, os.environ.get("JUPYTER_DIST_RUN", ""))
    places = (
        None
        if reader.python == HERE.python
        else CodePlaces((file, text) for (file, _), text in reader.texts.items())
    )
    dumped = dump(value, mains=[main], trace=trace, maps=NO_MAPS, places=places)
    header: dict[str, Any] = {"kind": "result"}
    if places is not None:
        header["texts"] = [(file, text) for (file, _), text in places.texts.items()]
    return write(path, header, dumped.body, dumped.buffers, prepared)


def read_header(path: Path) -> dict[str, Any]:
    """Read only the header. This runs no code of the container and imports nothing.

    Raises ContainerError, UntrustedContainer. FileNotFoundError passes through.
    """
    with _open(path) as file:
        return _header(file, path)


def check_format(header: Mapping[str, Any], *, oldest: int) -> None:
    """Raise OtherFormat if a rank cannot run a payload. `oldest`: the first format that the rank can run."""
    if not oldest <= header.get("format", 1) <= CELL_FORMAT:
        raise OtherFormat(
            "This rank cannot run the cell. The notebook's kernel and the rank have different versions of "
            "jupyter-dist, because it was updated meanwhile. Restart the kernel, end a session with "
            "`%dist close`, then run the cell again"
        )


def writer_of(header: Mapping[str, Any]) -> Writer:
    """Return the Python that has written a container, with the texts in its header."""
    if header["python"] == HERE.python:
        return HERE
    texts = [*header.get("texts", ()), *header.get("sources", {}).items()]
    return Writer(header["python"], {(file, digest(text)): text for file, text in texts})


def shown_texts(header: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts for tracebacks: file name → text. A file with several texts has none."""
    texts = header.get("texts", ())
    files = [file for file, _ in texts]
    alone: dict[str, str] = {file: text for file, text in texts if files.count(file) == 1}
    alone.update(header["sources"])
    return alone


def rewrite_header(path: Path, target: Path, more: Mapping[str, Any]) -> None:
    """Write a copy of the container, with `more` added to its header.

    The body is copied. The buffers become the same file under a second name, or a copy if the file system has
    no links. Only the header is unpickled.

    Raises ContainerError, UntrustedContainer, and OSError. Then no partial file remains.
    """
    with _open(path) as file:
        header = _header(file, path)
        body = file.read()
    aside = path.with_suffix(layout.BUFFERS)
    made: list[tuple[Path, Path]] = []
    try:
        if header["buffers"]:
            made.append((target.with_suffix(layout.BUFFERS),) * 2)
            link_or_copy(aside, target.with_suffix(layout.BUFFERS))
        with _new(target, made, None) as new:
            new.write(pickle.dumps({**header, **more}, protocol=5))
            new.write(body)
        os.replace(*made[-1])
    except BaseException:
        for temporary, _ in made:
            temporary.unlink(missing_ok=True)
        raise


def link_or_copy(path: Path, target: Path) -> None:
    """Link the file under another name. Copy it if the file system has no links."""
    try:
        os.link(path, target)
    except FileExistsError:
        raise
    except OSError:
        shutil.copyfile(path, target)
        target.chmod(0o600)


def load(path: Path, *, main: dict[str, Any] | None = None, header: Mapping[str, Any] | None = None) -> Any:
    """Load the value in the container.

    On a rank, `main` is the namespace in which the notebook's functions find their globals. The names that
    the functions use are added to it. Without `main` (in the kernel), functions get globals of their own.
    Classes that the kernel already has stay unchanged, so loading changes nothing in the notebook. The names
    of a payload's second part are added to `main` when the rank asks for them.

    `header`: that of the container, if the caller has read it.

    Raises ContainerError, UntrustedContainer, and any exception of unpickling.
    """
    with _open(path) as file:
        if header is None:
            header = _header(file, path)
        else:
            file.seek(-header["body"], os.SEEK_END)
        buffers = _buffers(path.with_suffix(layout.BUFFERS), header)
        writer = writer_of(header)
        if main is None or "unnamed" not in header:
            with loading(main, writer=writer):
                return Unpickler(file, buffers=buffers).load()
        with loading(main, writer=writer) as load:
            value, found = _pickles(Unpickler(file, buffers=buffers), 2)
        names = LazyNames(main, found, load.made, pickle.load(file), header["unnamed"], writer)
    names.install()
    return value


def _places(buffers: Sequence[memoryview]) -> tuple[list[tuple[int, int]], int]:
    places = []
    end = _ALIGN
    for view in buffers:
        offset = -(-end // _ALIGN) * _ALIGN
        places.append((offset, view.nbytes))
        end = offset + view.nbytes
    return places, end


def _seal() -> bytes:
    """Return the start of a buffers file.

    It is random, so that no buffers file is mistaken for another container's.
    """
    return f"jupyter-dist buffers {secrets.token_hex(16)}".encode().ljust(_ALIGN, b"\n")


def _new(path: Path, made: list[tuple[Path, Path]], prepared: Path | None) -> io.BufferedWriter:
    if prepared is not None:
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(prepared, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)  # keeps the file's space
            made.append((prepared, path))
            return os.fdopen(fd, "wb")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    # A symbolic link at this path is not followed. A file of an earlier process is replaced.
    temporary.unlink(missing_ok=True)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    made.append((temporary, path))
    os.fchmod(fd, 0o600)
    return os.fdopen(fd, "wb")


def _open(path: Path) -> io.BufferedReader:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        if path.is_symlink():
            raise UntrustedContainer(f"{str(path)!r} is a symbolic link, so it was not loaded.") from None
        raise ContainerError(f"cannot read {str(path)!r}: {error.strerror}") from error
    info = os.fstat(fd)
    if info.st_uid != os.geteuid() or info.st_mode & 0o022:
        os.close(fd)
        raise UntrustedContainer(
            f"{str(path)!r} belongs to user id {info.st_uid} and has mode "
            f"{stat.S_IMODE(info.st_mode):04o}, so another user could have written it. It was not "
            "loaded."
        )
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        raise ContainerError(f"{str(path)!r} is not a file")
    return os.fdopen(fd, "rb")


def _pickles(unpickler: Unpickler, count: int) -> list[Any]:
    """Load pickles that share objects. The unpickler, which keeps all of them alive, ends with the call."""
    return [unpickler.load() for _ in range(count)]


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler for builtins only: a header refers to no class and no function."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a header does not refer to {module}.{name}")


def _header(file: io.BufferedReader, path: Path) -> dict[str, Any]:
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        raise ContainerError(f"{str(path)!r} is empty")
    try:
        header = _PlainUnpickler(file).load()
        version, body = header["version"], header["body"]
        whole = file.tell() + body
        _check_places(header)
    except Exception as error:  # the file can contain any bytes, which can fail in any way
        raise ContainerError(f"{str(path)!r} is damaged, or not a jupyter-dist file") from error
    if version != VERSION:
        raise ContainerError(
            f"{str(path)!r} has format {version!r}, but this jupyter-dist reads format {VERSION}. "
            "Another version has written it"
        )
    if size != whole:
        raise ContainerError(f"{str(path)!r} is cut off or damaged: it has {size:,} bytes, not {whole:,}")
    assert isinstance(header, dict)
    return header


def _check_places(header: Mapping[str, Any]) -> None:
    for offset, length in header["buffers"]:
        if offset < _ALIGN or length < 0:
            raise ValueError("a buffer is outside of its file")
    if any(not 0 <= i < len(header["buffers"]) for i in header["read_only"]):
        raise ValueError("no such buffer")


def _buffers(path: Path, header: Mapping[str, Any]) -> list[memoryview]:
    places = header["buffers"]
    if not places:
        return []
    end = max(offset + length for offset, length in places)
    try:
        with _open(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size < end:
                raise ContainerError(f"{str(path)!r} is cut off: it has {size:,} of {end:,} bytes")
            whole = _whole(file, size)
    except FileNotFoundError:
        raise ContainerError(f"{str(path)!r} is missing, and it contains the arrays") from None
    if bytes(whole[:_ALIGN]) != header["seal"]:
        raise ContainerError(f"{str(path)!r} belongs to another container")
    views = [whole[offset : offset + length] for offset, length in places]
    for i in header["read_only"]:
        views[i] = views[i].toreadonly()
    return views


def _whole(file: io.BufferedReader, size: int) -> memoryview:
    if size < _MAP_FROM:
        data = bytearray(size)
        file.readinto(data)
        return memoryview(data)
    if sys.version_info >= (3, 13):
        # The mapping keeps no file descriptor open while the arrays live.
        return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY, trackfd=False))
    return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY))

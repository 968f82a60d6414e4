"""Files that appear whole or not at all.

Write beside, fsync, rename. Never opens a file for writing under its final name.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from penstock.errors import DiskFull

PARTIAL: Final = ".partial"
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def disk_full_as_error(path: Path) -> Iterator[None]:
    """Turns the operating system's "no space" into an error that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise DiskFull(
            f"{path}: {os.strerror(error.errno or 0)}; what is finished is kept: "
            "free some space and run the same command again"
        ) from error


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """A file that takes the name `path` when the block ends without an exception.

    With `durable` it survives a loss of power from then on; without, only a loss of the process.
    """
    # Named for the process: what a dying run still writes cannot meet what its successor writes.
    partial = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL}")
    with disk_full_as_error(path):
        try:
            with open(partial, "wb") as file:
                yield file
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            # Rename last: a reader must never see a half-written file.
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    if durable:
        sync_directory(path.parent)


def sync_file(path: Path) -> None:
    """The bytes of `path` survive a loss of power once this returns."""
    with disk_full_as_error(path):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
            if hasattr(os, "posix_fadvise"):
                # Written once, read much later: leave the memory to those who need it now.
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def sync_directory(path: Path) -> None:
    """The names in `path` survive a loss of power once this returns."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

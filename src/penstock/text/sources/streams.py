"""Stored bytes → blocks of whole lines.

A byte range owns the lines that start in it, so ranges side by side give every line exactly once, whoever reads
them. Truncated compression is an error that names the file, never a shorter text.
"""

import gzip
import lzma
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, Final, Protocol

import zstandard
from blake3 import blake3

from penstock.errors import InputError
from penstock.text.sources.block import BLOCK_BYTES, Tally

CHUNK_BYTES: Final = BLOCK_BYTES
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
BOM: Final = b"\xef\xbb\xbf"


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Counted:
    """A file whose bytes are counted and hashed as they pass."""

    def __init__(self, file: IO[bytes], tally: Tally) -> None:
        self._file, self._tally, self._hash = file, tally, blake3()

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        self._tally.num_bytes += len(data)
        return data

    def finish(self) -> None:
        self._tally.digest = self._hash.hexdigest()


class _Zstd:
    """A zstd stream that notices when it ends too early, which `stream_reader` does not."""

    def __init__(self, file: Readable) -> None:
        self._file, self._pending, self._out = file, b"", bytearray()
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._started = False

    def read(self, size: int, /) -> bytes:
        while len(self._out) < size:
            data = self._pending or self._file.read(1 << 17)
            self._pending = b""
            if not data:
                if self._started and not self._frame.eof:
                    raise EOFError("inside a zstd frame")
                break
            if self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._started = True
            self._out += self._frame.decompress(data)
            if self._frame.eof:
                self._pending = self._frame.unused_data
        data = bytes(self._out[:size])
        del self._out[:size]
        return data


@contextmanager
def opened(path: str, compression: str | None, tally: Tally, *, name: str) -> Iterator[Readable]:
    """The uncompressed bytes of a whole file, counted and hashed as they lie on disk."""
    with open(path, "rb") as file:
        counted = _Counted(file, tally)
        source: Any = counted
        if compression == "gzip":
            source = gzip.GzipFile(fileobj=counted)  # type: ignore[call-overload]
        elif compression == "xz":
            source = lzma.LZMAFile(counted)  # type: ignore[arg-type]
        elif compression == "zstd":
            source = _Zstd(counted)
        with truncation_as_error(name, compression):
            yield source
        counted.finish()


@contextmanager
def truncation_as_error(name: str, compression: str | None) -> Iterator[None]:
    """Turns what the decompressors raise into an error that names the file."""
    try:
        yield
    except EOFError as error:
        raise InputError(
            f"{name}: the {compression} data ends too early, so the file is truncated; fetch it again and run the same "
            "command, or leave it out"
        ) from error
    except (gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError, zlib.error) as error:
        raise InputError(
            f"{name}: damaged {compression} data ({error}); fetch it again and run the same command"
        ) from error


def stream_chunks(source: Readable, tally: Tally, *, name: str) -> Iterator[bytes]:
    """Everything in `source`, without its byte-order mark."""
    head = source.read(CHUNK_BYTES)
    refuse_utf16(head, name)
    data = head.removeprefix(BOM)
    while data:
        yield data
        data = source.read(CHUNK_BYTES)
    tally.at_eof = True


def range_chunks(path: str, start: int, stop: int, tally: Tally, *, name: str) -> Iterator[bytes]:
    """The lines that start in the bytes `start` to `stop` of an uncompressed file, as they come from the disk.

    Counts and hashes the bytes of the range itself.
    """
    digest = blake3()
    with open(path, "rb") as file:
        # The byte before tells whether a line starts right here.
        file.seek(start - 1 if start else 0)
        skipping = start > 0 and file.read(1) != b"\n"
        at, inside_line = start, False
        while at < stop:
            data = file.read(min(CHUNK_BYTES, stop - at))
            if not data:
                raise InputError(f"{name}: shrank while it was read; leave inputs alone and run the same command again")
            digest.update(data)
            if at == 0:
                refuse_utf16(data, name)
            own = data.removeprefix(BOM) if at == 0 else data
            at += len(data)
            if skipping:
                first = own.find(b"\n") + 1
                skipping = not first
                own = own[first:] if first else b""
            if own:
                inside_line = not own.endswith(b"\n")
                yield own
        tally.num_bytes += stop - start
        tally.digest = digest.hexdigest()
        # The last line may run on past the range: it started here, so it is ours.
        while inside_line and (data := file.read(CHUNK_BYTES if at - stop > CHUNK_BYTES else 1 << 16)):
            at += len(data)
            end = data.find(b"\n") + 1
            inside_line = not end
            at -= len(data) - end if end else 0
            yield data[:end] if end else data
        tally.at_eof = at >= os.fstat(file.fileno()).st_size


def document_chunks(path: str, start: int, *, name: str) -> Iterator[bytes]:
    """An uncompressed file from the byte `start` on."""
    with open(path, "rb") as file:
        file.seek(start)
        while data := file.read(CHUNK_BYTES):
            if start == 0:
                refuse_utf16(data, name)
            yield data
            start += len(data)


def hash_range(path: str, start: int, stop: int, tally: Tally) -> None:
    """Counts and hashes the bytes of a range into `tally`."""
    digest = blake3()
    with open(path, "rb") as file:
        file.seek(start)
        for at in range(start, stop, CHUNK_BYTES):
            digest.update(file.read(min(CHUNK_BYTES, stop - at)))
    tally.num_bytes += stop - start
    tally.digest = digest.hexdigest()


def line_blocks(chunks: Iterable[bytes], *, most_bytes: int, name: str) -> Iterator[bytes]:
    """`chunks` cut anew so that each block ends with a line.

    A line longer than a chunk comes as a block of its own, of its own size; one of more than `most_bytes` is an error.
    """
    pending: list[bytes] = []
    held = 0
    for data in chunks:
        held += len(data)
        refuse_long(held, most_bytes, name)
        cut = data.rfind(b"\n") + 1
        if cut:
            yield b"".join([*pending, data[:cut]])
            pending, held = [], len(data) - cut
        if cut < len(data):
            pending.append(data[cut:])
    if pending:
        yield b"".join(pending)


def refuse_long(num_bytes: int, most_bytes: int, name: str) -> None:
    """A record is parsed whole: one that memory cannot hold stops the run, with what would hold it."""
    if num_bytes > most_bytes:
        raise InputError(
            f"{name}: a record of more than {most_bytes / 1e6:,.0f} MB, too long for the memory of a worker; run the "
            "same command with a larger --max_memory or fewer --workers (what is finished is kept), or mend the file"
        )


def refuse_utf16(head: bytes, name: str) -> None:
    """An error if text starts with the byte-order mark of UTF-16."""
    # UTF-16 read as UTF-8 would be rubbish from end to end: better to stop.
    if head[:2] in _UTF16_MARKS:
        raise InputError(f"{name}: is UTF-16; convert it with `iconv -f UTF-16 -t UTF-8` and run the same command")

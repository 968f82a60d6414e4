"""A part of a file → blocks of documents, whatever the format.

The one place that knows which reader belongs to which kind of file.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.text.sources import streams
from penstock.text.sources.block import Block, Tally
from penstock.text.sources.files import SourceFile
from penstock.text.sources.jsonlines import JsonLines, json_values
from penstock.text.sources.plain import first_document, one_document, separated_documents
from penstock.text.sources.streams import BOM, line_blocks, opened, range_chunks, stream_chunks
from penstock.text.sources.tables import CsvRows, arrow_blocks, header_names, parquet_blocks, record_blocks
from penstock.text.sources.units import Part

_HEADER_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadOptions:
    """How documents are found in files."""

    text_column: str = "text"
    document_separator: str | None = None
    most_record_bytes: int = 1 << 28
    """A longer line of jsonl, or record of csv, is an error."""


def read_part(file: SourceFile, path: str, part: Part, options: ReadOptions, tally: Tally) -> Iterator[Block]:
    """The documents in one part of `file`, which really lies at `path`."""
    if file.kind == "text":
        yield from _text(file, path, part, options, tally)
    elif file.kind == "jsonl":
        reader = JsonLines(options.text_column)
        with _chunks(file, path, part, tally) as chunks:
            lines = line_blocks(chunks, most_bytes=options.most_record_bytes, name=file.path)
            yield from reader.blocks(lines, tally)
    elif file.kind == "json":
        with _chunks(file, path, part, tally) as chunks:
            yield from json_values(chunks, options.text_column, tally, name=file.path)
    elif file.kind == "csv":
        yield from _csv(file, path, part, options, tally)
    else:
        read = parquet_blocks if file.kind == "parquet" else arrow_blocks
        with _plain_file(file, path, part, tally) as plain:
            numbers = None if part.stop is None else range(part.start, part.stop)
            yield from read(plain, options.text_column, numbers, tally, name=file.path)


@contextmanager
def _chunks(file: SourceFile, path: str, part: Part, tally: Tally) -> Iterator[Iterator[bytes]]:
    if part.stop is not None:
        yield range_chunks(path, part.start, part.stop, tally, name=file.path)
        return
    with opened(path, file.compression, tally, name=file.path) as source:
        yield stream_chunks(source, tally, name=file.path)


def _text(file: SourceFile, path: str, part: Part, options: ReadOptions, tally: Tally) -> Iterator[Block]:
    separator = (options.document_separator or "").encode()
    if part.stop is None or not separator:
        with _chunks(file, path, part, tally) as chunks:
            if separator:
                yield from separated_documents(chunks, tally, separator=separator, own_bytes=None)
            else:
                yield from one_document(chunks, tally, begins=part.start == 0)
        return
    streams.hash_range(path, part.start, part.stop, tally)
    start = first_document(path, part.start, separator)
    if start < part.stop:
        chunks = streams.document_chunks(path, start, name=file.path)
        yield from separated_documents(chunks, tally, separator=separator, own_bytes=part.stop - start)


def _csv(file: SourceFile, path: str, part: Part, options: ReadOptions, tally: Tally) -> Iterator[Block]:
    with opened(path, file.compression, Tally(), name=file.path) as source:
        head = source.read(_HEADER_BYTES)
        streams.refuse_utf16(head, file.path)
        marked = len(BOM) if head.startswith(BOM) else 0
        names, header = header_names(head[marked:], name=file.path)
    rows = CsvRows(names, options.text_column, name=file.path)
    if part.stop is None:
        with opened(path, file.compression, tally, name=file.path) as source:
            source.read(marked + header)
            chunks = stream_chunks(source, tally, name=file.path)
            yield from rows.blocks(record_blocks(chunks, most_bytes=options.most_record_bytes, name=file.path), tally)
        return
    streams.hash_range(path, part.start, part.stop, tally)
    start = part.start or marked + header
    chunks = _exactly(path, start, part.stop)
    yield from rows.blocks(record_blocks(chunks, most_bytes=options.most_record_bytes, name=file.path), tally)


def _exactly(path: str, start: int, stop: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        file.seek(start)
        while start < stop and (data := file.read(min(streams.CHUNK_BYTES, stop - start))):
            yield data
            start += len(data)


@contextmanager
def _plain_file(file: SourceFile, path: str, part: Part, tally: Tally) -> Iterator[str]:
    """A file that can be sought in: tables are read from their end."""
    if file.compression is None:
        # Row groups do not line up with bytes: the first part vouches for the whole file.
        if part.start == 0:
            streams.hash_range(path, 0, file.num_bytes, tally)
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        plain = Path(directory) / "plain"
        with opened(path, file.compression, tally, name=file.path) as source, open(plain, "wb") as out:
            while data := source.read(1 << 20):
                out.write(data)
        yield str(plain)

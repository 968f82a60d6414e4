"""Columns of tables → documents: csv, parquet and arrow.

Only the text column is read. A row without text is counted with its number and left out.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from penstock.errors import InputError
from penstock.text.sources.block import BLOCK_BYTES, Block, Tally, whole
from penstock.text.sources.plain import decoded
from penstock.text.sources.streams import refuse_long

_ROWS_AT_ONCE = 1024
_QUOTE, _NEWLINE = 34, 10


def parquet_blocks(path: str, column: str, groups: range | None, tally: Tally, *, name: str) -> Iterator[Block]:
    """The documents of the given row groups, or of all."""
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            require_column(file.schema_arrow.names, column, name)
            wanted = list(range(file.num_row_groups)) if groups is None else list(groups)
            batches = file.iter_batches(
                batch_size=_ROWS_AT_ONCE, row_groups=wanted, columns=[column], use_threads=False
            )
            yield from _column_blocks((batch.column(0) for batch in batches), column, tally)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(name, "parquet", error) from error


def arrow_blocks(path: str, column: str, batches: range | None, tally: Tally, *, name: str) -> Iterator[Block]:
    """The documents of an arrow file, in the file or the stream format."""
    try:
        with pa.memory_map(path) as source:
            try:
                file = pa.ipc.open_file(source)
                numbers = range(file.num_record_batches) if batches is None else batches
                schema, found = file.schema, (file.get_batch(i) for i in numbers)
            except pa.ArrowInvalid:
                source.seek(0)
                stream = pa.ipc.open_stream(source)
                schema, found = stream.schema, iter(stream)
            require_column(schema.names, column, name)
            yield from _column_blocks((batch.column(column) for batch in found), column, tally)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(name, "arrow", error) from error


class CsvRows:
    """Reads the column `column` of csv records, given the header's names."""

    def __init__(self, names: list[str], column: str, *, name: str) -> None:
        require_column(names, column, name)
        self._names, self._column, self._name = names, column, name

    def blocks(self, record_blocks: Iterable[bytes], tally: Tally) -> Iterator[Block]:
        """The documents in blocks of whole records."""
        for data in record_blocks:
            yield from self._parsed(data, tally)

    def _parsed(self, data: bytes, tally: Tally) -> Iterator[Block]:
        from pyarrow import csv

        bad: list[int] = []

        def skip(row: Any) -> str:
            number = row.number - 1 if row.number is not None else 0
            detail = f"{row.actual_columns} fields, expected {row.expected_columns}"
            tally.bad(tally.num_records + number, "wrong_number_of_fields", detail)
            bad.append(number)
            return "skip"

        try:
            data.decode()
        except UnicodeDecodeError:
            data = decoded(data, tally).encode()
        try:
            table = csv.read_csv(
                pa.BufferReader(data),
                read_options=csv.ReadOptions(column_names=self._names, use_threads=False, block_size=max(len(data), 1)),
                parse_options=csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
                convert_options=csv.ConvertOptions(
                    include_columns=[self._column],
                    column_types={self._column: pa.large_string()},
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowException as error:
            raise _damaged(self._name, "csv", error) from error
        texts = table.column(0).to_pylist()
        # Rows that were skipped leave holes in the numbering.
        numbers = np.setdiff1d(np.arange(len(texts) + len(bad)), np.array(bad, np.int64))
        for run in np.split(np.arange(len(texts)), np.flatnonzero(np.diff(numbers) > 1) + 1):
            if len(run):
                yield whole([texts[i] for i in run], tally.num_records + int(numbers[run[0]]))
        tally.num_records += len(texts) + len(bad)


def record_blocks(chunks: Iterable[bytes], *, most_bytes: int, name: str) -> Iterator[bytes]:
    """csv cut anew so that each block ends with a record: at a newline outside quotes."""
    pending = b""
    for chunk in chunks:
        pending += chunk
        refuse_long(len(pending), most_bytes, name)
        cut = last_record_end(pending)
        if cut:
            yield pending[:cut]
            pending = pending[cut:]
    if pending:
        yield pending


def last_record_end(data: bytes) -> int:
    """Where the last whole csv record in `data`, which starts with a record, ends; 0 if none does."""
    buffer = np.frombuffer(data, np.uint8)
    newlines = np.flatnonzero(buffer == _NEWLINE)
    quotes_before = np.searchsorted(np.flatnonzero(buffer == _QUOTE), newlines)
    outside = newlines[quotes_before % 2 == 0]
    return int(outside[-1]) + 1 if len(outside) else 0


def header_names(head: bytes, *, name: str) -> tuple[list[str], int]:
    """The names in a csv header, and how many bytes it takes."""
    from pyarrow import csv

    buffer = np.frombuffer(head, np.uint8)
    newlines = np.flatnonzero(buffer == _NEWLINE)
    quotes_before = np.searchsorted(np.flatnonzero(buffer == _QUOTE), newlines)
    outside = newlines[quotes_before % 2 == 0]
    end = int(outside[0]) + 1 if len(outside) else len(head)
    try:
        names = csv.read_csv(pa.BufferReader(head[:end] + b"\n")).column_names
    except pa.ArrowException as error:
        raise _damaged(name, "csv", error) from error
    return names, end


def require_column(names: list[str], column: str, name: str) -> None:
    """An error that lists the columns there are, if `column` is not one of them."""
    if column not in names:
        raise InputError(
            f"{name}: no column {column!r}; it has {', '.join(names) or 'none'}: name one with --text_column"
        )


def _column_blocks(arrays: Iterable[Any], column: str, tally: Tally) -> Iterator[Block]:
    for array in arrays:
        first = tally.num_records
        try:
            values = array.cast(pa.large_string()).to_pylist()
        except UnicodeDecodeError:
            values = [decoded(v, tally) if v is not None else None for v in array.cast(pa.large_binary()).to_pylist()]
        except pa.ArrowException:
            values = [None] * len(array)
        texts: list[str] = []
        size = 0
        for number, value in enumerate(values, first):
            if value is None:
                tally.bad(number, "not_text", f"{column!r} is empty or no string")
            else:
                texts.append(value)
                size += len(value)
            if texts and (value is None or size >= BLOCK_BYTES):
                yield whole(texts, number + (value is not None) - len(texts))
                texts, size = [], 0
        tally.num_records += len(values)
        if texts:
            yield whole(texts, first + len(values) - len(texts))


def _damaged(name: str, kind: str, error: Exception) -> InputError:
    if isinstance(error, InputError):
        return error
    first = (str(error).splitlines() or ["unknown"])[0]
    return InputError(f"{name}: damaged or truncated {kind} ({first}); fetch it again and run the same command")

"""JSON → documents: one object a line, or one array or object a file.

A line that is not JSON, or lacks the column, is counted with its number and left out; it never ends the run by itself.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import numpy as np

from penstock.errors import InputError
from penstock.text.sources.block import BLOCK_BYTES, Block, Tally, whole
from penstock.text.sources.plain import decoded

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SPACE: Final = re.compile(r"[\s,]*")
_GIVE_UP_CHARACTERS: Final = 1 << 28
"""A JSON value that has not ended after this much text is not going to."""


class JsonLines:
    """Reads the column `column` of JSON lines. Fast while lines are good, exact about those that are not."""

    def __init__(self, column: str) -> None:
        self._column = column
        record = msgspec.defstruct("Record", [("text", str)], rename={"text": column}, gc=False)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(record)

    def blocks(self, line_blocks: Iterable[bytes], tally: Tally) -> Iterator[Block]:
        """The documents in blocks of lines."""
        for data in line_blocks:
            try:
                texts = [record.text for record in self._decoder.decode_lines(data)]
            except (msgspec.MsgspecError, UnicodeDecodeError):
                texts = []
            # Blank lines are skipped by the decoder, so lines and texts may not correspond.
            num_lines = int(np.count_nonzero(np.frombuffer(data, np.uint8) == 10)) + (not data.endswith(b"\n"))
            if len(texts) == num_lines:
                yield whole(texts, tally.num_records)
                tally.num_records += num_lines
            else:
                yield from self._carefully(data, tally)

    def _carefully(self, data: bytes, tally: Tally) -> Iterator[Block]:
        texts: list[str] = []
        first = tally.num_records
        lines = data.removesuffix(b"\n").split(b"\n")
        for number, line in enumerate(lines, first):
            filled = bool(line.strip())
            tally.num_blank += not filled
            text = self._text(line, number, tally) if filled else None
            if text is None:
                if texts:
                    yield whole(texts, first)
                texts, first = [], number + 1
            else:
                texts.append(text)
        if texts:
            yield whole(texts, first)
        tally.num_records += len(lines)

    def _text(self, line: bytes, number: int, tally: Tally) -> str | None:
        try:
            value = json.loads(decoded(line, tally))
        except (ValueError, RecursionError) as error:
            tally.bad(number, "not_json", f"not JSON: {error}")
            return None
        return column_text(value, self._column, number, tally)


def column_text(value: object, column: str, number: int, tally: Tally) -> str | None:
    """The text in `column` of one record, or None and a line in the tally."""
    if not isinstance(value, dict):
        tally.bad(number, "not_an_object", f"expected an object with {column!r}, got {type(value).__name__}")
        return None
    if column not in value:
        has = ", ".join(map(repr, list(value)[:8]))
        tally.bad(number, "missing_column", f"no column {column!r}; it has {has or 'none'}")
        return None
    text = value[column]
    if not isinstance(text, str):
        tally.bad(number, "not_text", f"{column!r} is {type(text).__name__}, expected a string")
        return None
    return repaired(text, tally)


def repaired(text: str, tally: Tally) -> str:
    """`text` with lone surrogates, which no encoding can write, as U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text, count = _SURROGATE.subn("\ufffd", text)
        tally.num_lone_surrogates += count
    return text


def json_values(chunks: Iterable[bytes], column: str, tally: Tally, *, name: str) -> Iterator[Block]:
    """The documents of a `.json` file: an array of objects, one object, or objects one after the other.

    Read value by value: memory is bounded by the largest value, not by the file.
    """
    texts: list[str] = []
    size, first = 0, 0
    for value in _values(_texts(chunks, tally), tally, name):
        text = column_text(value, column, tally.num_records, tally)
        tally.num_records += 1
        if text is not None:
            texts.append(text)
            size += len(text)
        if text is None or size >= BLOCK_BYTES:
            if texts:
                yield whole(texts, first)
            texts, size, first = [], 0, tally.num_records
    if texts:
        yield whole(texts, first)


def _values(incoming: Iterator[str], tally: Tally, name: str) -> Iterator[object]:
    decoder = json.JSONDecoder()
    buffer, at, inside_array, at_start = "", 0, False, True

    def refilled() -> bool:
        # As much again as is already there, so that a huge value is not parsed from its start for every chunk.
        nonlocal buffer, at
        parts, wanted = [buffer[at:]], max(1, len(buffer) - at)
        while wanted > 0 and (more := next(incoming, None)) is not None:
            parts.append(more)
            wanted -= len(more)
        buffer, at = "".join(parts), 0
        return len(parts) > 1

    def broken(what: object) -> InputError:
        return InputError(
            f"{name}: not JSON after record {tally.num_records}: {what}; mend the file and run the same command"
        )

    while True:
        at = _SPACE.match(buffer, at).end()  # type: ignore[union-attr]
        if at == len(buffer):
            if refilled():
                continue
            if inside_array:
                raise broken("the array is not closed, so the file is truncated")
            return
        if at_start and buffer[at] == "[":
            inside_array, at = True, at + 1
        elif inside_array and buffer[at] == "]":
            inside_array, at = False, at + 1
        else:
            try:
                value, end = decoder.raw_decode(buffer, at)
            except (ValueError, RecursionError) as error:
                if len(buffer) - at < _GIVE_UP_CHARACTERS and refilled():
                    continue
                raise broken(error) from error
            # A number at the very end may go on in the next chunk.
            if end == len(buffer) and refilled():
                continue
            yield value
            at = end
        at_start = False


def _texts(chunks: Iterable[bytes], tally: Tally) -> Iterator[str]:
    pending = b""
    for chunk in chunks:
        data = pending + chunk
        cut = len(data)
        while cut > len(data) - 4 and cut > 0 and data[cut - 1] >= 0x80:
            cut -= 1
            if data[cut] >= 0xC0:
                break
        pending = data[cut:]
        yield decoded(data[:cut], tally)
    if pending:
        yield decoded(pending, tally)

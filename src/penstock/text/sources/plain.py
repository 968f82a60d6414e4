"""Text files: one document each, or many between separators.

Documents larger than a block come in pieces, cut after a line where there is one, so that memory does not grow with
the document. No byte is lost between pieces: joined again they are the document.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from penstock.text.sources.block import BEGINS, BLOCK_BYTES, ENDS, MIDLINE, Block, Tally
from penstock.text.sources.streams import BOM

_SOFT_CUT: Final = re.compile("[!-~](?= [!-~])")
_SOFT_TRIES: Final = 1024
_SOFT_WINDOW: Final = 1 << 16
_MOST_PIECES: Final = 1 << 15


def decoded(data: bytes, tally: Tally) -> str:
    """`data` as text; sequences that are not UTF-8 become U+FFFD and are counted."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        text = data.decode(errors="replace")
        tally.num_invalid_utf8 += text.count("\ufffd") - data.count(b"\xef\xbf\xbd")
        return text


def one_document(chunks: Iterable[bytes], tally: Tally, *, begins: bool) -> Iterator[Block]:
    """The lines of one document, or of that part of it which `chunks` holds. `begins`: whether it starts here."""
    held = bytearray()
    part = BEGINS if begins else 0
    for chunk in chunks:
        # Cut only when more has come, so that the last piece is never empty.
        while len(held) >= BLOCK_BYTES:
            cut, midline = _cut(held, len(held))
            text = decoded(bytes(held[: cut if midline else cut - 1]), tally)
            yield _single(text, part | (MIDLINE if midline else 0))
            del held[:cut]
            part = 0
        held += chunk
    if held or begins:
        ends = ENDS if tally.at_eof else 0
        yield _single(decoded(bytes(held if ends else held[:-1]), tally), part | ends)
    tally.num_records += int(begins)


def separated_documents(
    chunks: Iterable[bytes], tally: Tally, *, separator: bytes, own_bytes: int | None
) -> Iterator[Block]:
    """The documents between separators in `chunks`, which start with one.

    Those that start in the first `own_bytes`, or all of them.
    """
    gathering = _Gathering()
    held = bytearray()
    part, record, scanned, offset = BEGINS, 0, 0, 0
    for chunk in chunks:
        held += chunk
        while (at := held.find(separator, scanned)) >= 0:
            if block := gathering.add(decoded(bytes(held[:at]), tally), part | ENDS, record):
                yield block
            del held[: at + len(separator)]
            offset += at + len(separator)
            part, record, scanned = BEGINS, record + 1, 0
            if own_bytes is not None and offset >= own_bytes:
                break
        if part == BEGINS and own_bytes is not None and offset >= own_bytes:
            break
        # A separator may have begun in the last bytes: they are looked at again, and not cut off.
        scanned = max(0, len(held) - len(separator) + 1)
        while scanned >= BLOCK_BYTES:
            cut, midline = _cut(held, scanned)
            text = decoded(bytes(held[: cut if midline else cut - 1]), tally)
            if block := gathering.add(text, part | (MIDLINE if midline else 0), record):
                yield block
            del held[:cut]
            part, scanned, offset = 0, scanned - cut, offset + cut
    else:
        # The last document ends with the file; after a final separator there is none.
        if held.strip() or part != BEGINS:
            if block := gathering.add(decoded(bytes(held), tally), part | ENDS, record):
                yield block
            record += 1
    if block := gathering.flush():
        yield block
    tally.num_records += record


def first_document(path: str, start: int, separator: bytes) -> int:
    """Where the first document that starts at or after the byte `start` starts, in the uncompressed file `path`.

    The same separators count whoever asks: among overlapping ones ("\\n\\n" in three newlines), the first and then
    every next that does not overlap it, from where the overlapping began.
    """
    if start == 0:
        # A byte-order mark is no text: the first document starts after it.
        with open(path, "rb") as file:
            return len(BOM) if file.read(len(BOM)) == BOM else 0
    size = len(separator)
    back = 1 << 12
    with open(path, "rb") as file:
        end = file.seek(0, 2)
        while True:
            origin = max(0, start - back)
            file.seek(origin)
            window = file.read(start - origin + size)
            touching = [m.start() for m in re.finditer(b"(?=" + re.escape(separator) + b")", window)]
            chain = _last_chain(touching, size)
            # A chain of overlaps that reaches the window's edge may have begun before it.
            if origin == 0 or not chain or chain[0] >= size:
                break
            back *= 2
        scan = origin + chain[0] if chain else max(origin, start - size + 1)
        file.seek(scan)
        held, base = file.read(1 << 20), scan
        while True:
            at = held.find(separator, scan - base)
            if at < 0:
                keep = max(0, len(held) - size + 1, scan - base)
                more = file.read(BLOCK_BYTES)
                if not more:
                    return end
                held, base, scan = held[keep:] + more, base + keep, max(scan, base + keep)
                continue
            scan = base + at + size
            if scan >= start:
                return scan


def _last_chain(positions: list[int], size: int) -> list[int]:
    first = len(positions) - 1
    while first > 0 and positions[first] - positions[first - 1] < size:
        first -= 1
    return positions[max(first, 0) :]


def in_pieces(block: Block) -> Iterator[Block]:
    """`block` with every long document in pieces, so that no later step holds more than a few megabytes of text."""
    long = [number for number, text in enumerate(block.texts) if len(text) > 2 * BLOCK_BYTES]
    done = 0
    for number in [*long, len(block.texts)]:
        if number > done:
            rows = slice(done, number)
            yield Block(block.texts[rows], block.parts[rows], block.records[rows])
        done = number + 1
        if number < len(block.texts):
            yield from _pieces(block.texts[number], int(block.parts[number]), int(block.records[number]))


def _pieces(text: str, part: int, record: int) -> Iterator[Block]:
    at, begins = 0, part & BEGINS
    while len(text) - at > 2 * BLOCK_BYTES:
        stop = text.rfind("\n", at, at + BLOCK_BYTES) + 1
        midline = not stop
        if midline:
            base = max(at, at + BLOCK_BYTES - _SOFT_WINDOW)
            stop = base + _soft_place(text[base : at + BLOCK_BYTES])
        yield _single(text[at : stop - (not midline)], begins | (MIDLINE if midline else 0), record)
        at, begins = stop, 0
    yield _single(text[at:], begins | part & (ENDS | MIDLINE), record)


def _single(text: str, part: int, record: int = 0) -> Block:
    return Block([text], np.array([part], np.uint8), np.array([record], np.int64))


class _Gathering:
    """Pieces on their way into a block of about BLOCK_BYTES."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._parts: list[int] = []
        self._records: list[int] = []
        self._size = 0

    def add(self, text: str, part: int, record: int) -> Block | None:
        self._texts.append(text)
        self._parts.append(part)
        self._records.append(record)
        self._size += len(text)
        return self.flush() if self._size >= BLOCK_BYTES or len(self._texts) >= _MOST_PIECES else None

    def flush(self) -> Block | None:
        if not self._texts:
            return None
        block = Block(self._texts, np.array(self._parts, np.uint8), np.array(self._records, np.int64))
        self._texts, self._parts, self._records, self._size = [], [], [], 0
        return block


def _cut(held: bytearray, most: int) -> tuple[int, bool]:
    """Where to cut at `most` or before it, and whether that is inside a line. Never zero, never inside a character."""
    newline = held.rfind(b"\n", 0, most) + 1
    if newline:
        return newline, False
    base = max(0, most - _SOFT_WINDOW)
    while base and held[base] & 0xC0 == 0x80:
        base -= 1
    # Bytes that are no text keep their places this way.
    window = held[base:most].decode(errors="surrogateescape")
    return base + len(window[: _soft_place(window)].encode(errors="surrogateescape")), True


def _soft_place(window: str) -> int:
    """Where a line may be cut so that its parts can be cleaned on their own: before a word, or between letters."""
    words = [match.end() for match in _SOFT_CUT.finditer(window)]
    if words:
        return words[-1]
    for place in range(len(window) - 1, max(0, len(window) - _SOFT_TRIES), -1):
        before, after = window[place - 1], window[place]
        apart = not unicodedata.combining(after) and unicodedata.is_normalized("NFC", before + after)
        if apart and not before.isspace() and not after.isspace() and not 0xDC80 <= ord(after) <= 0xDCFF:
            return place
    return max(1, len(window) - 4)

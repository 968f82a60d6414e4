"""Documents ↔ lines, in columns.

A line is what stands between newlines. Splitting and joining again gives the same bytes. Knows no files and no
tokens.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import polars_hash as plh
import pyarrow as pa
from numpy.typing import NDArray

from penstock.text.sources.block import BEGINS, ENDS, MIDLINE

_NEWLINE, _SPACE = 10, 32


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of some pieces of documents, one column for all of them."""

    text: pl.Series
    counts: NDArray[np.int64]
    """How many lines each piece has."""

    @property
    def pieces(self) -> NDArray[np.int64]:
        """Which piece each line belongs to."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def num_bytes(self) -> int:
        """Of the text, its newlines included."""
        return int(self.text.str.len_bytes().sum() or 0) + int(np.maximum(self.counts - 1, 0).sum())

    def kept(self, keep: NDArray[np.bool_]) -> "Lines":
        """The lines where `keep` is true."""
        if keep.all():
            return self
        counts = np.bincount(self.pieces[keep], minlength=len(self.counts)).astype(np.int64)
        return Lines(self.text.filter(pl.Series(keep)), counts)

    def joined(self) -> list[str | None]:
        """The text of each piece; None where no line is left, which is not the same as one blank line."""
        texts: list[str | None] = [None] * len(self.counts)
        full = np.flatnonzero(self.counts)
        if not len(full):
            return texts
        whole: str = self.text.str.join("\n").item()
        # All in one string, and cut again where the pieces end; in bytes unless every character is one.
        last_lines = np.cumsum(self.counts[full]) - 1
        ends = np.cumsum(self.text.str.len_bytes().to_numpy().astype(np.int64) + 1)[last_lines] - 1
        starts = np.concatenate([[0], ends[:-1] + 1])
        if whole.isascii():
            for piece, start, end in zip(full.tolist(), starts.tolist(), ends.tolist(), strict=True):
                texts[piece] = whole[start:end]
        else:
            data = whole.encode()
            for piece, start, end in zip(full.tolist(), starts.tolist(), ends.tolist(), strict=True):
                texts[piece] = data[start:end].decode()
        return texts


def split_lines(texts: list[str]) -> Lines:
    """The lines of `texts`. Every text has at least one, if only a blank one."""
    return lines_of(joined_bytes(texts))


@dataclass(frozen=True, slots=True)
class JoinedText:
    """Texts in UTF-8 with a newline between them."""

    data: bytes
    ends: NDArray[np.int64]
    """Where each text ends."""
    buffer: NDArray[np.uint8]
    """The same bytes as an array."""
    is_newline: NDArray[np.bool_]


def joined_bytes(texts: list[str]) -> JoinedText:
    """`texts` one after the other."""
    encoded = [text.encode() for text in texts]
    sizes = np.array([len(one) for one in encoded], np.int64)
    data = b"\n".join(encoded)
    buffer = np.frombuffer(data, np.uint8)
    return JoinedText(data, np.cumsum(sizes + 1) - 1, buffer, buffer == _NEWLINE)


@dataclass(frozen=True, slots=True)
class Removal:
    """Stretches of bytes to take out, in order, none of them over a newline."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    keep_one: NDArray[np.bool_]
    """Where one space stays in their place."""


def lines_of(joined: JoinedText, removal: Removal | None = None) -> Lines:
    """The lines of `joined`, without what is to be taken out."""
    newlines = np.flatnonzero(joined.is_newline)
    counts = np.diff(np.searchsorted(newlines, joined.ends), prepend=-1)
    # Columns of strings lie end to end: without the newlines, what is left is the column.
    ends = np.append(newlines, len(joined.data))
    ends -= np.arange(len(ends))
    if removal is None:
        column = joined.data.translate(None, b"\n")
    else:
        starts = removal.starts + removal.keep_one
        sizes = removal.stops - starts
        removed = np.zeros(len(ends), np.int64)
        np.add.at(removed, np.searchsorted(newlines, removal.starts), sizes)
        ends -= np.cumsum(removed)
        keep = ~joined.is_newline
        keep[np.repeat(removal.stops - np.cumsum(sizes), sizes) + np.arange(sizes.sum())] = False
        spaced = joined.buffer.copy()
        spaced[removal.starts[removal.keep_one]] = _SPACE
        column = spaced[keep].tobytes()
    offsets = np.concatenate([[0], ends])
    array = pa.LargeStringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(column))
    return Lines(pl.Series("text", array), counts)


def without_spare_blanks(lines: Lines, parts: NDArray[np.uint8]) -> Lines:
    """At most one blank line in a row, none at either end of a document."""
    counts = lines.counts
    if not len(lines.text):
        return lines
    is_blank = (lines.text.str.len_bytes() == 0).to_numpy()
    has = counts > 0
    firsts = (np.cumsum(counts) - counts)[has]
    after_blank = np.empty_like(is_blank)
    after_blank[1:] = is_blank[:-1]
    # What stands before a document's first line counts as blank, so that leading blank lines go.
    after_blank[firsts] = parts[has] & BEGINS != 0
    keep = ~(is_blank & after_blank)
    numbers = np.arange(len(is_blank))
    last_full = np.maximum.reduceat(np.where(is_blank, -1, numbers), firsts)
    last_full = np.where(parts[has] & ENDS != 0, last_full, len(is_blank))
    keep &= ~is_blank | (numbers < np.repeat(last_full, counts[has]))
    return lines.kept(keep)


def comparable(lines: Lines, parts: NDArray[np.uint8], *, clean: bool, after_midline: bool) -> NDArray[np.bool_]:
    """Which lines can be duplicates: those that are not blank and not cut in two.

    `clean`: a blank line is an empty one. `after_midline`: the first line is the rest of one.
    """
    can = (lines.text.str.len_bytes() > 0).to_numpy() if clean else ~_blank(lines)
    can = can.copy()
    ends = np.cumsum(lines.counts)
    cut = np.flatnonzero((parts & MIDLINE != 0) & (lines.counts > 0))
    can[ends[cut] - 1] = False
    following = cut + 1
    following = following[following < len(parts)]
    can[(ends - lines.counts)[following]] = False
    if after_midline and len(can):
        can[0] = False
    return can


def _blank(lines: Lines) -> NDArray[np.bool_]:
    """Which lines hold nothing but spaces and tabs."""
    sizes = lines.text.str.len_bytes().to_numpy()
    starts = lines.text.str.slice(0, 1)
    blank: NDArray[np.bool_] = sizes == 0
    # Most lines that start with a blank go on with something else; only these have to be looked at.
    doubtful = np.flatnonzero(((starts == " ") | (starts == "\t")).to_numpy())
    if len(doubtful):
        some = lines.text.gather(pl.Series(doubtful)).str.strip_chars_start(" \t").str.len_bytes()
        blank[doubtful] = (some == 0).to_numpy()
    return blank


def digests(texts: pl.Series) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The 128-bit hash (XXH3) of each text: low and high half."""
    frame: Any = texts.rename("text").to_frame()
    whole = frame.select(plh.col("text").nchash.xxh3_128()).to_series()
    low = whole.cast(pl.UInt64, strict=False, wrap_numerical=True).to_numpy()
    high = (whole // (1 << 64)).cast(pl.UInt64).to_numpy()
    return low, high

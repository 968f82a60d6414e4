"""What `prepare` does to text before anything else, unless it is told not to.

Unicode NFC; every kind of newline becomes one; control characters go; blanks at the end of a line go, runs of blanks
inside it become one space, indentation stays; at most one blank line in a row, none at the ends of a document.
Cleaning twice gives the same as cleaning once. Looks at nothing but the text.
"""

import re
import unicodedata
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from penstock.text.lines import Lines, split_lines, without_spare_blanks

_NEWLINES: Final = re.compile("\r\n|[\r\x85\u2028\u2029]")
_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
_RARE_UTF8: Final = re.compile(rb"\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]")
_TAB, _NEWLINE, _SPACE, _DELETE = 9, 10, 32, 127


def cleaned(texts: list[str], parts: NDArray[np.uint8]) -> Lines:
    """The lines of `texts`, clean."""
    texts = [text if text.isascii() else unicodedata.normalize("NFC", text) for text in texts]
    joined = "\n".join(texts)
    data = joined.encode()
    buffer = np.frombuffer(data, np.uint8)
    if _has_rare_characters(data, buffer, ascii_only=joined.isascii()):
        texts = [_CONTROLS.sub("", _NEWLINES.sub("\n", text)) for text in texts]
        # Taking a control character out can bring two characters together that compose.
        texts = [text if text.isascii() else unicodedata.normalize("NFC", text) for text in texts]
        buffer = np.frombuffer("\n".join(texts).encode(), np.uint8)
    lines = split_lines(texts)
    text = _single_spaced(lines.text.str.strip_chars_end(" \t"), buffer)
    return without_spare_blanks(Lines(text, lines.counts), parts)


def _has_rare_characters(data: bytes, buffer: NDArray[np.uint8], *, ascii_only: bool) -> bool:
    controls = np.count_nonzero(buffer < _SPACE) - np.count_nonzero(buffer == _NEWLINE) - np.count_nonzero(buffer == _TAB)
    if controls or _DELETE in data:
        return True
    return not ascii_only and _RARE_UTF8.search(data) is not None


def _single_spaced(text: pl.Series, buffer: NDArray[np.uint8]) -> pl.Series:
    """`text` with runs of blanks inside a line made one space. `buffer`: the same lines as bytes, before trimming."""
    is_blank = (buffer == _SPACE) | (buffer == _TAB)
    # A run that starts after something else than a newline, and goes on: few lines have one, only those are touched.
    starts = is_blank[1:-1] & is_blank[2:] & ~is_blank[:-2] & (buffer[:-2] != _NEWLINE)
    places = np.flatnonzero(starts)
    if not len(places):
        return text
    touched = np.unique(np.searchsorted(np.flatnonzero(buffer == _NEWLINE), places))
    mended = text.gather(pl.Series(touched)).str.replace_all(r"([^ \t])[ \t]{2,}", "${1} ")
    source = np.arange(len(text), dtype=np.int64)
    source[touched] = len(text) + np.arange(len(touched))
    return pl.concat([text, mended]).gather(pl.Series(source))

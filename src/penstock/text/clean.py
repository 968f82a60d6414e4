"""What `prepare` does to text before anything else, unless it is told not to.

Unicode NFC; every kind of newline becomes one; control characters go; blanks at the end of a line go, runs of blanks
inside it become one space, indentation stays; at most one blank line in a row, none at the ends of a document.
Cleaning twice gives the same as cleaning once. Looks at nothing but the text.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.text.lines import JoinedText, Lines, Removal, joined_bytes, lines_of, without_spare_blanks
from penstock.text.sources.block import ENDS, MIDLINE

_NEWLINES: Final = re.compile("\r\n|[\r\x85\u2028\u2029]")
_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
_BLANKS: Final = re.compile(rb"[ \t]+")
_SHORT_RUN: Final = 32
_TAB, _NEWLINE, _SPACE, _DELETE = 9, 10, 32, 127


def cleaned(texts: list[str], parts: NDArray[np.uint8]) -> Lines:
    """The lines of `texts`, clean."""
    texts = [text if text.isascii() else unicodedata.normalize("NFC", text) for text in texts]
    joined = joined_bytes(texts)
    if _has_rare_characters(joined):
        # A piece cut after "\r\n" ends with the "\r" of that one newline.
        cut = (parts & (ENDS | MIDLINE) == 0).tolist()
        texts = [text.removesuffix("\r") if after else text for text, after in zip(texts, cut, strict=True)]
        texts = [_CONTROLS.sub("", _NEWLINES.sub("\n", text)) for text in texts]
        # Taking a control character out can bring two characters together that compose.
        texts = [text if text.isascii() else unicodedata.normalize("NFC", text) for text in texts]
        joined = joined_bytes(texts)
    return without_spare_blanks(lines_of(joined, _spare_blanks(joined)), parts)


def _has_rare_characters(joined: JoinedText) -> bool:
    buffer, data = joined.buffer, joined.data
    below_space = np.count_nonzero(buffer < _SPACE) - np.count_nonzero(joined.is_newline)
    if (below_space and below_space > data.count(b"\t")) or _DELETE in data:
        return True
    if data.isascii():
        return False
    # U+0080 to U+009F are C2 80 to C2 9F; U+2028 and U+2029 are E2 80 A8 and E2 80 A9. Every lead byte has its rest.
    c1 = np.flatnonzero(buffer == 0xC2)
    separators = np.flatnonzero(buffer == 0xE2)
    is_separator = (buffer[separators + 1] == 0x80) & (buffer[separators + 2] & 0xFE == 0xA8)
    return bool((buffer[c1 + 1] < 0xA0).any() or is_separator.any())


def _spare_blanks(joined: JoinedText) -> Removal | None:
    """What to take out so that no line ends with blanks and runs of blanks inside lines are one space."""
    # A newline on either side saves the special cases of the first and last byte.
    blank = np.zeros(len(joined.data) + 2, bool)
    np.equal(joined.buffer, _SPACE, out=blank[1:-1])
    if b"\t" in joined.data:
        blank[1:-1] |= joined.buffer == _TAB
    newline = np.ones(len(joined.data) + 2, bool)
    newline[1:-1] = joined.is_newline
    # Places count from the byte before the text: runs inside a line, single blanks at its end, and blank lines.
    inside = np.flatnonzero(blank[1:-1] & blank[2:] & ~(blank[:-2] | newline[:-2])) + 1
    at_end = np.flatnonzero(blank[1:-1] & newline[2:]) + 1
    blank_lines = _blank_lines(blank, newline, at_end[blank[at_end - 1]])
    starts = np.sort(np.concatenate([inside, at_end[~blank[at_end - 1]], blank_lines]))
    if not len(starts):
        return None
    stops = _run_ends(blank, starts, lambda: b"\n" + joined.data + b"\n")
    keep_one = ~newline[stops]
    return Removal(starts - 1, stops - 1, keep_one)


def _run_ends(blank: NDArray[np.bool_], starts: NDArray[np.int64], data: Callable[[], bytes]) -> NDArray[np.int64]:
    """Where the runs of blanks that start at `starts` end."""
    stops = starts + 1
    growing = np.flatnonzero(blank[stops])
    for _ in range(_SHORT_RUN):
        if not len(growing):
            return stops
        stops[growing] += 1
        growing = growing[blank[stops[growing]]]
    text = data()
    for run in growing.tolist():
        match = _BLANKS.match(text, int(starts[run]))
        assert match is not None
        stops[run] = match.end()
    return stops


def _blank_lines(blank: NDArray[np.bool_], newline: NDArray[np.bool_], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where lines of two or more blanks and nothing else start; `last` are the last blanks before newlines."""
    if not len(last):
        return last
    newlines = np.flatnonzero(newline)
    starts = newlines[np.searchsorted(newlines, last) - 1] + 1
    full = [bool(blank[start : end + 1].all()) for start, end in zip(starts.tolist(), last.tolist(), strict=True)]
    found: NDArray[np.int64] = starts[np.array(full, bool)]
    return found

"""Where a long text can be cut so that no id changes.

Encoding the two sides on their own must give the ids of the whole. Candidates are places where words end; each is
tried on the text around it before it is used. A text that has no such place is not cut.
"""

import re
from itertools import islice
from typing import Final

import numpy as np

from penstock.text.tokenizers.base import Tokenizer

_AFTER_LINE: Final = re.compile(r"(?<=[!-~]\n)(?=[A-Za-z])")
_BEFORE_WORD: Final = re.compile(r"(?<=[A-Za-z])(?= [A-Za-z])")
_AROUND: Final = 256
"""Characters on each side that a candidate is tried on: far more than any word of a pre-tokenizer spans there."""
_WINDOW: Final = 1 << 16
_TRIES: Final = 4
_FORCED_MARGIN: Final = 1 << 15


def last_cut(text: str, tokenizer: Tokenizer) -> int:
    """The last good place to cut `text` that was found, or 0."""
    if tokenizer.context_free:
        # Blank lines on both sides of a cut may have to become one.
        return len(text.rstrip("\n"))
    last = len(text) - _AROUND
    for start in (max(0, last - _WINDOW), 0):
        for pattern in (_AFTER_LINE, _BEFORE_WORD):
            places = [match.start() for match in pattern.finditer(text, start, max(0, last))]
            for place in places[: -_TRIES - 1 : -1]:
                if place and _is_good(text, place, tokenizer):
                    return place
        if start == 0:
            break
    return 0


def first_cut(text: str, tokenizer: Tokenizer) -> int | None:
    """The first good place to cut `text`, which may start inside a word, or None."""
    if tokenizer.context_free:
        return len(text) - len(rest) if (rest := text.lstrip("\n")) else None
    for pattern in (_AFTER_LINE, _BEFORE_WORD):
        matches = pattern.finditer(text, _AROUND, max(_AROUND, len(text) - _AROUND))
        for match in islice(matches, _TRIES):
            if _is_good(text, match.start(), tokenizer):
                return match.start()
    return None


def forced_cut(text: str, tokenizer: Tokenizer) -> int:
    """A place to cut a text that has no word ends at all, or 0.

    The ids of a byte-level BPE say where they end. A boundary far from the end of `text` is a boundary of any text
    that goes on from it; cutting at a boundary leaves both sides as they were, because merges never crossed it.
    """
    if tokenizer.token_bytes is None:
        return 0
    ids, _ = tokenizer.encode([text])
    data = text.encode()
    ends = np.cumsum(tokenizer.token_bytes[ids])
    if not len(ends) or int(ends[-1]) != len(data):
        return 0
    for end in ends[: np.searchsorted(ends, len(data) - _FORCED_MARGIN)][::-1][:64].tolist():
        if data[end] & 0xC0 != 0x80:
            place = len(data[:end].decode())
            return place if _is_good(text, place, tokenizer) else 0
    return 0


def _is_good(text: str, place: int, tokenizer: Tokenizer) -> bool:
    before = text[max(0, place - _AROUND) : place]
    after = text[place : place + _AROUND]
    ids, offsets = tokenizer.encode([before + after, before, after])
    whole, parts = ids[: offsets[1]], ids[offsets[1] :]
    return bool(np.array_equal(whole, parts))

"""Documents that come in pieces → ids, as if they had come whole.

Holds at most a few megabytes of text, whatever the document. A unit that holds the middle of a document leaves the
text at its two ends for `joined_seam`, because what is there may belong to a word of the neighbour's.
"""

import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.text.cuts import first_cut, forced_cut, last_cut
from penstock.text.tokenizers.base import Tokenizer

KEY_CHARACTERS: Final = 1 << 18
"""A document's split is decided by a hash of at most this much of its beginning."""
CHUNK_CHARACTERS: Final = 1 << 20
_UNBROKEN_CHARACTERS: Final = 1 << 21
_SPARE_BLANKS: Final = re.compile("\n{3,}")


class PieceEncoder:
    """Encodes one document piece by piece. `write` is given ids in order."""

    def __init__(
        self, tokenizer: Tokenizer, write: Callable[[NDArray[Any]], None], *, normalize: bool, begins: bool
    ) -> None:
        self._tokenizer, self._write, self._normalize = tokenizer, write, normalize
        self._held = ""
        self._at_start = begins
        self._seeking_head = not begins
        self._uncuttable = False
        self.head: str | None = None
        """Text before the first good cut of a document that began elsewhere; None when it began here."""
        self.prefix = ""
        self.num_tokens = 0
        self.num_bytes = 0
        """UTF-8 bytes of the text that was encoded."""
        self._glue = ""
        self._empty = True

    def feed(self, text: str | None, *, midline: bool) -> None:
        """The next piece; None if nothing is left of it. `midline`: the piece after it follows without a newline."""
        if text is None:
            return
        if not self._empty:
            text = self._glue + text
        if self._at_start and self._normalize and self._empty:
            text = text.lstrip("\n")
            if not text:
                return
        self._empty = False
        self._glue = "" if midline else "\n"
        self._held += text
        if self._normalize and "\n\n\n" in self._held:
            self._held = _SPARE_BLANKS.sub("\n\n", self._held)
        if self._seeking_head and (cut := first_cut(self._held, self._tokenizer)) is not None:
            self.head = self._take(cut)
            self._seeking_head = False
        while not self._seeking_head and not self._uncuttable and len(self._held) > CHUNK_CHARACTERS:
            cut = last_cut(self._held[:CHUNK_CHARACTERS], self._tokenizer)
            if not cut and len(self._held) >= _UNBROKEN_CHARACTERS:
                cut = forced_cut(self._held[:_UNBROKEN_CHARACTERS], self._tokenizer)
                # Some tokenizers look at the whole text: then the document is encoded in one go, whatever its size.
                self._uncuttable = not cut
            if not cut:
                break
            self._encode(self._take(cut))

    def end(self) -> bool:
        """The document ends here. Whether it has any text; if so, its EOS is written, unless all of it is `head`."""
        if self._normalize:
            self._held = self._held.rstrip("\n")
        if self._seeking_head:
            self.head = self._take(len(self._held))
            return True
        if self._empty or (not self._held and not self.num_tokens):
            return False
        if self._held:
            self._encode(self._take(len(self._held)))
        self._write(np.array([self._tokenizer.eos_id], np.uint32))
        self.num_tokens += 1
        return True

    def leave_open(self) -> str:
        """The document goes on in the next unit. The text after the last good cut, which is not encoded here."""
        if self._seeking_head:
            self.head = self._take(len(self._held))
            return ""
        if cut := last_cut(self._held, self._tokenizer):
            self._encode(self._take(cut))
        return self._take(len(self._held))

    @property
    def all_head(self) -> bool:
        """Whether no good cut was found: everything is in `head`."""
        return self._seeking_head

    @property
    def empty(self) -> bool:
        """Whether no text has come."""
        return self._empty

    def _take(self, count: int) -> str:
        text, self._held = self._held[:count], self._held[count:]
        if len(self.prefix) < KEY_CHARACTERS:
            self.prefix += text[: KEY_CHARACTERS - len(self.prefix)]
        return text

    def _encode(self, text: str) -> None:
        ids, _ = self._tokenizer.encode([text])
        self._write(ids)
        self.num_tokens += len(ids)
        self.num_bytes += len(text.encode())

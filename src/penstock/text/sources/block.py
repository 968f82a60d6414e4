"""A batch of documents on its way through the pipeline, and the tally of what was read.

Holds data and counts, and decides nothing.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES: Final = 2 << 20
"""About how much text is in flight at once in each worker."""

BEGINS: Final = 1
"""A document begins with this piece."""
ENDS: Final = 2
"""A document ends with this piece."""
WHOLE: Final = BEGINS | ENDS
MIDLINE: Final = 4
"""The piece was cut inside a line: the next one follows without a newline between them."""


@dataclass(frozen=True, slots=True)
class Block:
    """Pieces of documents, most of them whole documents, in order."""

    texts: list[str]
    parts: NDArray[np.uint8]
    """BEGINS, ENDS, MIDLINE: how each piece stands in its document."""
    records: NDArray[np.int64]
    """Which record of its part of the file each piece came from, from 0."""


def whole(texts: list[str], first_record: int) -> Block:
    """A block of whole documents with consecutive records."""
    return Block(
        texts,
        np.full(len(texts), WHOLE, np.uint8),
        np.arange(first_record, first_record + len(texts), dtype=np.int64),
    )


@dataclass(slots=True)
class Tally:
    """What a worker saw while reading one part of a file."""

    num_bytes: int = 0
    """Bytes of the file that belong to this part, as stored."""
    num_records: int = 0
    """Lines, rows or documents that this part holds, good and bad: the next part counts on from here."""
    num_blank: int = 0
    """Records that hold nothing, such as blank lines of jsonl."""
    num_bad: dict[str, int] = field(default_factory=dict)
    bad_examples: list[tuple[int, str]] = field(default_factory=list)
    """The first few bad records: number in this part and what is wrong."""
    num_invalid_utf8: int = 0
    num_lone_surrogates: int = 0
    at_eof: bool = False
    """Whether the last line read is the file's last."""
    digest: str = ""
    """BLAKE3 of the stored bytes of this part."""

    def bad(self, record: int, reason: str, detail: str) -> None:
        """Counts a record that cannot be used."""
        self.num_bad[reason] = self.num_bad.get(reason, 0) + 1
        if len(self.bad_examples) < 5:
            self.bad_examples.append((record, detail[:200]))

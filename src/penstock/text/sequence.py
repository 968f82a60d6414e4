"""The documents of all units, in the order of the inputs, whole again.

A document that spans units is put together here: the ids that each unit wrote, and between them the ids of the text
at the seams, which no unit could encode on its own.
"""

import re
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.text.assemble import Documents, joined_documents
from penstock.text.encode import TOKEN_FILES, falls_into_val, split_keys
from penstock.text.pieces import KEY_CHARACTERS
from penstock.text.tokenizers import Tokenizer

_SPARE_BLANKS: Final = re.compile("\n{3,}")


class DocumentSequence:
    """Takes units in order; gives documents in order, each with the split that its key decides."""

    def __init__(
        self, tokenizer: Tokenizer, *, seed: int, val_fraction: float, normalize: bool, dtype: str, seam_path: Path
    ) -> None:
        self._tokenizer, self._seed, self._normalize = tokenizer, seed, normalize
        self._val_fraction = val_fraction
        self._dtype, self._seam_path = np.dtype(dtype), seam_path
        self._seam_tokens = 0
        self._open: _OpenDocument | None = None
        self.scattered: list[list[tuple[Path, int, int]]] = []
        """Where the tokens of each document that lies in several places are."""
        self.num_dropped = 0
        """Documents over several units of which nothing was left."""
        self.num_bytes = 0
        """UTF-8 bytes of the text that was encoded here."""
        seam_path.unlink(missing_ok=True)

    def add(
        self, unit: int, tokens: Path, columns: dict[str, NDArray[Any]], gap: dict[str, Any] | None
    ) -> tuple[Documents, Documents]:
        """The documents that are complete with this unit: those for train and those for val.

        `gap` is what the unit says of a document that began before it or goes on after it.
        """
        sizes, place = columns["num_tokens"], columns["place"]
        starts = np.empty(len(sizes), np.int64)
        for number in range(len(TOKEN_FILES)):
            inside = sizes[place == number]
            starts[place == number] = np.cumsum(inside) - inside
        files = unit * len(TOKEN_FILES) + place
        documents = Documents(files, starts, sizes, columns["source"], columns["record"])
        keys = columns["key"]
        if gap is not None:
            # Only a text file that is one document spans units, and then each unit holds nothing else.
            documents, keys = self._continued(documents, tokens, gap)
        val = falls_into_val(keys, self._val_fraction)
        return documents[~val], documents[val]

    def _continued(self, row: Documents, tokens: Path, gap: dict[str, Any]) -> tuple[Documents, NDArray[np.uint64]]:
        if gap["begins"]:
            self._open = _OpenDocument(int(row.source[0]), int(row.record[0]))
        document = self._open
        assert document is not None, "a unit continues a document that none began"
        own = (tokens, 0, int(row.num_tokens[0]))
        if not gap["empty"]:
            if len(document.prefix) < KEY_CHARACTERS:
                joint = "\n" if document.has_text else ""
                document.prefix = (document.prefix + joint + gap["prefix"])[:KEY_CHARACTERS]
            if gap["begins"]:
                document.runs.append(own)
            else:
                self._carry(document, gap["head"])
                if not gap["all_head"]:
                    self._encode_carry(document)
                    document.runs.append(own)
            if not gap["all_head"]:
                document.carry = gap["tail"]
            document.has_text = True
        if not gap["ends"]:
            return row[:0], np.empty(0, np.uint64)
        self._open = None
        if gap["all_head"] or gap["empty"]:
            # No unit could write the end of text: it belongs after the last seam.
            if self._normalize:
                document.carry = document.carry.rstrip("\n")
            self._encode_carry(document, end=True)
        return self._whole(document)

    def _carry(self, document: "_OpenDocument", head: str) -> None:
        if self._normalize and not document.has_text:
            head = head.lstrip("\n")
        document.carry += ("\n" if document.has_text else "") + head
        if self._normalize:
            document.carry = _SPARE_BLANKS.sub("\n\n", document.carry)

    def _encode_carry(self, document: "_OpenDocument", *, end: bool = False) -> None:
        ids, _ = self._tokenizer.encode([document.carry])
        self.num_bytes += len(document.carry.encode())
        if end and (document.has_text or len(ids)):
            ids = np.append(ids, np.uint32(self._tokenizer.eos_id))
        document.carry = ""
        if len(ids):
            with open(self._seam_path, "ab") as file:
                file.write(ids.astype(self._dtype).tobytes())
            document.runs.append((self._seam_path, self._seam_tokens, len(ids)))
            self._seam_tokens += len(ids)

    def _whole(self, document: "_OpenDocument") -> tuple[Documents, NDArray[np.uint64]]:
        runs = [run for run in document.runs if run[2]]
        num_tokens = sum(run[2] for run in runs)
        # Nothing but the end of text: everything in it was a duplicate.
        if not document.has_text or num_tokens <= 1:
            self.num_dropped += 1
            return joined_documents([]), np.empty(0, np.uint64)
        self.scattered.append(runs)
        columns = (-1, len(self.scattered) - 1, num_tokens, document.source, document.record)
        return Documents(*(np.array([value], np.int64) for value in columns)), split_keys([document.prefix], self._seed)


class _OpenDocument:
    """A document of which more is to come."""

    def __init__(self, source: int, record: int) -> None:
        self.source, self.record = source, record
        self.runs: list[tuple[Path, int, int]] = []
        self.carry = ""
        self.prefix = ""
        self.has_text = False

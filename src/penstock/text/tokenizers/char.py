"""One id for each character that the corpus has."""

import json
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_PLANES: Final = 0x110000


class CharTokenizer:
    """Ids follow the order of code points; then one for characters not in the vocabulary, then EOS."""

    name: Final = "char"
    eos_token: Final = "<|endoftext|>"
    lossless: Final = True
    context_free: Final = True
    token_bytes: Final = None
    warnings: Final[tuple[str, ...]] = ()
    backend: Final = "penstock"
    version: Final = "1"

    def __init__(self, characters: str) -> None:
        points = np.unique(np.frombuffer(characters.encode("utf-32-le"), np.uint32))
        self._points = points
        self.unknown_id = len(points)
        self.eos_id = len(points) + 1
        self.vocab_size = len(points) + 2
        self._ids = np.full(_PLANES, self.unknown_id, np.uint32)
        self._ids[points] = np.arange(len(points), dtype=np.uint32)

    def encode(self, texts: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        points = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
        return self._ids[points], np.cumsum([0, *map(len, texts)], dtype=np.int64)

    def decode(self, ids: NDArray[Any]) -> str:
        table = np.append(self._points, np.array([0xFFFD], np.uint32))
        return str(table[ids[ids != self.eos_id]].astype("<u4").tobytes().decode("utf-32-le"))

    def state_json(self) -> str:
        characters = self._points.astype("<u4").tobytes().decode("utf-32-le")
        return json.dumps({"kind": "char", "characters": characters, "eos_token": self.eos_token}, ensure_ascii=False)

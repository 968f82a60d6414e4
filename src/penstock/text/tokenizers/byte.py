"""One id for each byte of UTF-8."""

import json
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray


class ByteTokenizer:
    """Ids 0–255 are bytes, 256 is EOS."""

    name: Final = "byte"
    eos_id: Final = 256
    eos_token: Final = "<|endoftext|>"
    vocab_size: Final = 257
    lossless: Final = True
    context_free: Final = True
    token_bytes: Final = None
    warnings: Final[tuple[str, ...]] = ()
    backend: Final = "penstock"
    version: Final = "1"

    def encode(self, texts: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        data = [text.encode() for text in texts]
        offsets = np.cumsum([0, *map(len, data)], dtype=np.int64)
        return np.frombuffer(b"".join(data), np.uint8).astype(np.uint32), offsets

    def decode(self, ids: NDArray[Any]) -> str:
        return ids[ids < self.eos_id].astype(np.uint8).tobytes().decode(errors="replace")

    def state_json(self) -> str:
        return json.dumps({"kind": "byte", "eos_token": self.eos_token, "eos_id": self.eos_id})

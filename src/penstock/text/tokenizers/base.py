"""What a tokenizer is here, and how one is rebuilt from `tokenizer_state.json`.

Special tokens that stand in the text are text: only `prepare` writes an EOS, and only at the end of a document.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from penstock.errors import TokenizerError


class Tokenizer(Protocol):
    """Text → ids and back. A value: encoding changes nothing."""

    name: str
    eos_id: int
    eos_token: str
    vocab_size: int
    lossless: bool
    """Whether decoding gives back the text to the byte."""
    context_free: bool
    """Whether every character is encoded on its own, so that a text may be cut anywhere."""
    token_bytes: NDArray[np.int64] | None
    """How many bytes each id stands for, where that can be said."""
    backend: str
    version: str

    def encode(self, texts: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """All ids end to end, and where each text's ids start and the last one's end."""
        ...

    def decode(self, ids: NDArray[Any]) -> str:
        """The text that `ids` stand for."""
        ...

    def state(self) -> dict[str, Any]:
        """Enough to rebuild the tokenizer offline, as JSON."""
        ...


def state_hash(state: dict[str, Any]) -> str:
    """BLAKE3 of everything that decides an id; the name a user chose is not part of it."""
    deciding = {key: value for key, value in state.items() if key not in ("name", "hash")}
    canonical = json.dumps(deciding, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return str(blake3(canonical.encode()).hexdigest())


@dataclass(frozen=True, slots=True)
class StateFile:
    """`tokenizer_state.json`: its bytes, and the hash of what they describe."""

    data: bytes
    hash: str


def state_file(tokenizer: Tokenizer) -> StateFile:
    """What to write for `tokenizer`."""
    state = tokenizer.state()
    digest = state_hash(state)
    return StateFile((json.dumps({"hash": digest, **state}, ensure_ascii=False) + "\n").encode(), digest)


def tokenizer_from_state(path: Path, *, backend: str | None = None) -> Tokenizer:
    """The tokenizer that `path`, a `tokenizer_state.json`, describes. `backend`: the one to use, if a choice exists."""
    try:
        state = json.loads(path.read_bytes())
        if state["hash"] != state_hash(state):
            raise TokenizerError(f"{path}: its hash does not fit its content; prepare or pull the dataset again")
        kind = state["kind"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TokenizerError(f"{path}: not a tokenizer state ({error}); prepare or pull the dataset again") from error
    if kind == "byte":
        from penstock.text.tokenizers.byte import ByteTokenizer

        return ByteTokenizer()
    if kind == "char":
        from penstock.text.tokenizers.char import CharTokenizer

        return CharTokenizer(state["characters"])
    if kind == "tokenizer.json":
        from penstock.text.tokenizers.json_file import JsonTokenizer

        return JsonTokenizer(state["tokenizer"], name=state["name"], eos_token=state["eos_token"], backend=backend)
    raise TokenizerError(f"{path}: unknown kind {kind!r}; upgrade Penstock")

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

    @property
    def name(self) -> str: ...

    @property
    def eos_id(self) -> int: ...

    @property
    def eos_token(self) -> str: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def lossless(self) -> bool:
        """Whether decoding gives back the text to the byte."""
        ...

    @property
    def context_free(self) -> bool:
        """Whether every character is encoded on its own, so that a text may be cut anywhere."""
        ...

    @property
    def token_bytes(self) -> NDArray[np.int64] | None:
        """How many bytes each id stands for, where that can be said."""
        ...

    @property
    def backend(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know of the choice that was made."""
        ...

    def encode(self, texts: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """All ids end to end, and where each text's ids start and the last one's end."""
        ...

    def decode(self, ids: NDArray[Any]) -> str:
        """The text that `ids` stand for."""
        ...

    def state_json(self) -> str:
        """Everything that decides an id, as the text of a JSON object: enough to rebuild the tokenizer offline."""
        ...


@dataclass(frozen=True, slots=True)
class StateFile:
    """`tokenizer_state.json`: its bytes, and the hash of what they describe."""

    data: bytes
    hash: str


def state_file(tokenizer: Tokenizer) -> StateFile:
    """What to write for `tokenizer`: hash and name, and then the very text that is hashed."""
    state = tokenizer.state_json()
    digest = _hashed(state)
    return StateFile((_prefix(digest, tokenizer.name) + state[1:] + "\n").encode(), digest)


def tokenizer_from_state(path: Path, *, backend: str | None = None) -> Tokenizer:
    """The tokenizer that `path`, a `tokenizer_state.json`, describes. `backend`: the one to use, if a choice exists."""
    try:
        text = path.read_text("utf-8")
        state = json.loads(text)
        digest, name, kind = state["hash"], state["name"], state["kind"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TokenizerError(f"{path}: not a tokenizer state ({error}); prepare or pull the dataset again") from error
    prefix = _prefix(digest, name)
    if not text.startswith(prefix) or _hashed("{" + text[len(prefix) :].rstrip("\n")) != digest:
        raise TokenizerError(f"{path}: its hash does not fit its content; prepare or pull the dataset again")
    if kind == "byte":
        from penstock.text.tokenizers.byte import ByteTokenizer

        return ByteTokenizer()
    if kind == "char":
        from penstock.text.tokenizers.char import CharTokenizer

        return CharTokenizer(state["characters"])
    if kind == "tokenizer.json":
        from penstock.text.tokenizers.json_file import JsonTokenizer

        return JsonTokenizer(state["tokenizer"], name=name, eos_token=state["eos_token"], backend=backend)
    raise TokenizerError(f"{path}: unknown kind {kind!r}; upgrade Penstock")


def _prefix(digest: object, name: object) -> str:
    return json.dumps({"hash": digest, "name": name}, ensure_ascii=False)[:-1] + ", "


def _hashed(state: str) -> str:
    return str(blake3(state.encode()).hexdigest())

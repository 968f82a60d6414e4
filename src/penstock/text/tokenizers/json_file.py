"""Any tokenizer that a Hugging Face `tokenizer.json` describes, on the fastest backend that gives the same ids.

`fastokens` encodes; `tokenizers` is the reference that it is compared with, and the way back when they differ.
"""

import json
from functools import cached_property
from importlib.metadata import version
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import TokenizerError
from penstock.text.tokenizers.probe import PROBES

FAST: Final = "fastokens"
STABLE: Final = "tokenizers"
_EOS_NAMES: Final = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|eos|>",
    "<|endofsequence|>",
    "<｜end▁of▁sentence｜>",
    "[EOS]",
    "<|im_end|>",
    "[SEP]",
)


class JsonTokenizer:
    """A tokenizer from the content of a `tokenizer.json`."""

    context_free: Final = False

    def __init__(
        self, content: dict[str, Any], *, name: str, eos_token: str | None = None, backend: str | None = None
    ) -> None:
        # Truncation and padding belong to inference: here they would lose and add tokens.
        self._content = {**content, "truncation": None, "padding": None}
        self.name = name
        self.eos_token, self.eos_id = _eos(self._content, eos_token, name)
        self.lossless = _is_lossless(self._content)
        self.warnings: tuple[str, ...] = ()
        self._text = text = json.dumps(self._content, ensure_ascii=False)
        if backend is None:
            self._fast, self._stable, self.warnings = _checked_backend(text, name)
        else:
            self._fast = _fast(text) if backend == FAST else None
            self._stable = _stable(text, name) if backend == STABLE else None
        self.backend = STABLE if self._fast is None else FAST
        self.version = version(self.backend)
        self.vocab_size = 1 + max(
            max(self._content["model"]["vocab"].values(), default=0)
            if isinstance(self._content["model"]["vocab"], dict)
            else len(self._content["model"]["vocab"]) - 1,
            *(token["id"] for token in self._content.get("added_tokens", [])),
            self.eos_id,
        )

    @cached_property
    def token_bytes(self) -> NDArray[np.int64] | None:
        if not self.lossless:
            return None
        sizes = np.zeros(self.vocab_size, np.int64)
        # One letter stands for one byte in a byte-level vocabulary.
        for token, number in self._content["model"]["vocab"].items():
            sizes[number] = len(token)
        return sizes

    def encode(self, texts: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        if self._fast is not None:
            return _fast_ids(self._fast, texts)
        return _stable_ids(self._stable, texts)

    def decode(self, ids: NDArray[Any]) -> str:
        decoder = self._stable if self._stable is not None else self._fast
        return str(decoder.decode(ids.tolist(), skip_special_tokens=False))

    def state_json(self) -> str:
        eos = json.dumps(
            {"kind": "tokenizer.json", "eos_token": self.eos_token, "eos_id": self.eos_id}, ensure_ascii=False
        )
        return f'{eos[:-1]}, "tokenizer": {self._text}}}'


def _checked_backend(text: str, name: str) -> tuple[Any, Any, tuple[str, ...]]:
    """The fast backend if it gives the reference's ids on every probe, else the reference and a warning."""
    reference = _stable(text, name)
    try:
        fast = _fast(text)
        same = all(np.array_equal(_fast_ids(fast, [probe])[0], _stable_ids(reference, [probe])[0]) for probe in PROBES)
        why = "its ids differ from the reference's"
    # A Rust panic is not an Exception; Ctrl-C must still pass.
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        same, why = False, f"it does not take this tokenizer ({type(error).__name__}: {str(error)[:120]})"
    if same:
        return fast, None, ()
    return (
        None,
        reference,
        (f"tokenizer {name}: fastokens is not used, {why}; going on with tokenizers, which is slower",),
    )


def _fast(text: str) -> Any:
    import fastokens

    return fastokens.Tokenizer.from_json_str(text)


def _stable(text: str, name: str) -> Any:
    import tokenizers

    try:
        tokenizer = tokenizers.Tokenizer.from_str(text)
    except Exception as error:
        raise TokenizerError(f"{name}: not a tokenizer.json that `tokenizers` can read ({error})") from error
    tokenizer.encode_special_tokens = True
    return tokenizer


def _fast_ids(tokenizer: Any, texts: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    ids, offsets = tokenizer.encode_batch_flat(texts, add_special_tokens=False, split_special_tokens=True)
    return np.frombuffer(ids, "<u4"), np.frombuffer(offsets, "<u8").astype(np.int64)


def _stable_ids(tokenizer: Any, texts: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    encoded = [np.array(one.ids, np.uint32) for one in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return np.concatenate([np.empty(0, np.uint32), *encoded]), offsets


def _eos(content: dict[str, Any], wanted: str | None, name: str) -> tuple[str, int]:
    added = {token["content"]: int(token["id"]) for token in content.get("added_tokens", [])}
    vocab = content.get("model", {}).get("vocab", {})
    known = {**(vocab if isinstance(vocab, dict) else {}), **added}
    for token in [wanted] if wanted else _EOS_NAMES:
        if token in known:
            return str(token), int(known[token])
    what = f"{wanted!r} is not in its vocabulary" if wanted else "it has none of the usual names"
    some = ", ".join(list(added)[:8]) or "none"
    raise TokenizerError(
        f"{name}: no end-of-text token, {what}; name one with --eos_token (special tokens here: {some})"
    )


def _is_lossless(content: dict[str, Any]) -> bool:
    """Byte-level with every byte in the vocabulary and nothing that rewrites the text."""
    stages = [content.get("pre_tokenizer"), *((content.get("pre_tokenizer") or {}).get("pretokenizers") or [])]
    byte_level = any((stage or {}).get("type") == "ByteLevel" for stage in stages)
    adds_space = any((stage or {}).get("add_prefix_space", False) for stage in stages)
    decodes = (content.get("decoder") or {}).get("type") == "ByteLevel"
    vocab = content.get("model", {}).get("vocab", {})
    all_bytes = isinstance(vocab, dict) and all(letter in vocab for letter in byte_letters())
    return byte_level and decodes and all_bytes and not adds_space and content.get("normalizer") is None


def byte_letters() -> list[str]:
    """The printable letters that stand for the 256 bytes in byte-level vocabularies, in byte order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(rest)}
    return [letters[byte] for byte in range(256)]

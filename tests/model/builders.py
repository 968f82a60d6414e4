"""Tiny models whose every weight matters: norms are random too, so that a swapped one is noticed."""

from typing import Any

import torch

from penstock.model.config import GPTConfig
from penstock.model.gpt import GPT

torch.set_num_threads(1)

VARIANTS: dict[str, dict[str, Any]] = {
    "swiglu": {},
    "gelu": {"activation": "gelu"},
    "qk_norm": {"qk_norm": True},
    "gqa": {"num_kv_heads": 2},
    "gqa_qk_norm": {"num_kv_heads": 1, "qk_norm": True},
    "untied": {"tied": False},
    "gelu_gqa_untied": {"activation": "gelu", "num_kv_heads": 2, "tied": False},
    "other_theta_and_eps": {"rope_theta": 500.0, "norm_eps": 1e-3, "ffn_dim": 48},
}


def shape(**settings: Any) -> GPTConfig:
    """The sizes of a tiny model."""
    sizes = {"vocab_size": 64, "max_seq_len": 32, "num_layers": 2, "num_heads": 4, "dim": 32}
    return GPTConfig(**{**sizes, **settings})


@torch.no_grad()
def made(config: GPTConfig, seed: int = 0) -> GPT:
    """A model with random weights that are large enough to matter."""
    random = torch.Generator().manual_seed(seed)
    model = GPT(config)
    for weight in model.parameters():
        if weight.dim() < 2:
            weight.uniform_(0.5, 1.5, generator=random)
        else:
            weight.normal_(0.0, 0.2, generator=random)
    return model.eval()

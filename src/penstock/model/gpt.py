"""The model: RMSNorm, rotary positions, grouped-query attention, SwiGLU or GELU, documents that do not see each other.

Shapes: B rows, T positions, D model, H heads, K key-value heads, E head, V vocabulary, S bounds of documents.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from penstock.model.attention import attended
from penstock.model.config import GPTConfig

_INIT_STD = 0.02
IGNORED = -100
"""The label of a position that has none."""


class Rotary(nn.Module):
    """Turns pairs of channels by an angle that grows with the position."""

    cos_TE: Tensor
    sin_TE: Tensor

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self._theta, self._width, self._length = config.rope_theta, config.head_dim, config.max_seq_len
        cos, sin = self._tables(torch.device("cpu"))
        self.register_buffer("cos_TE", cos, persistent=False)
        self.register_buffer("sin_TE", sin, persistent=False)

    def _tables(self, device: torch.device) -> tuple[Tensor, Tensor]:
        steps = torch.arange(0, self._width, 2, dtype=torch.float32, device=device)
        frequencies = self._theta ** (-steps / self._width)
        angles = torch.outer(torch.arange(self._length, dtype=torch.float32, device=device), frequencies)
        return angles.cos(), angles.sin()

    def rebuild(self, device: torch.device) -> None:
        """Fills the tables in, after the module was made without memory."""
        self.cos_TE, self.sin_TE = self._tables(device)

    def forward(self, x_BTHE: Tensor, positions_BT: Tensor | None) -> Tensor:
        if positions_BT is None:
            cos, sin = self.cos_TE[: x_BTHE.shape[1], None], self.sin_TE[: x_BTHE.shape[1], None]
        else:
            cos, sin = self.cos_TE[positions_BT][:, :, None], self.sin_TE[positions_BT][:, :, None]
        left, right = x_BTHE.float().chunk(2, dim=-1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1).to(x_BTHE.dtype)


class Attention(nn.Module):
    """Every position looks at those before it in its document."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.qkv = nn.Linear(config.dim, (config.num_heads + 2 * config.kv_heads) * config.head_dim, bias=False)
        self.out = nn.Linear(config.num_heads * config.head_dim, config.dim, bias=False)
        self.q_norm = nn.RMSNorm(config.head_dim, eps=config.norm_eps) if config.qk_norm else None
        self.k_norm = nn.RMSNorm(config.head_dim, eps=config.norm_eps) if config.qk_norm else None

    def forward(self, x_BTD: Tensor, rotary: Rotary, positions_BT: Tensor | None, bounds_S: Tensor | None) -> Tensor:
        config = self.config
        heads = self.qkv(x_BTD).unflatten(-1, (-1, config.head_dim))
        q_BTHE, k_BTKE, v_BTKE = heads.split([config.num_heads, config.kv_heads, config.kv_heads], dim=2)
        if self.q_norm is not None and self.k_norm is not None:
            q_BTHE, k_BTKE = self.q_norm(q_BTHE), self.k_norm(k_BTKE)
        q_BTHE, k_BTKE = rotary(q_BTHE, positions_BT), rotary(k_BTKE, positions_BT)
        mixed_BTHE = attended(q_BTHE, k_BTKE, v_BTKE, bounds_S)
        found: Tensor = self.out(mixed_BTHE.flatten(2))
        return found


class FeedForward(nn.Module):
    """Each position on its own."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.gated = config.activation == "swiglu"
        self.up = nn.Linear(config.dim, config.hidden_dim * (2 if self.gated else 1), bias=False)
        self.down = nn.Linear(config.hidden_dim, config.dim, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        hidden = self.up(x_BTD)
        if self.gated:
            gate, value = hidden.chunk(2, dim=-1)
            hidden = F.silu(gate) * value
        else:
            hidden = F.gelu(hidden, approximate="tanh")
        found: Tensor = self.down(hidden)
        return found


class Block(nn.Module):
    """Attention, then feed-forward, each added to what was there."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.feed_forward = FeedForward(config)

    def forward(self, x_BTD: Tensor, rotary: Rotary, positions_BT: Tensor | None, bounds_S: Tensor | None) -> Tensor:
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD), rotary, positions_BT, bounds_S)
        x_BTD = x_BTD + self.feed_forward(self.feed_forward_norm(x_BTD))
        return x_BTD


class GPT(nn.Module):
    """Ids in; logits out, or, given labels, the summed loss."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.rotary = Rotary(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.head = nn.Linear(config.dim, config.vocab_size, bias=False)
        if config.tied:
            self.head.weight = self.embedding.weight

    @torch.no_grad()
    def initialize(self, generator: torch.Generator | None = None) -> None:
        """Random weights. What adds to the residual stream starts smaller the deeper the model is."""
        scale = 1 / math.sqrt(2 * self.config.num_layers)
        for name, weight in self.named_parameters():
            if weight.dim() < 2:
                weight.fill_(1.0)
            else:
                adds = name.endswith(("attention.out.weight", "feed_forward.down.weight"))
                weight.normal_(0.0, _INIT_STD * (scale if adds else 1.0), generator=generator)

    def forward(
        self,
        input_ids_BT: Tensor,
        labels_BT: Tensor | None = None,
        positions_BT: Tensor | None = None,
        bounds_S: Tensor | None = None,
    ) -> Any:
        """Logits (B, T, V); with labels, the loss summed over the positions that have one, in float32."""
        x_BTD = self.embedding(input_ids_BT)
        for block in self.blocks:
            x_BTD = block(x_BTD, self.rotary, positions_BT, bounds_S)
        logits_BTV = self.head(self.norm(x_BTD))
        if labels_BT is None:
            return logits_BTV
        return F.cross_entropy(
            logits_BTV.flatten(0, 1).float(), labels_BT.flatten(), ignore_index=IGNORED, reduction="sum"
        )

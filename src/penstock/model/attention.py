"""Causal attention in which documents that share a row do not see each other.

Flash attention over segments where the device has it; elsewhere the same mask, written out.
"""

import inspect
from typing import Any, Final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

try:
    from torch.nn.attention.varlen import varlen_attn as _varlen

    _CAUSAL: Final[dict[str, Any]] = (
        {"window_size": (-1, 0)} if "window_size" in inspect.signature(_varlen).parameters else {"is_causal": True}
    )
except ImportError:  # older releases
    _varlen = None  # type: ignore[assignment]

_LEAST_BOUNDS: Final = 64


def padded_bounds(bounds_S: Tensor) -> Tensor:
    """`bounds_S` with its last element repeated up to a power of two: few different shapes, so little compiling."""
    size = max(_LEAST_BOUNDS, 1 << (len(bounds_S) - 1).bit_length())
    return torch.cat([bounds_S, bounds_S[-1:].expand(size - len(bounds_S))])


def attended(q_BTHE: Tensor, k_BTKE: Tensor, v_BTKE: Tensor, bounds_S: Tensor | None) -> Tensor:
    """What each position gathers from itself and those before it in its document; (B, T, H, E).

    `bounds_S`: where documents begin, rows end to end, and where the last one ends. None: a row is one document.
    """
    if bounds_S is None:
        return _whole_rows(q_BTHE, k_BTKE, v_BTKE, None)
    if q_BTHE.is_cuda and _varlen is not None and q_BTHE.dtype in (torch.bfloat16, torch.float16):
        return _segments(q_BTHE, k_BTKE, v_BTKE, bounds_S)
    return _whole_rows(q_BTHE, k_BTKE, v_BTKE, same_document(bounds_S, q_BTHE.shape[0], q_BTHE.shape[1]))


def same_document(bounds_S: Tensor, num_rows: int, seq_len: int) -> Tensor:
    """Which position may look at which: (B, 1, T, T)."""
    places = torch.arange(num_rows * seq_len, device=bounds_S.device, dtype=bounds_S.dtype)
    number_BT = torch.bucketize(places, bounds_S, right=True).view(num_rows, seq_len)
    same_BTT = number_BT[:, :, None] == number_BT[:, None, :]
    return same_BTT.tril()[:, None]


def _whole_rows(q_BTHE: Tensor, k_BTKE: Tensor, v_BTKE: Tensor, mask: Tensor | None) -> Tensor:
    found = F.scaled_dot_product_attention(
        q_BTHE.transpose(1, 2),
        k_BTKE.transpose(1, 2),
        v_BTKE.transpose(1, 2),
        attn_mask=mask,
        is_causal=mask is None,
        enable_gqa=q_BTHE.shape[2] != k_BTKE.shape[2],
    )
    return found.transpose(1, 2)


def _segments(q_BTHE: Tensor, k_BTKE: Tensor, v_BTKE: Tensor, bounds_S: Tensor) -> Tensor:
    num_rows, seq_len, num_heads, _ = q_BTHE.shape
    groups = num_heads // k_BTKE.shape[2]
    if groups > 1:
        k_BTKE, v_BTKE = (x.repeat_interleave(groups, dim=2) for x in (k_BTKE, v_BTKE))
    q, k, v = (x.flatten(0, 1) for x in (q_BTHE, k_BTKE, v_BTKE))
    # No document is longer than a row.
    found: Any = _varlen(q, k, v, bounds_S, bounds_S, seq_len, seq_len, **_CAUSAL)
    rows: Tensor = found.unflatten(0, (num_rows, seq_len))
    return rows

"""Changes to rows on their way to the model, the same for the same row whoever loads it.

Nothing is drawn from a generator: what happens to a token follows from the seed, its row's number and its place.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigError
from penstock.load.group import MASKED
from penstock.order.permute import derived_key, mixed_many


def draws(rows: NDArray[np.int64], length: int, *, key: int) -> NDArray[np.uint64]:
    """64 random bits for each token of each row."""
    row_keys = mixed_many(key, rows.astype(np.uint64))
    return mixed_many(row_keys[:, None], np.arange(length)[None, :])


def _chosen(rows: NDArray[np.int64], length: int, fraction: float, key: int) -> NDArray[np.bool_]:
    chosen: NDArray[np.bool_] = draws(rows, length, key=key) < np.uint64(min(int(fraction * 2**64), 2**64 - 1))
    return chosen


def _check_fraction(fraction: float) -> None:
    if not 0 <= fraction <= 1:
        raise ConfigError(f"fraction must be from 0 to 1, got {fraction:g}")


@dataclass(frozen=True, slots=True)
class MaskTokens:
    """Puts `mask_id` in the place of some input tokens. Labels stay, or only those of masked places do."""

    mask_id: int
    fraction: float = 0.15
    only_masked_labels: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        _check_fraction(self.fraction)

    def __call__(
        self, ids_BT: NDArray[Any], labels_BT: NDArray[Any], rows: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        masked = _chosen(rows, ids_BT.shape[1], self.fraction, derived_key(self.seed, "mask"))
        ids = np.where(masked, ids_BT.dtype.type(self.mask_id), ids_BT)
        return ids, np.where(masked, labels_BT, MASKED) if self.only_masked_labels else labels_BT


@dataclass(frozen=True, slots=True)
class RandomNoise:
    """Puts random tokens below `vocab_size` in the place of some input tokens. Labels stay."""

    vocab_size: int
    fraction: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        _check_fraction(self.fraction)
        if self.vocab_size < 1:
            raise ConfigError(f"vocab_size must be positive, got {self.vocab_size}")

    def __call__(
        self, ids_BT: NDArray[Any], labels_BT: NDArray[Any], rows: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        noisy = _chosen(rows, ids_BT.shape[1], self.fraction, derived_key(self.seed, "noise"))
        random = draws(rows, ids_BT.shape[1], key=derived_key(self.seed, "noise tokens"))
        return np.where(noisy, (random % np.uint64(self.vocab_size)).astype(ids_BT.dtype), ids_BT), labels_BT

"""What a model has to beat: counting tokens, and counting pairs of tokens."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.load.dataset import Dataset

_MOST_TOKENS: Final = 20_000_000
_TRUST: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Shares of the counted pairs in the mixture with single tokens; the best one on val is taken, in the pairs' favour."""


@dataclass(frozen=True, slots=True)
class Baselines:
    """Nats per token on val."""

    unigram: float
    bigram: float


def baselines(train: Dataset, val: Dataset) -> Baselines:
    """The loss on `val` of token and pair frequencies counted on `train`."""
    size = train.manifest.tokenizer.vocab_size
    seen, asked = _tokens(train), _tokens(val)
    single = np.bincount(seen, minlength=size) + 1.0
    single /= single.sum()
    first, second = asked[:-1], asked[1:]
    pairs, counts = np.unique(seen[:-1] * size + seen[1:], return_counts=True)
    place = np.minimum(np.searchsorted(pairs, first * size + second), len(pairs) - 1)
    together = np.where(pairs[place] == first * size + second, counts[place], 0)
    before = np.maximum(np.bincount(seen[:-1], minlength=size)[first], 1)
    mixed = [-np.log(trust * together / before + (1 - trust) * single[second]).mean() for trust in _TRUST]
    return Baselines(float(-np.log(single[second]).mean()), float(min(mixed)))


def _tokens(dataset: Dataset) -> NDArray[np.int64]:
    parts: list[NDArray[np.int64]] = []
    left = _MOST_TOKENS
    for number, shard in enumerate(dataset.shards):
        part = dataset.reader(number).tokens(0, min(left, shard.num_tokens)).astype(np.int64)
        parts.append(part)
        left -= len(part)
        if left <= 0:
            break
    return np.concatenate(parts)

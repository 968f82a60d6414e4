"""How long documents are, in all benchmarks that need some. Draws numbers, opens no files."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class Documents:
    """Log-normal lengths, in tokens, the end of text included."""

    mean: float = 700
    sigma: float = 1.0

    def lengths(self, num: int, *, seed: int) -> NDArray[np.int64]:
        draw = np.random.default_rng(seed)
        lengths = draw.lognormal(np.log(self.mean) - self.sigma**2 / 2, self.sigma, num)
        # An end of text and at least one token before it.
        return np.maximum(lengths.astype(np.int64), 2)

    def ends(self, num_tokens: int, *, seed: int) -> NDArray[np.int64]:
        """Where documents end that fill `num_tokens` together; the last one is cut."""
        num = int(num_tokens / self.mean * 1.2) + 1000
        ends = np.cumsum(self.lengths(num, seed=seed))
        assert ends[-1] >= num_tokens, "too few documents were drawn"
        return np.append(ends[ends < num_tokens - 1], num_tokens)

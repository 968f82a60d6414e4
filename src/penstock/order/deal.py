"""Whose row it is.

The rows of a step stand in one order, the dearest first, that no world size changes. A micro-step takes the next of
them, so that its rows cost about the same, and deals them to ranks back and forth.
"""

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigError


def by_cost(costs: NDArray[np.float64]) -> NDArray[np.int64]:
    """The order in which the rows of a step, or of several, one line each, are taken. Equal costs stay in place."""
    return np.argsort(-costs, axis=-1, kind="stable")


def dealt(rank: int, *, world_size: int, micro_batch: int) -> NDArray[np.int64]:
    """Which of the `world_size * micro_batch` rows of a micro-step are `rank`'s."""
    layers = np.arange(micro_batch)
    return layers * world_size + np.where(layers % 2 == 0, rank, world_size - 1 - rank)


def require_even(batch_size: int, *, world_size: int, micro_batch: int) -> None:
    """Refuses a step that does not divide, and names the nearest ones that do."""
    unit = world_size * micro_batch
    if batch_size % unit == 0:
        return
    below, above = batch_size // unit * unit, -(-batch_size // unit) * unit
    sizes = f"{above}" if below == 0 else f"{below} or {above}"
    fitting = [micro for micro in range(1, batch_size + 1) if batch_size % (world_size * micro) == 0]
    nearest = sorted(fitting, key=lambda micro: (abs(micro - micro_batch), micro))[:2]
    other = f", or micro_batch {' or '.join(map(str, sorted(nearest)))}" if nearest else ""
    raise ConfigError(
        f"batch_size {batch_size} is not a multiple of world_size × micro_batch = {world_size} × {micro_batch} = "
        f"{unit}; use batch_size {sizes}{other}"
    )


def imbalance(costs: NDArray[np.float64], *, world_size: int, micro_batch: int) -> tuple[float, float]:
    """Time that the slowest rank takes over the mean, for one step's `costs`: as dealt here, and dealt as they come."""
    unit = world_size * micro_batch
    ranks = np.stack([dealt(rank, world_size=world_size, micro_batch=micro_batch) for rank in range(world_size)])
    level = costs[by_cost(costs)].reshape(-1, unit)[:, ranks].sum(axis=2)
    as_they_come = costs.reshape(-1, world_size, micro_batch).sum(axis=2)
    return _ratio(level), _ratio(as_they_come)


def _ratio(loads: NDArray[np.float64]) -> float:
    mean = loads.mean(axis=1).sum()
    return float(loads.max(axis=1).sum() / mean) if mean else 1.0

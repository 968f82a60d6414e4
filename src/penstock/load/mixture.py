"""Datasets and the shares they have in a run."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import ConfigError
from penstock.load.dataset import Dataset
from penstock.order.mixture import Weights, block_counts


@dataclass(frozen=True, slots=True)
class Change:
    """Weights from a row on."""

    from_row: int
    weights: tuple[float, ...]
    """One for each dataset known so far."""


@dataclass(frozen=True, slots=True, init=False)
class Mixture:
    """Datasets with weights that sum to 1. Every block of rows holds exactly its share of each.

    >>> mixture = Mixture({wiki: 0.7, code: 0.3})
    >>> mixture = mixture.changed(from_row=614_400, weights={wiki: 0.5, code: 0.3, maths: 0.2})
    """

    datasets: tuple[Dataset, ...]
    changes: tuple[Change, ...]
    max_epochs: tuple[tuple[Dataset, float], ...]
    block: int | None
    max_epochs_of_all: float | None

    def __init__(
        self,
        weights: Mapping[Dataset, float],
        *,
        max_epochs: float | Mapping[Dataset, float] | None = None,
        block: int | None = None,
    ) -> None:
        """`max_epochs`: a dataset that was seen so often leaves, and the others share its place; for all of them, or
        for some. `block`: rows in a block; chosen to make the weights exact if not given.
        """
        if not weights:
            raise ConfigError("a mixture needs at least one dataset")
        if block is not None and block < 1:
            raise ConfigError(f"block must be positive, got {block}")
        caps = max_epochs if isinstance(max_epochs, Mapping) else dict.fromkeys(weights, max_epochs)
        for dataset, cap in caps.items():
            if cap is not None and cap <= 0:
                raise ConfigError(f"max_epochs of {dataset.name} must be positive, got {cap:g}")
        kept = tuple((dataset, cap) for dataset, cap in caps.items() if cap is not None)
        of_all = None if isinstance(max_epochs, Mapping) else max_epochs
        self._set(tuple(weights), (Change(0, tuple(weights.values())),), kept, block, of_all)
        block_counts(self.changes[0].weights, block)

    def changed(self, *, from_row: int, weights: Mapping[Dataset, float]) -> "Mixture":
        """Other weights, or more datasets, from a row on. Everything before it stays, and nothing repeats."""
        if from_row <= self.changes[-1].from_row:
            raise ConfigError(
                f"from_row {from_row} is not after the last change, which is at row {self.changes[-1].from_row}"
            )
        datasets = self.datasets + tuple(dataset for dataset in weights if dataset not in self.datasets)
        values = tuple(weights.get(dataset, 0.0) for dataset in datasets)
        block_counts(values, self.block)
        longer = object.__new__(Mixture)
        of_all = self.max_epochs_of_all
        caps = self.max_epochs if of_all is None else tuple((dataset, of_all) for dataset in datasets)
        longer._set(datasets, (*self.changes, Change(from_row, values)), caps, self.block, of_all)
        return longer

    def order_changes(self) -> list[Weights]:
        """The changes in the words of the order."""
        return [Weights(change.from_row, change.weights) for change in self.changes]

    def described(self) -> str:
        """What decides the order, in one line: a mixture that was changed begins with what it was before."""
        names = [dataset.fingerprint for dataset in self.datasets]
        parts = [
            f"{change.from_row}:"
            + "+".join(f"{name}*{weight!r}" for name, weight in zip(names, change.weights, strict=False))
            for change in self.changes
        ]
        return ";".join(parts)

    def _set(
        self,
        datasets: tuple[Dataset, ...],
        changes: tuple[Change, ...],
        max_epochs: tuple[tuple[Dataset, float], ...],
        block: int | None,
        max_epochs_of_all: float | None,
    ) -> None:
        # A frozen value is filled in once, here.
        for name, value in zip(self.__slots__, (datasets, changes, max_epochs, block, max_epochs_of_all), strict=True):
            object.__setattr__(self, name, value)

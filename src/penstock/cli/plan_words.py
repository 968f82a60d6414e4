"""The words that describe a plan, shared by the verbs that take one."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

import tyro

from penstock.errors import ConfigError
from penstock.load.dataset import Dataset
from penstock.load.mixture import Mixture
from penstock.load.plan import Plan, parsed_range
from penstock.order.mixture import block_counts

_BLOCK: Final = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanWords:
    """Which rows, in which order."""

    directories: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="DIR")]
    """One dataset, or several to mix."""
    seq_len: int = 1024
    """Tokens in a row."""
    batch_size: int = 512
    """Rows in a step, over all ranks."""
    rows: Literal["chunk", "best_fit"] = "chunk"
    """chunk: the stream of tokens, cut every seq_len. best_fit: whole documents, packed."""
    long_documents: Literal["split", "truncate", "drop"] = "split"
    """What best_fit does with documents longer than a row."""
    split: str = "train"
    """Which split of the datasets."""
    mixture: tuple[float, ...] = ()
    """Weights of the datasets, in their order, that sum to 1. Without it, they count by their tokens."""
    max_epochs: float | None = None
    """In a mixture: a dataset that was seen so often leaves it."""
    epochs: float = 1
    """Passes over a single dataset."""
    max_steps: int | None = None
    """End after so many steps."""
    seed: int = 0
    """Another seed, another order."""
    no_shuffle: bool = False
    """Rows as they lie on disk."""
    window_tokens: int | None = None
    """Shuffle inside windows of whole shards with at most so many tokens, as when not all of them fit the disk."""
    skip: tuple[str, ...] = field(default_factory=tuple)
    """Rows to leave out, as FROM-TO, for example 512000-517120."""


def plan_of(words: PlanWords) -> Plan:
    """The plan that the words describe."""
    if not words.directories:
        raise ConfigError("name at least one dataset directory, for example: penstock plan data/corpus")
    datasets = [Dataset(directory, words.split) for directory in words.directories]
    return Plan(
        _data(words, datasets),
        seq_len=words.seq_len,
        batch_size=words.batch_size,
        seed=words.seed,
        rows=words.rows,
        epochs=words.epochs,
        max_steps=words.max_steps,
        shuffle=not words.no_shuffle,
        window_tokens=words.window_tokens,
        long_documents=words.long_documents,
        skip=tuple(map(parsed_range, words.skip)),
    )


def _data(words: PlanWords, datasets: list[Dataset]) -> Dataset | Mixture:
    if len(datasets) == 1 and not words.mixture:
        return datasets[0]
    weights = words.mixture
    if not weights:
        weights = _by_tokens(datasets)
    if len(weights) != len(datasets):
        raise ConfigError(f"--mixture has {len(weights)} weights for {len(datasets)} datasets; give one for each")
    if len(set(datasets)) != len(datasets):
        raise ConfigError("a dataset is named twice; give it once, with the sum of its weights")
    return Mixture(dict(zip(datasets, weights, strict=True)), max_epochs=words.max_epochs)


def _by_tokens(datasets: list[Dataset]) -> tuple[float, ...]:
    """Shares by size, in whole 1/256 so that a block of 256 rows holds them exactly."""
    total = sum(dataset.num_tokens for dataset in datasets)
    counts = block_counts([dataset.num_tokens / total for dataset in datasets], _BLOCK)
    return tuple(count / _BLOCK for count in counts)

"""Which rows a run is made of: a value.

Depends on the datasets' hashes, the settings and the seed, and on nothing else: not on ranks, not on the clock. Opens
indexes where packing needs them, and no tokens.
"""

import hashlib
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

import numpy as np

from penstock.errors import ConfigError
from penstock.load.dataset import Dataset
from penstock.load.mixture import Mixture
from penstock.load.packed import packing_items
from penstock.order.best_fit import PackedRows
from penstock.order.chunks import ChunkRows
from penstock.order.items import LongDocuments
from penstock.order.mixture import MixtureOrder, mixture_order
from penstock.order.permute import derived_key, mixed
from penstock.order.schedule import Schedule, Source, covered_rows
from penstock.order.segments import RowSource
from penstock.order.shuffle import FullShuffle, NoShuffle, Shuffle, WindowShuffle

if TYPE_CHECKING:
    from penstock.load.explain import Explanation

ORDER_VERSION: Final = 1
"""Bumped when the same settings would give another order."""
RowKind = Literal["chunk", "best_fit"]


class Piece(NamedTuple):
    """A stretch of tokens in a row."""

    source: int
    """Which of the plan's datasets, from 0."""
    shard: int
    """Which shard of its split, from 0."""
    start: int
    """Where in the shard it begins, in tokens."""
    length: int


@dataclass(frozen=True, eq=False)
class Plan:
    """Which rows a run is made of, and in which order.

    >>> plan = Plan(Dataset("data/wiki"), seq_len=1024, batch_size=512)
    >>> plan.num_rows, plan.num_steps
    """

    data: Dataset | Mixture
    _: KW_ONLY
    seq_len: int
    """Tokens in a row."""
    batch_size: int
    """Rows in a step, over all ranks."""
    seed: int = 0
    rows: RowKind = "chunk"
    """`chunk`: the stream of tokens, cut every seq_len. `best_fit`: whole documents, packed."""
    epochs: float = 1
    """Passes over a single dataset. A mixture has max_epochs instead."""
    max_steps: int | None = None
    """Ends the run after so many steps. A mixture goes on to there, repeating what it must; else it ends before
    anything repeats."""
    shuffle: bool = True
    window_tokens: int | None = None
    """Shuffle inside windows of whole shards that hold at most so many tokens, for data that is not all at hand."""
    long_documents: LongDocuments = "split"
    """What `best_fit` does with documents longer than a row: split, truncate or drop them."""
    skip: tuple[tuple[int, int], ...] = ()
    """Ranges of rows, from and to, that are left out. The others keep their numbers and their order."""

    def __post_init__(self) -> None:
        if not isinstance(self.data, Dataset | Mixture):
            raise ConfigError(f"a plan is made of a Dataset or a Mixture, got {type(self.data).__name__}")
        for name in ("seq_len", "batch_size", "max_steps", "window_tokens"):
            value = getattr(self, name)
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if value is None and name in ("max_steps", "window_tokens"):
                continue
            if not whole or value < 1:
                raise ConfigError(f"{name} must be a positive whole number, got {value!r}")
        for name, choices in (("rows", get_args(RowKind)), ("long_documents", get_args(LongDocuments))):
            if getattr(self, name) not in choices:
                expected = ", ".join(map(repr, choices))
                raise ConfigError(f"{name} must be one of {expected}, got {getattr(self, name)!r}")
        if not 0 < self.epochs < float("inf"):
            raise ConfigError(f"epochs must be positive and finite, got {self.epochs:g}")
        if isinstance(self.data, Mixture) and self.epochs != 1:
            raise ConfigError("epochs is for one dataset; a mixture takes max_epochs, and the plan max_steps")
        if self.window_tokens is not None and self.rows != "chunk":
            raise ConfigError("window_tokens goes with rows='chunk': a packed row holds documents from anywhere")
        if len({dataset.manifest.tokenizer.hash for dataset in self.datasets}) > 1:
            made_with = ", ".join(f"{dataset.name} ({dataset.manifest.tokenizer.name})" for dataset in self.datasets)
            raise ConfigError(
                f"datasets of one run must share a tokenizer: {made_with}; prepare them with the same one"
            )
        if len({dataset.dtype for dataset in self.datasets}) > 1:
            stored = ", ".join(f"{dataset.name} ({dataset.manifest.token_dtype})" for dataset in self.datasets)
            raise ConfigError(
                f"datasets of one run must share a token_dtype: {stored}; prepare them with --token_dtype"
            )
        object.__setattr__(self, "skip", tuple((int(start), int(stop)) for start, stop in self.skip))

    # What it is made of

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """All of them, in the order in which sources are numbered."""
        return self.data.datasets if isinstance(self.data, Mixture) else (self.data,)

    @property
    def vocab_size(self) -> int:
        return self.datasets[0].manifest.tokenizer.vocab_size

    @property
    def eos_id(self) -> int:
        return self.datasets[0].manifest.eos_id

    @cached_property
    def settings(self) -> dict[str, str]:
        """Everything that decides the order, by name, as text."""
        mixture = self.data if isinstance(self.data, Mixture) else None
        caps = mixture.max_epochs if mixture else ()
        return {
            "order": str(ORDER_VERSION),
            "data": mixture.described() if mixture else self.datasets[0].fingerprint,
            "max_epochs": repr(mixture.max_epochs_of_all)
            if mixture and mixture.max_epochs_of_all is not None
            else "+".join(f"{dataset.fingerprint}*{cap!r}" for dataset, cap in caps),
            "block": str(mixture.block or "") if mixture else "",
            "rows": self.rows,
            "seq_len": str(self.seq_len),
            "batch_size": str(self.batch_size),
            "seed": str(self.seed),
            "shuffle": str(self.shuffle),
            "window_tokens": str(self.window_tokens or ""),
            "long_documents": self.long_documents if self.rows == "best_fit" else "",
            "epochs": repr(self.epochs),
            "max_steps": str(self.max_steps or ""),
            "skip": ",".join(f"{start}-{stop}" for start, stop in self.skip),
        }

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal orders. Says what it stands for, so that a difference can be named later."""
        text = "|".join(f"{name}={value}" for name, value in self.settings.items() if value)
        return f"{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}|{text}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __reduce__(self) -> tuple[Any, ...]:
        # What follows from the settings is not sent to other processes.
        return _remade, ({one.name: getattr(self, one.name) for one in fields(self)},)

    def with_skip(self, *ranges: tuple[int, int]) -> "Plan":
        """The plan without some more rows."""
        return replace(self, skip=(*self.skip, *ranges))

    # What follows from it

    @property
    def num_rows(self) -> int:
        """Rows that will be seen, those of all passes, without those skipped and without fillers."""
        return self.schedule.num_rows

    @property
    def num_steps(self) -> int:
        return self.schedule.num_steps

    @cached_property
    def sources(self) -> tuple[RowSource, ...]:
        """The rows of one pass over each dataset."""
        return tuple(self._rows_of(dataset) for dataset in self.datasets)

    @cached_property
    def schedule(self) -> Schedule:
        """The order itself."""
        sources = [
            Source(rows, self._shuffle_of(dataset, rows))
            for dataset, rows in zip(self.datasets, self.sources, strict=True)
        ]
        wanted = None if self.max_steps is None else self.max_steps * self.batch_size
        num_skipped = covered_rows(self.skip)
        order: MixtureOrder | None = None
        if isinstance(self.data, Mixture):
            total = None if wanted is None else wanted + num_skipped
            order, num_rows = self._mixed(self.data, total)
        else:
            num_rows = round(self.epochs * sources[0].rows.num_rows)
            if wanted is not None:
                num_rows = min(num_rows, wanted + num_skipped)
        if num_rows < 1:
            raise ConfigError("the plan has no rows: give it more epochs")
        schedule = Schedule(sources, num_rows=num_rows, batch_size=self.batch_size, mixture=order, skip=self.skip)
        if schedule.num_rows < 1:
            raise ConfigError("the plan has no rows: it skips all of them")
        return schedule

    def row(self, place: int) -> list[Piece]:
        """What the row at `place` of the run is made of."""
        if not 0 <= place < self.num_rows:
            raise ConfigError(f"no row {place}: the plan has {self.num_rows}, numbered from 0")
        source, epoch, row = self.schedule.located_one(place)
        rows = self.sources[source]
        if isinstance(rows, ChunkRows):
            return [Piece(source, *rows.segment(row))]
        found = rows.segments(np.array([row]), epoch)
        columns = (found.shard.tolist(), found.start.tolist(), found.length.tolist())
        return [Piece(source, *piece) for piece in zip(*columns, strict=True)]

    def explain(self, step: int, *, text: bool = False) -> "Explanation":
        """Which documents, from which source files, `step` is made of; with their text on request. Printable."""
        from penstock.load.explain import explained

        return explained(self, step=step, text=text)

    def rows_used(self) -> tuple[int, ...]:
        """How many rows the run takes from each dataset, those that it skips included."""
        schedule = self.schedule
        last = int(schedule.numbered(np.array([schedule.num_rows - 1]))[0]) + 1
        return (last,) if schedule.mixture is None else schedule.mixture.used(last)

    def epochs_seen(self) -> tuple[float, ...]:
        """How often the run goes over each dataset."""
        return tuple(used / rows.num_rows for used, rows in zip(self.rows_used(), self.sources, strict=True))

    def _rows_of(self, dataset: Dataset) -> RowSource:
        if self.rows == "chunk":
            return ChunkRows(dataset.shard_tokens, self.seq_len)
        items = packing_items(dataset, seq_len=self.seq_len, long_documents=self.long_documents)
        if not len(items.starts) and not items.num_full_pieces:
            raise ConfigError(
                f"{dataset.directory}: every document is longer than seq_len {self.seq_len} and long_documents is "
                "'drop', so no row is left; use a larger seq_len, or long_documents 'split' or 'truncate'"
            )
        return PackedRows(items, dataset.shard_tokens, key=derived_key(self.seed, "packs", dataset.fingerprint))

    def _shuffle_of(self, dataset: Dataset, rows: RowSource) -> Shuffle:
        if not self.shuffle:
            return NoShuffle()
        key = derived_key(self.seed, "rows", dataset.fingerprint)
        if self.window_tokens is None:
            return FullShuffle(rows.num_rows, key=key)
        shard_rows = -(-dataset.shard_tokens // self.seq_len)
        return WindowShuffle(shard_rows, window_rows=max(1, self.window_tokens // self.seq_len), key=key)

    def _mixed(self, mixture: Mixture, num_rows: int | None) -> tuple[MixtureOrder, int]:
        most = {
            mixture.datasets.index(dataset): int(cap * self.sources[mixture.datasets.index(dataset)].num_rows)
            for dataset, cap in mixture.max_epochs
        }
        key = mixed(derived_key(self.seed, "mixture"), 0)
        if num_rows is None and not most:
            # Nothing says when to stop: before any row repeats.
            return _until_first_repeat(mixture, [rows.num_rows for rows in self.sources], key)
        return mixture_order(mixture.order_changes(), most_rows=most, num_rows=num_rows, block=mixture.block, key=key)


def _until_first_repeat(mixture: Mixture, num_source_rows: list[int], key: int) -> tuple[MixtureOrder, int]:
    changes = mixture.order_changes()
    caps = dict(enumerate(num_source_rows))
    # The order up to the last change, then as many whole blocks as the scarcest source has.
    last = changes[-1]
    order, _ = mixture_order(changes, most_rows={}, num_rows=last.from_row + 1, block=mixture.block, key=key)
    stretch = order.stretches[-1]
    blocks = min(
        (caps[source] - stretch.before[source]) // count for source, count in enumerate(stretch.counts) if count
    )
    num_rows = stretch.first_row + max(0, blocks) * stretch.block
    for source, used in enumerate(stretch.before):
        if used > caps[source]:
            raise ConfigError(
                f"{mixture.datasets[source].name} has {caps[source]:,} rows and {used:,} are used before row "
                f"{stretch.first_row:,}: give the plan max_steps to let it repeat, or change the weights earlier"
            )
    if blocks < 1:
        scarce = min(range(len(caps)), key=lambda source: caps[source] / max(1, stretch.counts[source]))
        raise ConfigError(
            f"{mixture.datasets[scarce].name} has {caps[scarce]:,} rows, too few for one block of {stretch.block}: "
            "give the plan max_steps to let it repeat, or the mixture a smaller block"
        )
    return order, num_rows


def parsed_range(word: str) -> tuple[int, int]:
    """Rows to skip, written FROM-TO."""
    start, dash, stop = word.partition("-")
    if not dash or not start.isdecimal() or not stop.isdecimal():
        raise ConfigError(f"--skip {word}: expected FROM-TO, for example 512000-517120")
    return int(start), int(stop)


def _remade(words: dict[str, Any]) -> Plan:
    return Plan(words.pop("data"), **words)

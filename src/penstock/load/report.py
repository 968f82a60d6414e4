"""What a plan amounts to, before anything is spent on it.

Counts are exact; balance and shuffling are measured on steps spread over the run.
"""

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.load.dataset import Dataset
from penstock.load.plan import Plan
from penstock.order.best_fit import PackedRows
from penstock.order.deal import imbalance, require_even
from penstock.order.segments import RowSource

_STEPS_LOOKED_AT: Final = 32
_PARTS: Final = 1024
"""The stream is cut into so many parts to see how many of them a step reaches."""
_MOST_ROWS: Final = 1 << 16


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceReport:
    """One dataset in a plan."""

    name: str
    split: str
    num_tokens: int
    num_documents: int
    num_rows: int
    """Of one pass."""
    num_padding: int
    """Positions of one pass that no token fills."""
    num_split: int
    """Documents longer than a row, in a packed plan."""
    num_lost_tokens: int
    """Truncated or dropped in one pass."""
    share: float
    """Of the run's rows."""
    epochs: float
    """How often the run goes over it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanReport:
    """What a run will be like."""

    fingerprint: str
    num_rows: int
    num_steps: int
    seq_len: int
    batch_size: int
    rows: str
    num_tokens: int
    """Tokens that the run takes in, padding not counted."""
    padding: float
    """Share of positions that no token fills."""
    num_fillers: int
    """Rows without labels that fill up the last step."""
    num_skipped: int
    sources: tuple[SourceReport, ...]
    world_size: int
    micro_batch: int
    micro_steps: int
    """In a step, on each rank."""
    balance: float
    """Attention cost of the slowest rank over the mean, summed over micro-steps."""
    balance_as_it_comes: float
    """The same without dealing rows by cost."""
    shuffle: float
    """How many parts of the data a step reaches, over how many it would reach with a perfect shuffle."""
    table_bytes: int
    """Memory or mapped files that the plan needs to know where rows are."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def plan_report(plan: Plan, *, world_size: int = 1, micro_batch: int | None = None) -> PlanReport:
    """What `plan` amounts to on `world_size` ranks."""
    micro = micro_batch or max(1, plan.batch_size // world_size)
    require_even(plan.batch_size, world_size=world_size, micro_batch=micro)
    schedule = plan.schedule
    used = plan.rows_used()
    sources = [
        _source_report(dataset, rows, count / sum(used), epochs)
        for dataset, rows, count, epochs in zip(plan.datasets, plan.sources, used, plan.epochs_seen(), strict=True)
    ]
    per_row = sum(
        count * (plan.seq_len - one.num_padding / one.num_rows) for one, count in zip(sources, used, strict=True)
    )
    num_tokens = per_row / sum(used) * plan.num_rows
    level, random = _balance(plan, world_size, micro)
    return PlanReport(
        fingerprint=plan.fingerprint,
        num_rows=plan.num_rows,
        num_steps=plan.num_steps,
        seq_len=plan.seq_len,
        batch_size=plan.batch_size,
        rows=plan.rows,
        num_tokens=round(num_tokens),
        padding=1 - num_tokens / (plan.num_rows * plan.seq_len),
        num_fillers=plan.num_steps * plan.batch_size - plan.num_rows,
        num_skipped=schedule.num_skipped,
        sources=tuple(sources),
        world_size=world_size,
        micro_batch=micro,
        micro_steps=plan.batch_size // (world_size * micro),
        balance=level,
        balance_as_it_comes=random,
        shuffle=shuffle_quality(plan),
        table_bytes=sum(map(_table_bytes, plan.sources)),
    )


def shuffle_quality(plan: Plan) -> float:
    """Parts of the data that a step reaches over those that as many random draws would reach; 1 is a full shuffle."""
    size = min(plan.batch_size, _MOST_ROWS, plan.num_rows)
    reached = []
    for step in _steps(plan):
        first = min(step * plan.batch_size, plan.num_rows - size)
        located = plan.schedule.located(np.arange(first, first + size))
        num_rows = np.array([rows.num_rows for rows in plan.sources])[located.source]
        parts = min(_PARTS, int(num_rows.min()))
        where = located.source * parts + located.source_row * parts // num_rows
        reached.append((len(np.unique(where)), _expected(located.source, parts, num_rows)))
    return sum(found for found, _ in reached) / sum(expected for _, expected in reached)


def _expected(source: NDArray[np.int64], parts: int, num_rows: NDArray[np.int64]) -> float:
    """Parts that rows drawn without repetition from each source would reach on average."""
    total = 0.0
    for which in np.unique(source).tolist():
        drawn = int(np.count_nonzero(source == which))
        rows = int(num_rows[source == which][0])
        in_part = rows / parts
        # The chance that no draw falls into a part: each draw misses it, among what is left.
        left = rows - np.arange(drawn)
        missed = np.prod(np.clip((left - in_part) / np.maximum(left, 1), 0, 1))
        total += parts * (1 - float(missed))
    return total


def _balance(plan: Plan, world_size: int, micro_batch: int) -> tuple[float, float]:
    found = []
    for step in _steps(plan):
        places = np.arange(step * plan.batch_size, min((step + 1) * plan.batch_size, plan.num_rows))
        costs = plan.schedule.costs(plan.schedule.located(places))
        if costs is None:
            return 1.0, 1.0
        costs = np.concatenate([costs, np.zeros(plan.batch_size - len(costs))])
        found.append(imbalance(costs, world_size=world_size, micro_batch=micro_batch))
    return float(np.mean([level for level, _ in found])), float(np.mean([random for _, random in found]))


def _steps(plan: Plan) -> list[int]:
    """Steps spread over the run, the last one left out: it may be short."""
    last = max(1, plan.num_steps - 1)
    return sorted({number * last // _STEPS_LOOKED_AT for number in range(_STEPS_LOOKED_AT)})


def _source_report(dataset: Dataset, rows: RowSource, share: float, epochs: float) -> SourceReport:
    packed = rows.items if isinstance(rows, PackedRows) else None
    num_lost = packed.num_lost_tokens if packed else 0
    return SourceReport(
        name=dataset.name,
        split=dataset.split,
        num_tokens=dataset.num_tokens,
        num_documents=dataset.num_documents,
        num_rows=rows.num_rows,
        num_padding=rows.num_rows * rows.seq_len - (dataset.num_tokens - num_lost),
        num_split=packed.num_long if packed else 0,
        num_lost_tokens=num_lost,
        share=share,
        epochs=epochs,
    )


def _table_bytes(rows: RowSource) -> int:
    if not isinstance(rows, PackedRows):
        return 0
    items = rows.items
    return int(items.starts.nbytes + items.long_starts.nbytes + items.long_ends.nbytes + items.histogram.nbytes)

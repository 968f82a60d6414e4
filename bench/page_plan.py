"""What the account of `bench/plan.py` says around its figures. Measures nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from report import Page, Results, draw_shares


def draw(results: Results, path: Path) -> None:
    """Everything that has a ceiling, as a share of it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5), layout="constrained")
    draw_shares(figure.subplots(), results.findings, "planning, as a share of the bar (dotted)")
    figure.savefig(path, dpi=120)


def _cells(part: Mapping[str, Any]) -> Sequence[str]:
    return (str(len(part["runs"])), f"`{part['command']}`")


PLAN: Final = Page(
    name="plan",
    title="Planning",
    packages=("penstock", "numpy", "torch", "blake3"),
    units="MB and GB\nare 10⁶ and 10⁹ bytes.",
    data="""\
The dataset that is opened is whole, and all zeros: its shards are sparse files, every size and hash in its indexes and
manifest is that of the zeros (`bench/plan_data.py`). Documents are log-normal in length, σ = 1 where the mean is 700
tokens and 1.5 where it is 4,000. Every part runs in a fresh process on one processor and nowhere else, one thread, in
turn with the others, after memory was touched; imports are not counted.""",
    columns=("runs", "command"),
    cells=_cells,
    notes="""\
- "Open" is `Dataset`, `Plan`, `Loader` and `plan.num_steps`; rank 0 of 8, 8 rows of 2,048 a rank. The first batch is
  from there to its input_ids and labels, `load_state_dict` included. Shards are checked as they are opened, from the
  page cache: each start ran once before. Reading them from a disk would come on top.
- Peak RSS is VmHWM at the end of the first batch. Pages of shards that were looked at are part of it; so is torch,
  which the loader imports wherever it is installed. "Without what imports took" is that peak less the RSS before.
- Packing goes from the ends of documents, read shard by shard from files in the page cache, to rows that can be asked
  for: `sorted_items` and `PackedRows`. Documents longer than a row are split.
- One by one: best-fit-decreasing with a sorted list of rooms, on the same items, other documents in each round.
- Arithmetic: `ChunkRows`, `FullShuffle` and `Schedule` for 150,000 shards of 100M tokens in rows of 8,192; no files.
- Balance: 64 ranks, steps of 512 rows in micro-steps of one row a rank, each waiting for its slowest rank; the mean of
  40 steps (fewer if there are not so many), other documents in each round. "Package's costs" is
  `penstock.order.deal.imbalance` on `PackedRows.costs`, tokens plus squares of segment lengths, in which attention is
  nearly everything. "Time of a model" deals the same rows the same way and counts 12 × 4,096 × tokens plus the
  squares: matrix products and causal attention of a layer 4,096 wide.""",
    draw=draw,
)

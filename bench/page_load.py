"""What the account of `bench/load.py` says around its figures. Measures nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from measure import Spread
from report import Page, Results, draw_rates, draw_shares, spread_text


def draw(results: Results, path: Path) -> None:
    """Rates of all loaders, and the time to the first batch."""
    from matplotlib.figure import Figure

    rates = {name: _rates(one) for name, one in results.contenders.items() if "num_tokens" in one["runs"][0]}
    figure = Figure(figsize=(11, 0.4 * len(rates) + 1.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    draw_rates(left, rates, "million tokens a second, one core (log)")
    starts = [found for found in results.findings if found.question == "start"]
    draw_shares(right, starts, "start, as a share of 50 ms")
    figure.savefig(path, dpi=120)


def _cells(contender: Mapping[str, Any]) -> Sequence[str]:
    runs = contender["runs"]
    if "num_tokens" in runs[0]:
        figure = f"{spread_text(_rates(contender))} Mtok/s"
    else:
        figure = f"{spread_text(Spread.of([run['first_ms'] for run in runs]))} ms"
    return (figure, f"`{contender['command']}`")


def _rates(contender: Mapping[str, Any]) -> Spread:
    return Spread.of([run["num_tokens"] / run["seconds"] / 1e6 for run in contender["runs"]])


LOAD: Final = Page(
    name="load",
    title="Loading",
    packages=("penstock", "numpy", "torch", "litdata", "mosaicml-streaming", "blake3"),
    units="Mtok are 10⁶ positions\nof batches, 8 rows of 2,048.",
    data="""\
100M tokens in ten shards, uint16: GPT-2 ids of the standard library's sources, cut into documents of log-normal length,
700 tokens on average (`bench/load_data.py`), every format written by its own package from the same ids and read once
before. Batches of 8 × 2,048, shuffled, int64 out. Every loader runs in a fresh process on one processor and nowhere
else, one thread, in turn with the others, after memory was touched and each had run once.""",
    columns=("median (min–max)", "command"),
    cells=_cells,
    notes="""\
- A rate is that of two seconds after half a second of warming up; importing and opening are not counted. Runs longer
  than a pass go on into the next one.
- penstock: `Loader(plan, micro_batch=8)`, every setting at its default, the check of shards on opening included.
  `best_fit` packs whole documents into rows; its batches are asked for input_ids, labels, position_ids and cu_seqlens.
- nanoGPT: what `get_batch` of its train.py does on a CPU. It draws places with replacement and maps the file anew for
  every batch.
- litdata: `StreamingDataset` and `TokensLoader(block_size=2049)` from chunks that its `optimize` wrote as uint16,
  `shuffle=True`, `StreamingDataLoader` without workers, then one cast to int64.
- MosaicML Streaming: `StreamingDataset` from MDS shards of `ndarray:uint16:2049`, `shuffle=True`, each row cast to
  int64, torch's `DataLoader` without workers. It asks for numpy < 2.2, xxhash < 4 and transformers < 5; it was
  installed without its dependencies, beside newer ones. Its datasets of pictures are left out: they need a torchvision
  that fits this torch.
- `np.take` copies rows in an order drawn before and casts them: there is nothing in it but the memory.
- Starts are timed in a process that has imported everything and done nothing else. "Open" is `Dataset`, `Plan`,
  `Loader` and `plan.num_steps`, for best_fit with the packing; "first batch" is from there to its input_ids and labels.
  Shards are checked as they are opened. "Near the end" is after 99% of the run.""",
    draw=draw,
)

"""What the account of `bench/prepare.py` says around its figures. Measures nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from measure import Spread
from report import Page, Results, draw_rates, spread_text


def draw(results: Results, path: Path) -> None:
    """Rates of all contenders, and peak memory if it was measured."""
    from matplotlib.figure import Figure

    peaks = [found for found in results.findings if found.question == "memory" and found.what.startswith("peak")]
    peaks = [found for found in peaks if found.unit == "GB"]
    figure = Figure(figsize=(11, 0.45 * len(results.contenders) + 1.6), layout="constrained")
    axes = figure.subplots(1, 2, width_ratios=(3, 1)) if peaks else [figure.subplots()]
    draw_rates(axes[0], {name: _rates(one) for name, one in results.contenders.items()}, "MB of text a second (log)")
    if peaks:
        axes[1].bar([found.what.removeprefix("peak, ") for found in peaks], [found.value.median for found in peaks])
        axes[1].axhline(2, color="black", linestyle=":", linewidth=1)
        axes[1].set_title("peak memory, GB (bar: 2)", fontsize=10)
        axes[1].tick_params(axis="x", labelsize=8)
    figure.savefig(path, dpi=120)


def _cells(contender: Mapping[str, Any]) -> Sequence[str]:
    size, kept = contender["text"]["num_bytes"] / 1e6, contender["runs"][0]["kept_share"]
    rates = spread_text(_rates(contender))
    return (rates, f"{size:,.0f}", str(contender["num_cpus"]), f"{kept:.0%}", f"`{contender['command']}`")


def _rates(contender: Mapping[str, Any]) -> Spread:
    return Spread.of([run["mb_per_s"] for run in contender["runs"]])


PREPARE: Final = Page(
    name="prepare",
    title="Preparing",
    packages=(
        "penstock",
        "fastokens",
        "tokenizers",
        "datatrove",
        "orjson",
        "numpy",
        "pyarrow",
        "polars",
        "polars-hash",
        "msgspec",
        "xxhash",
    ),
    units="MB are 10⁶ bytes of\ntext in UTF-8, as it goes in.",
    data="""\
The text is the standard library's sources, repeated, the first word of every line renamed in each repetition
(`bench/corpora.py`). Every contender runs on its own processors and nowhere else, in turn with the others, after
memory was touched and each had run once.""",
    columns=("MB/s (min–max)", "text, MB", "cores", "kept", "command"),
    cells=_cells,
    notes="""\
- penstock is timed as a whole command, from before its process starts until it has gone, files on disk and synced.
- "Kept" is the share of the text that is left for the tokenizer after cleaning and line deduplication. What they
  drop is read, cleaned and looked up, not tokenized. "plain" is `--no_normalize --no_dedup`.
- datatrove is timed inside its process, without start and imports, its shuffle off; it neither cleans nor
  deduplicates, which would take three more passes. All of this is to its advantage. It gets a
  sample of the documents of the same text; loading the tokenizer is part of its time.
- fastokens gets strings that are in memory already, with the flags that penstock uses, one thread, in a fresh process
  each time: no word is in its cache. Loading is not counted.
- "Without its start" is the difference between two sizes: more bytes by more seconds. "Its start" is what is then left.
- Whoever tokenizes everything found the same number of tokens in the same text; otherwise there would be no results.
- Memory is the sum of PSS over all processes from `smaps_rollup`, ten times a second; the page cache counts only
  where it is mapped.""",
    draw=draw,
)

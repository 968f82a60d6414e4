"""Results as files: JSON with everything, a table to read, a picture. Measures nothing."""

import json
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from measure import Spread

_PACKAGES: Final = (
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
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure, and the bar that it has to reach if there is one."""

    question: str
    what: str
    value: Spread
    unit: str
    bar: float | None = None
    at_most: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the median reaches the bar. None without one."""
        if self.bar is None:
            return None
        return self.value.median <= self.bar if self.at_most else self.value.median >= self.bar


@dataclass(kw_only=True, slots=True)
class Results:
    """One run of the benchmark. Grows while it runs."""

    command: str
    sizes: dict[str, Any]
    machine: dict[str, Any]
    idle_share: float
    """Of the processors, before the run."""
    stolen_s: float = 0
    """Processor seconds that the host gave to others during the run."""
    seconds: float = 0
    trial: bool = False
    """The texts are so small that starting up is most of what is measured: nothing is judged."""
    contenders: dict[str, dict[str, Any]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def machine() -> dict[str, Any]:
    """What the figures depend on: hardware, versions, the commit, the date."""
    cpu = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "unknown"
    )
    memory_kib = next(int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal"))
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": cpu,
        "num_cpus": sum(line.startswith("processor") for line in _lines("/proc/cpuinfo")),
        "memory_gib": round(memory_kib / 2**20, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "commit": _commit(),
    }


def write_report(results: Results, out_dir: Path) -> None:
    """Writes prepare.json, prepare.md and, once something has run, prepare.png into `out_dir`."""
    out_dir.mkdir(parents=True, exist_ok=True)
    everything = asdict(results)
    for entry, found in zip(everything["findings"], results.findings, strict=True):
        entry["met"] = found.met
    (out_dir / "prepare.json").write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n", "utf-8")
    (out_dir / "prepare.md").write_text(page(results), "utf-8")
    if results.contenders:
        draw(results, out_dir / "prepare.png")


def table(results: Results) -> str:
    """What was found, and whether it is enough."""
    rows = ["| | measured (min–max) | bar | met |", "|---|---|---|---|"]
    for found in results.findings:
        bar = "" if found.bar is None else f"{'≤' if found.at_most else '≥'} {found.bar:g} {found.unit}"
        met = "trial" if results.trial and bar else {None: "", True: "yes", False: "**no**"}[found.met]
        rows.append(f"| {found.question}: {found.what} | {_spread(found.value)} {found.unit} | {bar} | {met} |")
    return "\n".join(rows)


def page(results: Results) -> str:
    """The whole account as Markdown."""
    about = results.machine
    packages = ", ".join(f"{name} {number}" for name, number in about["packages"].items())
    return f"""# Preparing: measured

{table(results)}

Medians, in brackets the least and the most of the repetitions; a ratio is taken round by round. MB are 10⁶ bytes of
text in UTF-8, as it goes in.

## How

`make bench`, or `{results.command}`, on {about["date"]}; {results.seconds:,.0f} seconds in all.

{about["num_cpus"]} × {about["cpu"]}, {about["memory_gib"]} GiB of memory, {about["kernel"]}. Before the run
{results.idle_share:.0%} of the processors were idle; during it the host gave {results.stolen_s:.1f} processor seconds
to others. Python {about["python"]}; {packages}; commit {about["commit"]}.

The text is the standard library's sources, repeated, the first word of every line renamed in each repetition
(`bench/corpora.py`). Every contender runs on its own processors and nowhere else, in turn with the others, after
memory was touched and each had run once.

{_contender_table(results)}

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
  where it is mapped.
"""


def draw(results: Results, path: Path) -> None:
    """Rates of all contenders, and peak memory if it was measured."""
    from matplotlib.figure import Figure

    peaks = [found for found in results.findings if found.question == "memory" and found.what.startswith("peak")]
    peaks = [found for found in peaks if found.unit == "GB"]
    figure = Figure(figsize=(11, 0.45 * len(results.contenders) + 1.6), layout="constrained")
    axes = figure.subplots(1, 2, width_ratios=(3, 1)) if peaks else [figure.subplots()]
    _draw_rates(axes[0], results)
    if peaks:
        axes[1].bar([found.what.removeprefix("peak, ") for found in peaks], [found.value.median for found in peaks])
        axes[1].axhline(2, color="black", linestyle=":", linewidth=1)
        axes[1].set_title("peak memory, GB (bar: 2)", fontsize=10)
        axes[1].tick_params(axis="x", labelsize=8)
    figure.savefig(path, dpi=120)


def _draw_rates(axis: Any, results: Results) -> None:
    rates = {name: _rates(one) for name, one in results.contenders.items()}
    names = sorted(rates, key=lambda name: rates[name].median)
    middle = [rates[name].median for name in names]
    low = [rates[name].median - rates[name].low for name in names]
    high = [rates[name].high - rates[name].median for name in names]
    colors = ["tab:blue" if name.startswith("penstock") else "tab:gray" for name in names]
    bars = axis.barh(names, middle, xerr=(low, high), color=colors, error_kw={"linewidth": 1, "capsize": 2})
    axis.bar_label(bars, [f"{value:.3g}" for value in middle], padding=6, fontsize=8)
    axis.set_xscale("log")
    axis.margins(x=0.15)
    axis.set_title("MB of text a second (log)")


def _contender_table(results: Results) -> str:
    rows = ["| | MB/s (min–max) | text, MB | cores | kept | command |", "|---|---|---|---|---|---|"]
    for name, one in results.contenders.items():
        kept = one["runs"][0]["kept_share"]
        size = one["text"]["num_bytes"] / 1e6
        rates = _spread(_rates(one))
        rows.append(f"| {name} | {rates} | {size:,.0f} | {one['num_cpus']} | {kept:.0%} | `{one['command']}` |")
    return "\n".join(rows)


def _rates(contender: dict[str, Any]) -> Spread:
    return Spread.of([run["mb_per_s"] for run in contender["runs"]])


def _spread(value: Spread) -> str:
    middle, low, high = (_short(one) for one in (value.median, value.low, value.high))
    return middle if value.num == 1 else f"{middle} ({low}–{high})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _commit() -> str:
    """The short hash; with "+" if sources differ from it."""
    root = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", ":/src", ":/bench/*.py")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")


def _lines(path: str) -> list[str]:
    return Path(path).read_text("utf-8").splitlines()

"""Results as files: JSON with everything, a table to read, a picture. Measures nothing."""

import json
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from measure import Spread


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure, and the bar that it has to reach if there is one."""

    question: str
    what: str
    value: Spread
    unit: str
    bar: float | None = None
    at_most: bool = False
    digits: int = 3
    """How many are shown."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """What the account of one benchmark says around its figures."""

    name: str
    """Of its files: NAME.json, NAME.md, NAME.png."""
    title: str
    packages: tuple[str, ...]
    """Whose versions matter."""
    units: str
    """Ends the sentence on medians and spreads: what the figures count."""
    data: str
    """What it was measured on, and how the contenders took turns."""
    columns: tuple[str, ...]
    """Of the table of contenders, after their names."""
    cells: Callable[[Mapping[str, Any]], Sequence[str]]
    """The cells of one contender in it."""
    notes: str
    """What is counted and what is not, one item a line."""
    draw: Callable[[Results, Path], None]
    """Makes the picture."""


def machine(packages: Sequence[str]) -> dict[str, Any]:
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
        "packages": {name: version(name) for name in packages},
        "commit": _commit(),
    }


def write_report(results: Results, page: Page, out_dir: Path) -> None:
    """Writes the page's JSON, Markdown and, once something has run, picture into `out_dir`."""
    out_dir.mkdir(parents=True, exist_ok=True)
    everything = asdict(results)
    for entry, found in zip(everything["findings"], results.findings, strict=True):
        entry["met"] = found.met
    (out_dir / f"{page.name}.json").write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n", "utf-8")
    (out_dir / f"{page.name}.md").write_text(told(results, page), "utf-8")
    if results.contenders:
        page.draw(results, out_dir / f"{page.name}.png")


def table(results: Results) -> str:
    """What was found, and whether it is enough."""
    rows = ["| | measured (min–max) | bar | met |", "|---|---|---|---|"]
    for found in results.findings:
        bar = "" if found.bar is None else f"{'≤' if found.at_most else '≥'} {found.bar:g} {found.unit}"
        met = "trial" if results.trial and bar else {None: "", True: "yes", False: "**no**"}[found.met]
        value = spread_text(found.value, found.digits)
        rows.append(f"| {found.question}: {found.what} | {value} {found.unit} | {bar} | {met} |")
    return "\n".join(rows)


def told(results: Results, page: Page) -> str:
    """The whole account as Markdown."""
    about = results.machine
    packages = ", ".join(f"{name} {number}" for name, number in about["packages"].items())
    return f"""# {page.title}: measured

{table(results)}

Medians, in brackets the least and the most of the repetitions; a ratio is taken round by round. {page.units}

## How

`make bench`, or `{results.command}`, on {about["date"]}; {results.seconds:,.0f} seconds in all.

{about["num_cpus"]} × {about["cpu"]}, {about["memory_gib"]} GiB of memory, {about["kernel"]}. Before the run
{results.idle_share:.0%} of the processors were idle; during it the host gave {results.stolen_s:.1f} processor seconds
to others. Python {about["python"]}; {packages}; commit {about["commit"]}.

{page.data}

{_contender_table(results, page)}

{page.notes}
"""


def draw_rates(axis: Any, rates: Mapping[str, Spread], title: str) -> None:
    """A bar for each, the fastest at the top, with its spread; ours in blue."""
    names = sorted(rates, key=lambda name: rates[name].median)
    middle = [rates[name].median for name in names]
    low = [rates[name].median - rates[name].low for name in names]
    high = [rates[name].high - rates[name].median for name in names]
    colors = ["tab:blue" if name.startswith("penstock") else "tab:gray" for name in names]
    bars = axis.barh(names, middle, xerr=(low, high), color=colors, error_kw={"linewidth": 1, "capsize": 2})
    axis.bar_label(bars, [_short(value, 3) for value in middle], padding=6, fontsize=8)
    axis.set_xscale("log")
    axis.margins(x=0.2)
    axis.set_title(title)


def draw_shares(axis: Any, findings: Sequence[Finding], title: str) -> None:
    """What has a ceiling, as a share of it."""
    capped = [found for found in findings if found.bar and found.at_most][::-1]
    shares = [found.value.median / found.bar for found in capped if found.bar]
    colors = ["tab:blue" if found.met else "tab:red" for found in capped]
    bars = axis.barh([found.what for found in capped], shares, color=colors)
    axis.bar_label(
        bars, [f"{_short(found.value.median, found.digits)} {found.unit}" for found in capped], padding=4, fontsize=8
    )
    axis.axvline(1, color="black", linestyle=":", linewidth=1)
    axis.tick_params(axis="y", labelsize=8)
    axis.margins(x=0.2)
    axis.set_title(title, fontsize=10)


def spread_text(value: Spread, digits: int = 3) -> str:
    """The median, and the least and the most where there is more than one."""
    middle, low, high = (_short(one, digits) for one in (value.median, value.low, value.high))
    return middle if value.num == 1 else f"{middle} ({low}–{high})"


def _contender_table(results: Results, page: Page) -> str:
    rows = [f"| | {' | '.join(page.columns)} |", "|" + "---|" * (len(page.columns) + 1)]
    rows += [f"| {name} | {' | '.join(page.cells(one))} |" for name, one in results.contenders.items()]
    return "\n".join(rows)


def _short(value: float, digits: int) -> str:
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.{digits}g}"


def _commit() -> str:
    """The short hash; with "+" if sources differ from it."""
    root = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", ":/src", ":/bench/*.py")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")


def _lines(path: str) -> list[str]:
    return Path(path).read_text("utf-8").splitlines()

"""How long it takes to open and plan runs of any size, in how much memory, and how level ranks are loaded.

Every question is answered in a fresh process on one processor, several times, in turn. A full run takes about four
minutes and writes bench/results/plan.{json,md,png}; one with --quick writes under bench/work/try instead.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from contenders import ROOT, WORK
from documents import Documents
from load import ONE_THREAD
from measure import Spread, chosen_cpus, idle_share, in_turn, stolen_s, timed, touch_memory
from page_plan import PLAN
from plan_data import ends_files, zero_dataset
from plan_parts import LONG_SEQ_LEN
from report import Finding, Results, machine, table, write_report

LONGER: Final = Documents(mean=4000, sigma=1.5)
CONTEXTS: Final = {"32k": 32_768, "128k": 131_072}
_BUSY: Final = 0.9
_LEVEL: Final = 1.03

Runs = Sequence[dict[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """How large the runs are, and how often they are planned."""

    num_shards: int = 10_000
    tokens_per_shard: int = 100_000_000
    late_step: int = 5_000_000
    """Where a run is resumed."""
    num_documents: int = 100_000_000
    num_sampled: int = 1_000_000
    """Documents that are also placed one by one."""
    num_far_shards: int = 150_000
    """Of a run that is arithmetic only."""
    num_rounds: int = 5
    touch_bytes: int = 4 << 30
    """Memory used once before anything is measured."""


QUICK: Final = Sizes(
    num_shards=500,
    tokens_per_shard=10_000_000,
    late_step=20_000,
    num_documents=2_000_000,
    num_sampled=100_000,
    num_rounds=2,
    touch_bytes=1 << 28,
)


@dataclass(frozen=True, slots=True)
class Part:
    """One run of `bench/plan_parts.py`."""

    name: str
    words: tuple[str, ...]
    seeded: bool = False
    """It draws documents: other ones in every round."""

    def run(self, number: int) -> dict[str, Any]:
        """Runs it once, on one processor, and returns what it says of itself."""
        words = (*self.words[1:], str(number)) if self.seeded else self.words[1:]
        finished = timed((sys.executable, *words), cpus=chosen_cpus(1), env=ONE_THREAD, cwd=ROOT)
        said: dict[str, Any] = json.loads(finished.output.splitlines()[-1])
        return said


def parts(sizes: Sizes) -> list[Part]:
    """All questions, with the data that they need made."""
    zeros = str(zero_dataset(sizes.num_shards, sizes.tokens_per_shard))
    ends = str(ends_files(sizes.num_documents, Documents()))
    far, tokens = str(sizes.num_far_shards), str(Sizes().tokens_per_shard)
    start = ("python", "bench/plan_parts.py")
    found = [
        Part("open, first step", (*start, "open", zeros, "0")),
        Part("open, late step", (*start, "open", zeros, str(sizes.late_step))),
        Part("pack", (*start, "pack", ends, str(LONG_SEQ_LEN))),
        Part("bins", (*start, "bins", str(sizes.num_sampled), str(LONG_SEQ_LEN)), seeded=True),
        Part("arithmetic", (*start, "arithmetic", far, tokens)),
    ]
    for documents in (Documents(), LONGER):
        for name, seq_len in CONTEXTS.items():
            words = (*start, "balance", f"{documents.mean:g}", f"{documents.sigma:g}", str(seq_len))
            found.append(Part(_balance(documents, name), words, seeded=True))
    return found


def opening(sizes: Sizes, first: Runs, late: Runs) -> list[Finding]:
    """A dataset of any size: opened, and a batch of it at any step."""
    both = [*first, *late]
    size = f"{sizes.num_shards:,} shards, {sizes.num_shards * sizes.tokens_per_shard / 1e12:g}T tokens"
    over = [(run["peak_bytes"] - run["imports_bytes"]) / 1e6 for run in both]
    late_at = f"first batch at step {sizes.late_step:,}"
    return [
        Finding("open", f"{size}", _of(both, "open_s"), "s", 1, at_most=True),
        Finding("open", "peak RSS of the process", _of(both, "peak_bytes", 1e6), "MB", 300, at_most=True),
        Finding("open", "the same without what imports took", Spread.of(over), "MB"),
        Finding("open", "first batch at step 0", _of(first, "first_ms"), "ms", 50, at_most=True),
        Finding("open", late_at, _of(late, "first_ms"), "ms", 50, at_most=True),
    ]


def packing(sizes: Sizes, packs: Runs, bins: Runs) -> list[Finding]:
    """From the ends of documents to rows, and whether these are as few as they can be."""
    what = f"{sizes.num_documents / 1e6:g}M documents in rows of {LONG_SEQ_LEN:,}"
    apart = [abs(run["num_rows"] / run["num_one_by_one"] - 1) * 100 for run in bins]
    sample = f"rows against best-fit-decreasing one by one, {sizes.num_sampled / 1e6:g}M documents"
    return [
        Finding("pack", what, _of(packs, "total_s"), "s", 5, at_most=True),
        Finding("pack", "of it sorting documents by length", _of(packs, "items_s"), "s"),
        Finding("pack", "packing the histogram alone", _of(packs, "classes_s"), "s"),
        Finding("pack", "peak RSS of the packing process", _of(packs, "peak_bytes", 1e9), "GB", 2, at_most=True),
        Finding("pack", "padding", Spread.of([(1 - run["filled"]) * 100 for run in packs]), "%"),
        Finding("pack", sample, Spread.of(apart), "% apart", 0.1, at_most=True),
    ]


def far(runs: Runs) -> list[Finding]:
    """A run that is nowhere on disk."""
    size = f"{runs[0]['num_tokens'] / 1e12:g}T tokens"
    return [
        Finding("arithmetic", f"{size}: made in", _of(runs, "made_ms"), "ms"),
        Finding("arithmetic", f"{size}: one row, asked alone", _of(runs, "one_us"), "µs"),
        Finding("arithmetic", f"{size}: one row, 4,000 asked together", _of(runs, "many_us"), "µs"),
        Finding("arithmetic", f"{size}: memory", _of(runs, "held_bytes", 1e6), "MB"),
    ]


def level(runs: dict[str, list[dict[str, Any]]]) -> list[Finding]:
    """Slowest rank over the mean, in the package's own costs and in the time of a model."""
    found: list[Finding] = []
    for documents in (Documents(), LONGER):
        for name in CONTEXTS:
            some, bar = runs[_balance(documents, name)], _LEVEL if name == "32k" else None
            where = f"{name}, mean length {documents.mean:g}"
            for end, measure in (("", "package's costs"), ("_time", "time of a model")):
                dealt, plain = _of(some, f"dealt{end}"), _of(some, f"as_they_come{end}")
                what = f"{where}, {measure}"
                found.append(Finding("balance", f"{what}: dealt", dealt, "×", bar, at_most=True, digits=4))
                found.append(Finding("balance", f"{what}: as they come", plain, "×", digits=4))
    return found


def run(sizes: Sizes, out_dir: Path) -> Results:
    """Measures, and writes the results into `out_dir`."""
    results = Results(command=_typed(), sizes=asdict(sizes), machine=machine(PLAN.packages), idle_share=idle_share())
    results.trial = sizes.num_shards != Sizes().num_shards
    if results.idle_share < _BUSY:
        _say(f"warning: others use {1 - results.idle_share:.0%} of the processors; the figures will suffer")
    stolen, start = stolen_s(), time.perf_counter()
    asked = parts(sizes)
    touch_memory(sizes.touch_bytes)
    # What is read here lies in the page cache from now on, as everywhere in these benchmarks.
    for part in asked[:2]:
        part.run(0)
    runs: dict[str, list[dict[str, Any]]] = {part.name: [] for part in asked}
    for number, part in in_turn(asked, num=sizes.num_rounds):
        runs[part.name].append(part.run(number))
        _say(f"  {number + 1}/{sizes.num_rounds}  {part.name}")
    first, late, packs, bins, arithmetic = (runs[part.name] for part in asked[:5])
    results.findings = opening(sizes, first, late) + packing(sizes, packs, bins) + far(arithmetic) + level(runs)
    for part in asked:
        seed = " SEED" if part.seeded else ""
        results.contenders[part.name] = {"command": " ".join(part.words) + seed, "runs": runs[part.name]}
    results.stolen_s, results.seconds = stolen_s() - stolen, time.perf_counter() - start
    write_report(results, PLAN, out_dir)
    return results


def main() -> None:
    """Reads the words, measures, says where the results are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small runs, two rounds: to try, not to believe")
    parser.add_argument("--rounds", type=int, help="repetitions; 5, or 2 with --quick")
    words = parser.parse_args()
    os.chdir(ROOT)
    sizes = QUICK if words.quick else Sizes()
    sizes = replace(sizes, num_rounds=words.rounds or sizes.num_rounds)
    out_dir = WORK / "try" if words.quick else Path("bench/results")
    print(f"{table(run(sizes, out_dir))}\n\n{out_dir}/plan.md")


def _of(runs: Runs, name: str, per: float = 1) -> Spread:
    return Spread.of([run[name] / per for run in runs])


def _balance(documents: Documents, context: str) -> str:
    return f"balance, {context}, mean length {documents.mean:g}"


def _typed() -> str:
    return " ".join([".venv-bench/bin/python bench/plan.py", *sys.argv[1:]])


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

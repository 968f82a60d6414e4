"""How fast `penstock prepare` is against datatrove and the bare tokenizer, and how much memory it takes.

All contenders run in turn, several times, on the same text. A full run takes about a quarter of an hour and writes
bench/results/prepare.{json,md,png}; one with --quick or --only writes the same files under bench/work/ instead.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from contenders import (
    ROOT,
    WORK,
    Contender,
    Sample,
    check_tokens,
    datatrove,
    described,
    fastokens,
    on_text,
    penstock,
    rounds,
    sampled,
    sampled_with_peak,
    write_tokenizer,
)
from corpora import Text, cached_sample, cached_stdlib
from measure import Peak, Spread, idle_share, read_through, stolen_s, touch_memory
from page_prepare import PREPARE
from report import Finding, Results, machine, table, write_report

BATCHES: Final = (16, 64, 256)
_BUSY: Final = 0.9
_DISK_FACTOR: Final = 3
_NUM_CPUS: Final = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """How much text, in MB, and how often."""

    text_mb: int = 300
    """What nearly everything is measured on."""
    part_mb: int = 100
    """A shorter text: the difference of the two shows the rate without the start."""
    peer_mb: int = 15
    """What datatrove gets, drawn evenly from the text: all of it would take minutes."""
    large_mb: int = 1000
    """What two workers share."""
    memory_mb: tuple[int, int] = (1000, 10_000)
    """Peak memory is compared between these."""
    num_rounds: int = 5
    num_memory_runs: int = 3
    """Of the smaller text; the larger one runs once."""
    touch_bytes: int = 8 << 30
    """Memory used once before anything is measured."""


QUICK: Final = Sizes(
    text_mb=20,
    part_mb=7,
    peer_mb=1,
    large_mb=40,
    memory_mb=(20, 60),
    num_rounds=2,
    num_memory_runs=1,
    touch_bytes=1 << 28,
)


class Texts:
    """Texts by size, made when first asked for and, if large, removed at the end."""

    _KEEP_MB: Final = 500

    def __init__(self) -> None:
        self._large: list[Path] = []

    def of(self, num_mb: int) -> Text:
        path = WORK / f"text-{num_mb}MB.jsonl"
        if num_mb > self._KEEP_MB:
            self._large.append(path)
        text = cached_stdlib(path, num_mb * 10**6)
        read_through(path)
        return text

    def sample(self, num_mb: int, source: Text) -> Text:
        return cached_sample(WORK / f"sample-{num_mb}MB-of-{source.path.name}", source, num_mb * 10**6)

    def remove_large(self) -> None:
        for path in self._large:
            path.unlink(missing_ok=True)
            path.with_suffix(".made.json").unlink(missing_ok=True)
        self._large.clear()


def field(sizes: Sizes, texts: Texts, asked: Sequence[str]) -> list[Contender]:
    """The contenders that the asked questions need, each once."""
    text = texts.of(sizes.text_mb)
    one, plain = penstock("penstock", text, workers=1), penstock("penstock plain", text, workers=1, plain=True)
    needed: dict[str, list[Contender]] = {"rate": [one]}
    if "datatrove" in asked:
        needed["datatrove"] = [one, datatrove(texts.sample(sizes.peer_mb, text)), plain]
    if "tokenizer" in asked:
        part = penstock("penstock plain, part", texts.of(sizes.part_mb), workers=1, plain=True)
        needed["tokenizer"] = [plain, part, *(fastokens(text, num) for num in BATCHES)]
    if "workers" in asked:
        large = texts.of(sizes.large_mb)
        needed["workers"] = [
            one,
            penstock("penstock, 2 workers", text, workers=2),
            penstock("penstock, large", large, workers=1),
            penstock("penstock, large, 2 workers", large, workers=2),
        ]
    return list({one.name: one for question in asked for one in needed.get(question, [])}.values())


def rate(samples: dict[str, list[Sample]]) -> list[Finding]:
    """MB/s of the whole command on one core, cleaning and line deduplication on."""
    return [Finding("rate", "whole command, one core, default settings", _rates(samples["penstock"]), "MB/s", 40)]


def against_datatrove(samples: dict[str, list[Sample]]) -> list[Finding]:
    """How many times faster than datatrove, which only tokenizes; and the same for equal work."""
    ours, plain, theirs = samples["penstock"], samples["penstock plain"], samples["datatrove"]
    return [
        Finding("datatrove", "datatrove, one core, tokenizing only", _rates(theirs), "MB/s"),
        Finding("datatrove", "default settings ÷ datatrove", _ratios(ours, theirs), "×", 25),
        Finding("datatrove", "without cleaning and dedup ÷ datatrove (equal work)", _ratios(plain, theirs), "×"),
    ]


def against_tokenizer(samples: dict[str, list[Sample]]) -> list[Finding]:
    """Which share of the bare tokenizer's speed is left, of the whole command and without its start."""
    name = max((f"fastokens/{num}" for num in BATCHES), key=lambda name: _rates(samples[name]).median)
    bare, whole, part = samples[name], samples["penstock plain"], samples["penstock plain, part"]
    steady = [
        (more.num_bytes - less.num_bytes) / 1e6 / (more.seconds - less.seconds)
        for more, less in zip(whole, part, strict=True)
    ]
    start = [less.seconds - less.num_bytes / 1e6 / speed for less, speed in zip(part, steady, strict=True)]
    shares = [speed / other.mb_per_s for speed, other in zip(steady, bare, strict=True)]
    best = f"bare fastokens, first pass, {name.split('/')[1]} documents a call"
    return [
        Finding("tokenizer", best, _rates(bare), "MB/s"),
        Finding("tokenizer", "whole command without cleaning and dedup", _rates(whole), "MB/s"),
        Finding("tokenizer", "the same without its start", Spread.of(steady), "MB/s"),
        Finding("tokenizer", "its start", Spread.of(start), "s"),
        Finding("tokenizer", "whole command ÷ bare tokenizer", _ratios(whole, bare), "×", 0.6),
        Finding("tokenizer", "without its start ÷ bare tokenizer", Spread.of(shares), "×", 0.6),
    ]


def two_workers(samples: dict[str, list[Sample]]) -> list[Finding]:
    """What the second core brings."""
    small = _ratios(samples["penstock, 2 workers"], samples["penstock"])
    large = _ratios(samples["penstock, large, 2 workers"], samples["penstock, large"])
    num_mb = {name: round(samples[name][0].num_bytes / 1e6) for name in ("penstock", "penstock, large")}
    return [
        Finding("workers", f"2 workers on 2 cores ÷ 1 on 1, {num_mb['penstock, large']:,} MB", large, "×", 1.8),
        Finding("workers", f"the same, {num_mb['penstock']:,} MB", small, "×"),
        Finding("workers", "2 workers", _rates(samples["penstock, large, 2 workers"]), "MB/s"),
    ]


def peak_memory(less: list[tuple[Sample, Peak]], more: list[tuple[Sample, Peak]]) -> list[Finding]:
    """Peak memory of all processes together, default settings, two workers, for two sizes of text."""
    small, large = (f"{runs[0][0].num_bytes / 1e6:,.0f} MB" for runs in (less, more))
    low, high = (Spread.of([peak.pss_bytes / 1e9 for _, peak in runs]) for runs in (less, more))
    rss = Spread.of([peak.rss_bytes / 1e9 for _, peak in more])
    return [
        Finding("memory", f"peak, {small} of text", low, "GB"),
        Finding("memory", f"peak, {large} of text", high, "GB", 2, at_most=True),
        Finding("memory", f"{large} ÷ {small}", Spread.of([high.median / low.median]), "×", 1.15, at_most=True),
        Finding("memory", f"sum of RSS, {large} (shared pages in each process)", rss, "GB"),
        Finding("memory", f"rate while sampled, {large}", _rates([sample for sample, _ in more]), "MB/s"),
    ]


QUESTIONS: Final[dict[str, Callable[[dict[str, list[Sample]]], list[Finding]]]] = {
    "rate": rate,
    "datatrove": against_datatrove,
    "tokenizer": against_tokenizer,
    "workers": two_workers,
}


def warm_up(contenders: Sequence[Contender], sizes: Sizes, texts: Texts) -> None:
    """Memory is touched, and everyone has run once on a small text, where all have to find the same tokens."""
    touch_memory(sizes.touch_bytes)
    text = texts.sample(sizes.peer_mb, texts.of(sizes.text_mb))
    small = [on_text(contender, text) for contender in contenders]
    check_tokens(small, [sampled(contender) for contender in small])


def run(sizes: Sizes, asked: Sequence[str], out_dir: Path) -> Results:
    """Measures what was asked. Results are in `out_dir` after the rounds already, and complete at the end."""
    texts = Texts()
    results = Results(command=_typed(), sizes=asdict(sizes), machine=machine(PREPARE.packages), idle_share=idle_share())
    results.trial = sizes.text_mb != Sizes().text_mb
    if results.idle_share < _BUSY:
        _say(f"warning: others use {1 - results.idle_share:.0%} of the processors; the figures will suffer")
    stolen, start = stolen_s(), time.perf_counter()
    try:
        for finish in (_run_rounds, _run_memory):
            finish(results, sizes, asked, texts)
            results.stolen_s, results.seconds = stolen_s() - stolen, time.perf_counter() - start
            write_report(results, PREPARE, out_dir)
    finally:
        texts.remove_large()
    return results


def main() -> None:
    """Reads the words, measures, says where the results are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*QUESTIONS, "memory"]
    parser.add_argument("--quick", action="store_true", help="20 MB and two rounds: to try, not to believe")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"some of: {', '.join(names)}")
    parser.add_argument("--rounds", type=int, help="repetitions of all but the memory runs; 5, or 2 with --quick")
    words = parser.parse_args()
    os.chdir(ROOT)
    if len(os.sched_getaffinity(0)) < _NUM_CPUS:
        raise SystemExit("bench/prepare.py: needs two processors, this process may use one")
    sizes = QUICK if words.quick else Sizes()
    sizes = replace(sizes, num_rounds=words.rounds or sizes.num_rounds)
    out_dir = WORK / "try" if words.quick or words.only else Path("bench/results")
    asked = [name for name in names if name in (words.only or names)]
    _check_disk(max(sizes.memory_mb) if "memory" in asked else sizes.large_mb)
    results = run(sizes, asked, out_dir)
    print(f"{table(results)}\n\n{out_dir}/prepare.md")


def _run_rounds(results: Results, sizes: Sizes, asked: Sequence[str], texts: Texts) -> None:
    contenders = field(sizes, texts, asked)
    write_tokenizer()
    _say(f"warming up, {len(contenders)} contenders")
    warm_up(contenders, sizes, texts)
    samples = list(rounds(contenders, num=sizes.num_rounds))
    check_tokens(contenders, samples)
    by_name = {one.name: [sample for sample in samples if sample.contender == one.name] for one in contenders}
    for one in contenders:
        results.contenders[one.name] = described(one, by_name[one.name])
    for name in asked:
        if name in QUESTIONS:
            results.findings += QUESTIONS[name](by_name)


def _run_memory(results: Results, sizes: Sizes, asked: Sequence[str], texts: Texts) -> None:
    if "memory" not in asked:
        return
    found = []
    for num_mb, num_runs in zip(sizes.memory_mb, (sizes.num_memory_runs, 1), strict=True):
        contender = penstock(f"penstock, memory, {num_mb:,} MB", texts.of(num_mb), workers=2)
        runs = [sampled_with_peak(contender) for _ in range(num_runs)]
        results.contenders[contender.name] = described(contender, [sample for sample, _ in runs])
        _say(f"  {contender.name}: {runs[-1][1].pss_bytes / 1e9:.2f} GB, {runs[-1][0].mb_per_s:.1f} MB/s")
        found.append(runs)
    results.findings += peak_memory(*found)


def _rates(samples: Sequence[Sample]) -> Spread:
    return Spread.of([sample.mb_per_s for sample in samples])


def _ratios(ours: Sequence[Sample], theirs: Sequence[Sample]) -> Spread:
    """Round by round: what slows the machine for a while slows both."""
    return Spread.of([one.mb_per_s / other.mb_per_s for one, other in zip(ours, theirs, strict=True)])


def _check_disk(num_mb: int) -> None:
    """Room for a text, for the shards that it becomes, and for what deduplication spills."""
    free_mb, needed_mb = shutil.disk_usage(ROOT).free // 10**6, _DISK_FACTOR * num_mb
    if free_mb < needed_mb:
        raise SystemExit(
            f"bench/prepare.py: {num_mb:,} MB of text need {needed_mb:,} MB of disk under {WORK}, "
            f"{free_mb:,} MB are free; --only leaves questions out"
        )


def _typed() -> str:
    return " ".join([".venv-bench/bin/python bench/prepare.py", *sys.argv[1:]])


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

"""How fast batches come on one core, against nanoGPT, litdata and MosaicML Streaming, and how soon the first comes.

All loaders run in turn, several times, each in a fresh process, on the same tokens in the page cache. A full run takes
about six minutes and writes bench/results/load.{json,md,png}; one with --quick writes under bench/work/try instead.
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
from load_data import made_tokens
from loaders import LOADERS
from measure import Spread, chosen_cpus, idle_share, in_turn, stolen_s, timed, touch_memory
from page_load import LOAD
from report import Finding, Results, machine, table, write_report

ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1"
)
OURS: Final = ("penstock chunk, torch", "penstock chunk, numpy")
BEHIND: Final = {"at the start": 0.0, "resumed in the middle": 0.5, "resumed near the end": 0.99}
_BUSY: Final = 0.9
_FIRST_MS: Final = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """How many tokens, and how often."""

    num_tokens: int = 100_000_000
    seconds: float = 2
    """How long each loader is timed in a round."""
    num_rounds: int = 5
    touch_bytes: int = 4 << 30
    """Memory used once before anything is measured."""


QUICK: Final = Sizes(num_tokens=10_000_000, seconds=0.3, num_rounds=2, touch_bytes=1 << 28)


@dataclass(frozen=True, slots=True)
class Contender:
    """One run of `bench/loaders.py`."""

    name: str
    words: tuple[str, ...]
    """As a person would type them in the repository."""

    def run(self) -> dict[str, Any]:
        """Runs it once, on one processor, and returns what it says of itself."""
        finished = timed((sys.executable, *self.words[1:]), cpus=chosen_cpus(1), env=ONE_THREAD, cwd=ROOT)
        said: dict[str, Any] = json.loads(finished.output.splitlines()[-1])
        return said


def loaders(data: Path, seconds: float) -> list[Contender]:
    """Everyone whose rate is measured."""
    words = ("python", "bench/loaders.py", "rate")
    return [Contender(name, (*words, name, str(data), str(seconds))) for name in LOADERS]


def starts(data: Path) -> list[Contender]:
    """Both kinds of rows, from nothing and from the places where a run may go on."""
    words = ("python", "bench/loaders.py", "start")
    return [
        Contender(f"{rows}, {where}", (*words, rows, str(data), str(share)))
        for rows in ("chunk", "best_fit")
        for where, share in BEHIND.items()
    ]


def rates(runs: dict[str, list[dict[str, Any]]]) -> list[Finding]:
    """Million tokens a second, and how many times what others give."""
    chunk, plain = (_rates(runs[name]) for name in OURS)
    packed, limit = _rates(runs["penstock best_fit"]), _rates(runs["np.take"])
    found = [
        Finding("rate", "chunk, torch: input_ids, labels", Spread.of(chunk), "Mtok/s", 1000),
        Finding("rate", "chunk, numpy: input_ids, labels", Spread.of(plain), "Mtok/s", 1000),
        Finding("rate", "best_fit: also position_ids, cu_seqlens", Spread.of(packed), "Mtok/s", 300),
        Finding("limit", "`np.take` on rows, then int64", Spread.of(limit), "Mtok/s"),
        Finding("limit", "chunk, numpy ÷ `np.take`", _ratios(plain, limit), "×"),
    ]
    for name, bar in (("litdata", 15), ("nanoGPT get_batch", 8), ("MosaicML Streaming", 60)):
        theirs = _rates(runs[name])
        found.append(Finding("peers", name, Spread.of(theirs), "Mtok/s"))
        found.append(Finding("peers", f"chunk, torch ÷ {name}", _ratios(chunk, theirs), "×", bar))
    return found


def first_batches(runs: dict[str, list[dict[str, Any]]]) -> list[Finding]:
    """Milliseconds until there is something to train on, in a process that has done nothing but import."""
    found: list[Finding] = []
    for rows in ("chunk", "best_fit"):
        opened = [run["open_ms"] for where in BEHIND for run in runs[f"{rows}, {where}"]]
        found.append(Finding("start", f"{rows}, open", Spread.of(opened), "ms", _FIRST_MS, at_most=True))
        for where in BEHIND:
            spread = Spread.of([run["first_ms"] for run in runs[f"{rows}, {where}"]])
            found.append(Finding("start", f"{rows}, first batch {where}", spread, "ms", _FIRST_MS, at_most=True))
    return found


def run(sizes: Sizes, out_dir: Path) -> Results:
    """Measures, and writes the results into `out_dir`."""
    results = Results(command=_typed(), sizes=asdict(sizes), machine=machine(LOAD.packages), idle_share=idle_share())
    results.trial = sizes.num_tokens != Sizes().num_tokens
    if results.idle_share < _BUSY:
        _say(f"warning: others use {1 - results.idle_share:.0%} of the processors; the figures will suffer")
    stolen, start = stolen_s(), time.perf_counter()
    data = made_tokens(sizes.num_tokens)
    touch_memory(sizes.touch_bytes)
    rated, started = loaders(data, sizes.seconds), starts(data)
    for contender in (*rated, *started):
        contender.run()
    everyone = _rounds((*rated, *started), num=sizes.num_rounds)
    results.findings = rates(everyone) + first_batches(everyone)
    for contender in (*rated, *started):
        runs = everyone[contender.name]
        results.contenders[contender.name] = {"command": _quoted(contender.words), "runs": runs}
    results.stolen_s, results.seconds = stolen_s() - stolen, time.perf_counter() - start
    write_report(results, LOAD, out_dir)
    return results


def main() -> None:
    """Reads the words, measures, says where the results are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10M tokens and two short rounds: to try, not to believe")
    parser.add_argument("--rounds", type=int, help="repetitions; 5, or 2 with --quick")
    words = parser.parse_args()
    os.chdir(ROOT)
    sizes = QUICK if words.quick else Sizes()
    sizes = replace(sizes, num_rounds=words.rounds or sizes.num_rounds)
    out_dir = WORK / "try" if words.quick else Path("bench/results")
    print(f"{table(run(sizes, out_dir))}\n\n{out_dir}/load.md")


def _rounds(contenders: Sequence[Contender], *, num: int) -> dict[str, list[dict[str, Any]]]:
    runs: dict[str, list[dict[str, Any]]] = {contender.name: [] for contender in contenders}
    for number, contender in in_turn(contenders, num=num):
        said = contender.run()
        runs[contender.name].append(said)
        figure = f"{_rates([said])[0]:9.1f} Mtok/s" if "num_tokens" in said else f"{said['first_ms']:9.1f} ms"
        _say(f"  {number + 1}/{num}  {contender.name:<32}{figure}")
    return runs


def _rates(runs: Sequence[dict[str, Any]]) -> list[float]:
    return [run["num_tokens"] / run["seconds"] / 1e6 for run in runs]


def _ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Round by round: what slows the machine for a while slows both."""
    return Spread.of([one / other for one, other in zip(ours, theirs, strict=True)])


def _quoted(words: Sequence[str]) -> str:
    return " ".join(f'"{word}"' if " " in word else word for word in words)


def _typed() -> str:
    return " ".join([".venv-bench/bin/python bench/load.py", *sys.argv[1:]])


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

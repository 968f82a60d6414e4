"""Who is measured, with which command, on which text and processors. Runs them in turn, several times over."""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from corpora import Text
from measure import Peak, chosen_cpus, in_turn, timed, timed_with_peak

from penstock.text.tokenizers.gpt2 import gpt2_content

ROOT: Final = Path(__file__).resolve().parent.parent
WORK: Final = Path("bench/work")
"""For texts and results that nobody keeps. Relative to the repository, as every path here: results show them."""
_OUT: Final = WORK / "out"
TOKENIZER: Final = WORK / "gpt2.json"
_ONE_THREAD: Final = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
_PLAIN: Final = ("--no_normalize", "--no_dedup")


@dataclass(frozen=True, kw_only=True, slots=True)
class Contender:
    """One command on one text."""

    name: str
    text: Text
    words: tuple[str, ...]
    """As a person would type them in the repository."""
    num_cpus: int = 1
    timed_inside: bool = False
    """It reports its own time, without start and imports; otherwise the whole process is timed."""
    plain: bool = False
    """It neither cleans nor deduplicates: all that are plain must find the same number of tokens in the same text."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one contender."""

    contender: str
    seconds: float
    cpu_s: float
    num_bytes: int
    num_tokens: int
    kept_share: float
    """Which part of the text's bytes reached the tokenizer."""

    @property
    def mb_per_s(self) -> float:
        """Of text that went in."""
        return self.num_bytes / 1e6 / self.seconds


def penstock(name: str, text: Text, *, workers: int, plain: bool = False) -> Contender:
    """The command, with its defaults or without cleaning and deduplication."""
    words = ("penstock", "prepare", "--input_files", str(text.path), "--out_dir", str(_OUT), "--tokenization", "gpt2")
    words += ("--workers", str(workers), "--json", *(_PLAIN if plain else ()))
    return Contender(name=name, text=text, words=words, num_cpus=workers, plain=plain)


def datatrove(text: Text) -> Contender:
    """JsonlReader → DocumentTokenizer. Neither cleans nor deduplicates, which is to its advantage."""
    words = ("python", "bench/peers_prepare.py", "datatrove", str(text.path), str(TOKENIZER), str(_OUT))
    return Contender(name="datatrove", text=text, words=words, timed_inside=True, plain=True)


def fastokens(text: Text, num_documents: int) -> Contender:
    """The tokenizer alone, on strings in memory, `num_documents` at a time."""
    words = ("python", "bench/peers_prepare.py", "fastokens", str(text.path), str(TOKENIZER), str(num_documents))
    return Contender(name=f"fastokens/{num_documents}", text=text, words=words, timed_inside=True, plain=True)


def write_tokenizer() -> None:
    """The file that all peers read: the same GPT-2 that penstock uses."""
    path = ROOT / TOKENIZER
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(gpt2_content()), "utf-8")


def sampled(contender: Contender) -> Sample:
    """Runs it once, into a directory that is empty before and gone afterwards."""
    with _empty_out():
        finished = timed(**_command(contender))
    return _sample(contender, finished.seconds, finished.cpu_s, finished.output)


def sampled_with_peak(contender: Contender) -> tuple[Sample, Peak]:
    """The same, and the most memory that its processes held together."""
    with _empty_out():
        finished, peak = timed_with_peak(**_command(contender))
    return _sample(contender, finished.seconds, finished.cpu_s, finished.output), peak


def rounds(contenders: Sequence[Contender], *, num: int) -> Iterator[Sample]:
    """A sample of every contender, `num` times over, in turn."""
    for number, contender in in_turn(contenders, num=num):
        sample = sampled(contender)
        print(f"  {number + 1}/{num}  {contender.name:<36}{sample.mb_per_s:9.2f} MB/s", file=sys.stderr, flush=True)
        yield sample


def check_tokens(contenders: Sequence[Contender], samples: Sequence[Sample]) -> None:
    """Whoever did the same work on the same text must have found the same number of tokens."""
    texts = {contender.name: contender.text.path for contender in contenders if contender.plain}
    found: dict[Path, set[int]] = {}
    for sample in samples:
        if sample.contender in texts:
            found.setdefault(texts[sample.contender], set()).add(sample.num_tokens)
    for path, counts in found.items():
        if len(counts) > 1:
            raise RuntimeError(f"{path}: the contenders differ in its number of tokens, {sorted(counts)}")


def on_text(contender: Contender, text: Text) -> Contender:
    """The same command on another text."""
    old = str(contender.text.path)
    return replace(
        contender, text=text, words=tuple(str(text.path) if word == old else word for word in contender.words)
    )


def described(contender: Contender, samples: Sequence[Sample]) -> dict[str, Any]:
    """What the results say of a contender: its command, its text, and each of its runs."""
    return {
        "command": " ".join(contender.words),
        "num_cpus": contender.num_cpus,
        "timed_inside": contender.timed_inside,
        "text": asdict(contender.text) | {"path": str(contender.text.path)},
        "runs": [asdict(sample) | {"mb_per_s": sample.mb_per_s} for sample in samples],
    }


@contextmanager
def _empty_out() -> Iterator[None]:
    """The output directory does not exist before, nor afterwards."""
    shutil.rmtree(ROOT / _OUT, ignore_errors=True)
    try:
        yield
    finally:
        shutil.rmtree(ROOT / _OUT, ignore_errors=True)


def _command(contender: Contender) -> dict[str, Any]:
    ours = contender.words[0] == "penstock"
    start = (sys.executable, "-m", "penstock") if ours else (sys.executable,)
    return {
        "words": (*start, *contender.words[1:]),
        "cpus": chosen_cpus(contender.num_cpus),
        "env": {} if ours else _ONE_THREAD,
        "cwd": ROOT,
    }


def _sample(contender: Contender, seconds: float, cpu_s: float, output: str) -> Sample:
    said = json.loads(output.splitlines()[-1])
    num_bytes = contender.text.num_bytes
    if contender.timed_inside:
        return Sample(contender.name, said["seconds"], cpu_s, num_bytes, said["num_tokens"], 1.0)
    stages = {stage["stage"]: stage for stage in said["stages"]}
    if stages["read"]["bytes_out"] != num_bytes:
        raise RuntimeError(f"{contender.text.path}: penstock read {stages['read']['bytes_out']} bytes of {num_bytes}")
    kept = stages["tokenize"]["bytes_in"] / num_bytes
    return Sample(contender.name, seconds, cpu_s, num_bytes, said["total_tokens"], kept)

"""How long a command takes and how much memory its processes hold. Knows nothing of what the command does.

Linux only: processors are chosen with `sched_setaffinity`, memory is read from /proc.
"""

import mmap
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")

_SAMPLE_S = 0.1
_KEPT_FREE_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that ended well."""

    seconds: float
    """Wall time from before the process starts until it is gone."""
    cpu_s: float
    """Of all its processes together."""
    output: str
    """What it wrote to standard output."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that a process and its descendants held at one moment."""

    pss_bytes: int
    """Memory shared between processes counts once."""
    rss_bytes: int
    """Memory shared between processes counts in each."""
    num_samples: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Repetitions of one measurement."""

    median: float
    low: float
    high: float
    num: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values), len(values))


def timed(words: Sequence[str], *, cpus: set[int], env: Mapping[str, str], cwd: Path) -> Finished:
    """Runs a command on `cpus` and nowhere else. Raises with the end of its error output if it fails."""
    return _run(words, cpus=cpus, env=env, cwd=cwd, sampled=False)[0]


def timed_with_peak(
    words: Sequence[str], *, cpus: set[int], env: Mapping[str, str], cwd: Path
) -> tuple[Finished, Peak]:
    """The same, and the peak memory of its process tree, looked at ten times a second."""
    return _run(words, cpus=cpus, env=env, cwd=cwd, sampled=True)


def in_turn(contenders: Sequence[T], *, num: int) -> Iterator[tuple[int, T]]:
    """Every contender `num` times, in turn and in alternating order, so that a drift of the machine meets all."""
    for number in range(num):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            yield number, contender


def chosen_cpus(num: int) -> set[int]:
    """`num` processors to measure on. Processor 0 answers most interrupts: it is left for last."""
    return set(sorted(os.sched_getaffinity(0), reverse=True)[:num])


def own_rss_bytes() -> tuple[int, int]:
    """What this process holds, and the most that it ever held. Not ru_maxrss: a parent's memory counts there."""
    status = Path("/proc/self/status").read_text("ascii").splitlines()
    fields = {words[0]: words[1] for words in map(str.split, status) if len(words) > 1}
    return int(fields["VmRSS:"]) << 10, int(fields["VmHWM:"]) << 10


def touch_memory(num_bytes: int) -> float:
    """Writes to `num_bytes` of memory and frees them. Returns the seconds that it took.

    A virtual machine may get its memory only when it is first used, slowly: that must not happen while measuring.
    """
    num_bytes = min(num_bytes, max(0, psutil.virtual_memory().available - _KEPT_FREE_BYTES))
    start = time.perf_counter()
    if num_bytes:
        with mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            page = b"\1" * mmap.PAGESIZE
            for at in range(0, num_bytes - mmap.PAGESIZE + 1, mmap.PAGESIZE):
                memory[at : at + mmap.PAGESIZE] = page
    return time.perf_counter() - start


def read_through(path: Path) -> None:
    """Reads a file, so that it lies in the page cache as far as it fits."""
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(8 << 20)
        while file.readinto(buffer):
            pass


def idle_share(seconds: float = 1.0) -> float:
    """Which part of the processors nothing uses right now, from 0 to 1. Others at work spoil what is measured."""
    return float(psutil.cpu_times_percent(interval=seconds).idle) / 100


def stolen_s() -> float:
    """Processor seconds that the host gave to others since this machine started."""
    return float(psutil.cpu_times().steal)


def _run(
    words: Sequence[str], *, cpus: set[int], env: Mapping[str, str], cwd: Path, sampled: bool
) -> tuple[Finished, Peak]:
    # What earlier runs wrote must not still be on its way to the disk.
    os.sync()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with _on(cpus):
        start = time.perf_counter()
        process = subprocess.Popen(
            words, cwd=cwd, env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    try:
        peak = _watched(process) if sampled else Peak(0, 0, 0)
        output, errors = process.communicate()
    finally:
        process.kill()
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)}: exit code {process.returncode}\n{errors[-2000:]}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Finished(seconds, cpu_s, output), peak


@contextmanager
def _on(cpus: set[int]) -> Iterator[None]:
    """What is started inside inherits `cpus`."""
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, usual)


def _watched(process: subprocess.Popen[str]) -> Peak:
    """Samples until the process ends. Its output must fit into a pipe."""
    pss = rss = num_samples = 0
    root = psutil.Process(process.pid)
    while process.poll() is None:
        now_pss, now_rss = _held(root)
        pss, rss, num_samples = max(pss, now_pss), max(rss, now_rss), num_samples + 1
        time.sleep(_SAMPLE_S)
    return Peak(pss, rss, num_samples)


def _held(root: psutil.Process) -> tuple[int, int]:
    """PSS and RSS in bytes, summed over a process and its descendants."""
    pss = rss = 0
    try:
        processes = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0, 0
    for one in processes:
        # A process may end while it is looked at.
        try:
            rollup = Path(f"/proc/{one.pid}/smaps_rollup").read_text("ascii")
        except OSError:
            continue
        fields = {words[0]: words[1] for words in map(str.split, rollup.splitlines()[1:])}
        # One that has ended and is not yet waited for has an empty file.
        pss += int(fields.get("Pss:", 0)) << 10
        rss += int(fields.get("Rss:", 0)) << 10
    return pss, rss

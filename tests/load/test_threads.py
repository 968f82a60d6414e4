"""Reading ahead ends when nobody listens any more, and leaves nothing behind however the process ends."""

import gc
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray

from penstock.load import loader as loader_module
from penstock.load.dataset import Dataset
from penstock.load.loader import Loader
from penstock.load.plan import Plan
from penstock.load.rows import PlacedRows, RowMaker

from .builders import natural_shards, rows_of_batches, undisturbed, written


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return Dataset(written(tmp_path_factory.mktemp("set"), natural_shards(4, num_documents=400)))


def reading_ahead() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "penstock-loader"]


def endless(dataset: Dataset) -> Plan:
    return Plan(dataset, seq_len=16, batch_size=8, epochs=100_000)


@pytest.mark.parametrize("handed_out", [0, 1, 2, 50])
def test_an_iterator_that_is_abandoned_takes_its_thread_with_it(dataset: Dataset, handed_out: int) -> None:
    loader = Loader(endless(dataset), micro_batch=8, prefetch=2)
    iterator = iter(loader)
    for _ in range(handed_out):
        next(iterator)
    assert len(reading_ahead()) == (1 if handed_out else 0)
    del iterator
    gc.collect()
    assert reading_ahead() == []
    assert loader.state_dict()["rows"] == handed_out * 8


def test_leaving_a_loop_takes_the_thread_along(dataset: Dataset) -> None:
    for batch in Loader(endless(dataset), micro_batch=8, prefetch=2):
        if batch.step == 3:
            break
    gc.collect()
    assert reading_ahead() == []


def test_an_exception_in_the_loop_takes_the_thread_along(dataset: Dataset) -> None:
    def train() -> None:
        for batch in Loader(endless(dataset), micro_batch=8, prefetch=2):
            if batch.step == 3:
                raise ArithmeticError("loss is nan")

    with pytest.raises(ArithmeticError, match="nan"):
        train()
    gc.collect()
    assert reading_ahead() == []


def test_a_run_to_the_end_takes_the_thread_along_and_sees_the_same_rows(dataset: Dataset) -> None:
    plan = Plan(dataset, seq_len=16, batch_size=8)
    for prefetch in (1, 2, 5):
        loader = Loader(plan, micro_batch=2, prefetch=prefetch)
        assert rows_of_batches(loader) == undisturbed(plan)
        assert reading_ahead() == []


def test_two_iterators_read_ahead_side_by_side(dataset: Dataset) -> None:
    plan = Plan(dataset, seq_len=16, batch_size=8)
    one, other = (iter(Loader(plan, micro_batch=8, prefetch=1)) for _ in range(2))
    for first, second in zip(one, other, strict=True):
        assert first.rows.tolist() == second.rows.tolist()
    assert reading_ahead() == []


def test_no_thread_starts_where_reading_is_fast_and_one_does_where_it_is_slow(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(dataset, seq_len=16, batch_size=8)
    # Pieces of one batch, so that there is more than one of them.
    monkeypatch.setattr(loader_module, "_COPIED_TOKENS", 128)
    for slow, expected in ((1e9, 0), (0.0, 1)):
        monkeypatch.setattr(loader_module, "_SLOW_S", slow)
        iterator = iter(Loader(plan, micro_batch=8))
        rows = [row for batch in islice(iterator, 6) for row in batch.rows.tolist()]
        assert len(reading_ahead()) == expected
        rows += [row for batch in iterator for row in batch.rows.tolist()]
        assert [row for row in rows if row >= 0] == list(range(plan.num_rows))
        assert reading_ahead() == []


def test_a_piece_that_cannot_be_read_is_an_error_where_it_is_used(tmp_path: Path) -> None:
    directory = written(tmp_path, [[400], [400]])
    plan = Plan(Dataset(directory), seq_len=16, batch_size=5, shuffle=False)
    (directory / "train/shard_00001.bin").write_bytes(b"\0" * 800)
    loader = Loader(plan, micro_batch=5, prefetch=2)
    with pytest.raises(Exception, match=r"shard_00001\.bin: block 0"):
        list(loader)
    assert reading_ahead() == []


ITERATE = """
import sys, threading
sys.modules["torch"] = None  # takes seconds to load, and has no part in this
from penstock.load.dataset import Dataset
from penstock.load.loader import Loader
from penstock.load.plan import Plan

plan = Plan(Dataset(sys.argv[1]), seq_len=16, batch_size=8, epochs=100_000, rows=sys.argv[2])
loader = Loader(plan, micro_batch=8, prefetch=2, format="numpy")
try:
    for number, batch in enumerate(loader):
        if number == 100:
            print("running", threading.active_count(), flush=True)
except KeyboardInterrupt:
    loader = batch = None
    left = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    print("interrupted", left, flush=True)
    raise
"""


def started(dataset: Dataset, kind: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", ITERATE, str(dataset.directory), kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    if (said := process.stdout.readline()) != "running 2\n":
        process.kill()
        pytest.fail(f"{said}{process.communicate()[1]}")
    return process


def files_of(dataset: Dataset) -> dict[str, tuple[int, int]]:
    found = (path for path in dataset.directory.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def shared_memory() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "torch" in name or "psm" in name}


@pytest.mark.parametrize("kind", ["chunk", "best_fit"])
def test_ctrl_c_ends_a_run_at_once_and_leaves_nothing(dataset: Dataset, kind: str) -> None:
    before = files_of(dataset), shared_memory()
    process = started(dataset, kind)
    process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - sent < 5
    assert out == "interrupted []\n"
    assert process.returncode == -signal.SIGINT
    assert err.strip().splitlines()[-1] == "KeyboardInterrupt"
    assert err.count("Traceback") == 1, err
    assert (files_of(dataset), shared_memory()) == before


@pytest.mark.parametrize("kind", ["chunk", "best_fit"])
def test_kill_9_leaves_no_file_and_the_next_run_sees_the_same(dataset: Dataset, kind: str) -> None:
    before = files_of(dataset), shared_memory()
    process = started(dataset, kind)
    process.kill()
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert (files_of(dataset), shared_memory()) == before
    plan = Plan(Dataset(dataset.directory), seq_len=16, batch_size=8)
    again = Plan(dataset, seq_len=16, batch_size=8)
    assert undisturbed(plan) == undisturbed(again)


def test_memory_read_ahead_is_bounded_by_prefetch(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread waits when nobody takes what it has read."""
    full = threading.Event()
    tokens_read: list[int] = []

    class Watched(queue.Queue[Any]):
        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
            try:
                super().put(item, block, timeout)
            except queue.Full:
                full.set()
                raise

    class Counted(RowMaker):
        def tokens(self, rows: PlacedRows, first: int, last: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
            found = super().tokens(rows, first, last, out)
            tokens_read.append(found.size)
            return found

    monkeypatch.setattr(queue, "Queue", Watched)
    monkeypatch.setattr(loader_module, "RowMaker", Counted)
    iterator = iter(Loader(endless(dataset), micro_batch=8, prefetch=1))
    next(iterator)
    assert full.wait(30), "the thread never waits"
    # One piece in the queue, one in its hands, and the small first one.
    assert sum(tokens_read) < 3 * loader_module._AHEAD_TOKENS
    del iterator
    gc.collect()
    assert reading_ahead() == []

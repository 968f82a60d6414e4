"""Work runs somewhere, its results come back, and no process outlives the one that started it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.engines import Crew, InProcess, process_pool
from penstock.errors import InputError, WorkerDied

_PATIENCE_S = 30


def double(number: int) -> int:
    return 2 * number


def fails(number: int) -> int:
    raise InputError(f"no {number}")


def dies(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def one_thread() -> str:
    return os.environ["POLARS_MAX_THREADS"]


def test_results_of_calls_and_of_the_calls_they_lead_to_come_back() -> None:
    crew = Crew(InProcess(), 1)
    for number in range(5):
        crew.add(number, double, number)
    found = {}
    for done in crew.finished():
        found[done.tag] = done.result
        if done.tag < 5:
            crew.add(done.tag + 10, double, done.result, soon=True)
    assert found == {n: 2 * n for n in range(5)} | {n + 10: 4 * n for n in range(5)}


def test_a_pool_gives_the_same_results_on_one_thread_each() -> None:
    before = os.environ.get("POLARS_MAX_THREADS")
    with process_pool(2) as pool:
        crew = Crew(pool, 2)
        for number in range(20):
            crew.add(number, double, number)
        crew.add("threads", one_thread)
        found = {done.tag: done.result for done in crew.finished()}
    assert found == {n: 2 * n for n in range(20)} | {"threads": "1"}
    assert os.environ.get("POLARS_MAX_THREADS") == before


def test_an_error_in_a_worker_is_the_same_error_here_and_ends_the_pool() -> None:
    with pytest.raises(InputError, match="no 3"), process_pool(2) as pool:
        crew = Crew(pool, 2)
        crew.add("x", fails, 3)
        for _ in crew.finished():
            pass


def test_a_killed_worker_is_reported_as_such() -> None:
    with pytest.raises(WorkerDied, match="run the same command again"), process_pool(2) as pool:
        crew = Crew(pool, 2)
        crew.add("x", dies, 3)
        for _ in crew.finished():
            pass


_PARENT = """
import os, sys, time
from penstock.engines import process_pool
def forever():
    print(os.getpid(), flush=True)
    while True:
        time.sleep(1)
if __name__ == "__main__":
    with process_pool(2) as pool:
        futures = [pool.submit(forever) for _ in range(2)]
        futures[0].result()
"""


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_workers_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [int(parent.stdout.readline()) for _ in range(2)]
        assert all(map(alive, workers))
        parent.kill()
        parent.wait()
        end = time.monotonic() + _PATIENCE_S
        while any(map(alive, workers)):
            assert time.monotonic() < end, "workers outlived their parent"

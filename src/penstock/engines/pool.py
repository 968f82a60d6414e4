"""Work in processes of this machine.

Spawned, never forked. A worker does one thing on one core, leaves Ctrl-C to its parent, and dies with it: no run
can find the workers of an earlier, killed run still writing.
"""

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module

_ONE_THREAD = {
    "POLARS_MAX_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@contextmanager
def process_pool(num_workers: int, *, preload: tuple[str, ...] = ()) -> Iterator[Executor]:
    """An executor over `num_workers` processes. Leaving it early ends them at once.

    Workers import the modules in `preload` while their parent is still getting ready.
    """
    before = set(multiprocessing.active_children())
    with _environment(_ONE_THREAD):
        pool = ProcessPoolExecutor(
            num_workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_become_worker,
            initargs=(os.getpid(), preload),
        )
        # Processes inherit the environment when they start, which is at the first submissions.
        for _ in range(num_workers):
            pool.submit(os.getpid)
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - before:
            child.kill()
            child.join()
        raise


def tune_process() -> None:
    """Makes this process fit for moving much data in few objects.

    Memory that it frees is reused, up to a bound, instead of given back and faulted in again for every block; and the
    search for reference cycles, of which there are none to speak of, is made rare.
    """
    gc.set_threshold(200_000, 20, 50)
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):
            libc = ctypes.CDLL(None)
            libc.mallopt(_M_MMAP_THRESHOLD, 64 << 20)
            libc.mallopt(_M_TRIM_THRESHOLD, 256 << 20)


def _become_worker(parent: int, preload: tuple[str, ...]) -> None:
    tune_process()
    # The parent decides what Ctrl-C means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    for name in preload:
        import_module(name)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    kept = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

"""Keeps an engine busy with calls that may lead to more calls.

Yields results in the order they finish; what the caller does with them must not depend on that order.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

from penstock.errors import WorkerDied

_TICK_S = 0.2


class Done(NamedTuple):
    """A call that has finished."""

    tag: Any
    result: Any


class Crew:
    """A queue in front of an engine. At most one call more than there are workers is under way, to bound memory."""

    def __init__(self, engine: Executor, num_workers: int) -> None:
        self._engine = engine
        # One process runs a call when it is submitted: a second would only wait with its result in memory.
        self._most = 1 if num_workers == 1 else num_workers + 1
        self._queue: deque[tuple[Any, Callable[..., Any], tuple[Any, ...]]] = deque()
        self._running: dict[Future[Any], Any] = {}

    def add(self, tag: Any, function: Callable[..., Any], *args: Any, soon: bool = False) -> None:
        """Queues a call, at the front if it should go `soon`."""
        (self._queue.appendleft if soon else self._queue.append)((tag, function, args))

    def start(self) -> None:
        """Gives processes as much as they can take; the caller can do something else until it asks for results."""
        if self._most > 1:
            self._submit()

    def finished(self, on_tick: Callable[[], None] = lambda: None) -> Iterator[Done]:
        """Results until nothing is left, calls added meanwhile included. `on_tick` is called a few times a second."""
        while self._queue or self._running:
            self._submit()
            done, _ = wait(self._running, timeout=_TICK_S, return_when=FIRST_COMPLETED)
            on_tick()
            for future in done:
                tag = self._running.pop(future)
                try:
                    result = future.result()
                except BrokenProcessPool as error:
                    raise WorkerDied(
                        "a worker process was killed, most often for want of memory; run the same command again "
                        "(finished work is kept), with fewer --workers if it happens twice"
                    ) from error
                yield Done(tag, result)

    def _submit(self) -> None:
        while self._queue and len(self._running) < self._most:
            tag, function, args = self._queue.popleft()
            self._running[self._engine.submit(function, *args)] = tag

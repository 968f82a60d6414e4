"""What a person at a terminal sees while something runs. Silent when nobody watches."""

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class TerminalProgress:
    """Progress on standard error: a line a stage with rate and time left. Warnings are printed for everyone."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._watched = sys.stderr.isatty()
        self._bars = Progress(
            TextColumn("{task.description:>20}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._watched,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> "TerminalProgress":
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._finish_stage()
        self._bars.stop()

    def stage(self, name: str, total: int, unit: str = "B") -> None:
        self._finish_stage()
        self._task = self._bars.add_task(name, total=total or None)

    def advance(self, amount: int) -> None:
        if self._task is not None:
            self._bars.advance(self._task, amount)

    def note(self, message: str) -> None:
        if self._watched:
            self._console.print(message, markup=False, highlight=False)

    def warn(self, message: str) -> None:
        print(f"warning: {message}", file=sys.stderr)

    def _finish_stage(self) -> None:
        if self._task is not None:
            task = self._bars.tasks[self._task]
            total = task.total if task.total is not None else 1
            self._bars.update(self._task, total=total, completed=total)
        self._task = None

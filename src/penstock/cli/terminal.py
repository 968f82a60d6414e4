"""What a person at a terminal sees while something runs. Silent when nobody watches."""

import sys
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from penstock.types import Progress

if TYPE_CHECKING:
    from rich.progress import TaskID


def shown_progress() -> AbstractContextManager[Progress]:
    """Progress on standard error: bars where `rich` is installed, plain lines elsewhere."""
    try:
        import rich.progress  # noqa: F401
    except ImportError:
        return PlainProgress()
    return TerminalProgress()


class TerminalProgress:
    """A line a stage with rate and time left. Warnings are printed for everyone."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        self._watched = sys.stderr.isatty()
        self._bars = Progress(
            TextColumn("{task.description:>20}"),
            BarColumn(),
            _amount_column(),
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
        self._task = self._bars.add_task(name, total=total or None, unit=unit)

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


class PlainProgress:
    """Notes as lines, for terminals without bars."""

    def __enter__(self) -> "PlainProgress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def stage(self, name: str, total: int, unit: str = "B") -> None:
        self.note(f"{name} …")

    def advance(self, amount: int) -> None:
        pass

    def note(self, message: str) -> None:
        if sys.stderr.isatty():
            print(message, file=sys.stderr)

    def warn(self, message: str) -> None:
        print(f"warning: {message}", file=sys.stderr)


def _amount_column() -> Any:
    """How much of how much, and how fast: bytes as megabytes, anything else by number."""
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Amount(ProgressColumn):
        def render(self, task: Task) -> Text:
            unit = str(task.fields.get("unit", "B"))
            scale, said = (1e6, "MB") if unit == "B" else (1.0, unit)
            total = "" if task.total is None else f"/{task.total / scale:,.0f}"
            speed = task.finished_speed or task.speed
            rate = f" · {speed / scale:,.1f} {said}/s" if speed else ""
            return Text(f"{task.completed / scale:,.0f}{total} {said}{rate}")

    return Amount()

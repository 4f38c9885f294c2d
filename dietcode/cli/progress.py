"""Progress of a tuning run, here or on a server, on a terminal, or as plain lines."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Task, TaskID, TextColumn
from rich.progress import Progress as RichProgress

_PLAIN_INTERVAL_SECS = 60.0
_STAGES_WITH_BEST = {"seed", "measure"}


class ShownEvent(Protocol):
    """What is shown: an event of the tuner, or the progress of a job, with the same fields."""

    @property
    def stage(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def done(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def best_gflops(self) -> float | None: ...
    @property
    def secs_left(self) -> float | None: ...


class ProgressBars:
    """A listener: stage, trials, best GFLOP/s and time left."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bars: RichProgress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._last_plain = 0.0
        self._pending: ShownEvent | None = None  # the last event of a stage that goes on

    def __enter__(self) -> ProgressBars:
        if self._console.is_terminal:
            self._bars = RichProgress(
                TextColumn("{task.fields[stage]:<9}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[counts]:>7}  {task.description}"),
                console=self._console,
            )
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is None:
            self._print_pending()
            return
        for task in self._bars.tasks:
            _end(self._bars, task, done=error is None)
        self._bars.stop()

    def on_event(self, event: ShownEvent) -> None:
        """Show one event."""
        if self._bars is None:
            self._plain(event)
            return
        text = describe(event)
        counts = f"{event.done}/{event.total}" if event.total else ""
        if event.stage not in self._tasks:
            for task in self._bars.tasks:  # a stage without a count has ended as the next one begins
                if task.total is None:
                    _end(self._bars, task)
            self._tasks[event.stage] = self._bars.add_task(
                text, total=event.total or None, stage=event.stage, counts=counts
            )
        self._bars.update(
            self._tasks[event.stage],
            description=text,
            completed=event.done,
            total=event.total or None,
            counts=counts,
        )

    def print_line(self, line: str) -> None:
        """Print a line above the bars, or below what is known of a stage."""
        self._print_pending()
        self._console.print(line, markup=False, soft_wrap=True)

    def _plain(self, event: ShownEvent) -> None:
        """A line as a stage ends, and one a minute where it is long."""
        now, last = time.monotonic(), self._pending
        if last is None:
            self._last_plain = now
        elif last.stage != event.stage or _is_remark(event, last):
            self._print_pending()
        self._pending = event
        if now - self._last_plain >= _PLAIN_INTERVAL_SECS:
            self._print_pending()

    def _print_pending(self) -> None:
        event, self._pending = self._pending, None
        if event is None or self._bars is not None:
            return
        self._last_plain = time.monotonic()
        counts = f" {event.done}/{event.total}" if event.total else ""
        self._console.print(f"{event.stage}{counts}: {describe(event)}", markup=False, soft_wrap=True)


def _is_remark(event: ShownEvent, last: ShownEvent) -> bool:
    """Whether an event says something more of a stage that was complete."""
    return not event.total and 0 < last.total <= last.done


def _end(bars: RichProgress, task: Task, done: bool = True) -> None:
    """Fill the bar of a stage that has no count, or leave it empty: it would pulse on."""
    if task.total is None:
        bars.update(task.id, total=1, completed=int(done))


def describe(event: ShownEvent) -> str:
    """One line: message, best GFLOP/s, time left."""
    parts = [event.message]
    if event.best_gflops is not None and event.stage in _STAGES_WITH_BEST:
        parts.append(f"best {event.best_gflops:.0f} GFLOP/s")
    if event.secs_left is not None and event.secs_left >= 1:
        parts.append(f"{event.secs_left:.0f} s left")
    return ", ".join(parts)

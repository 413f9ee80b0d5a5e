"""Shows how far the gate has come: a bar in a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .case_results import BROKEN, VIOLATED, CaseResult

if TYPE_CHECKING:
    from rich.console import Console


class GateProgress:
    """A context manager that pytest's collector reports to.

    Args:
        console (Console): where to show it.
        lines (int): how many lines a log gets in the course of a run.
    """

    def __init__(self, console: Console, lines: int = 20) -> None:
        self._console = console
        self._lines = lines
        self._total, self._done, self._violated, self._broken = 0, 0, 0, 0
        self._started = time.monotonic()
        self._bar = None
        if console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False)
            self._task = self._bar.add_task("collecting cases", total=None)

    def __enter__(self) -> GateProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def expect(self, total: int) -> None:
        """Note the number of cases.

        Args:
            total (int): the number.
        """
        if total and not self._total:
            self._total = total
            self._show(started=True)

    def advance(self, result: CaseResult) -> None:
        """Note a result.

        Args:
            result (CaseResult): the result.
        """
        self._done += 1
        self._violated += result.status == VIOLATED
        self._broken += result.status == BROKEN
        self._show()

    def _show(self, started: bool = False) -> None:
        text = f"{self._violated} violated" + (f", {self._broken} broken" if self._broken else "")
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, total=self._total or None, description=text)
            return
        every = max(1, self._total // self._lines)
        if started or self._done % every == 0 or self._done == self._total:
            seconds = time.monotonic() - self._started
            self._console.print(f"{self._done} of {self._total} cases, {text}, {seconds:.0f} s", highlight=False)

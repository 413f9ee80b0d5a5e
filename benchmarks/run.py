"""Runs cases: saves their checkpoints, and has the contestants take turns at loading them."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import tempfile
from typing import Any, Callable, Sequence

from . import checkpoints, machine
from .cases import Case
from .processes import Processes, RanksFailed
from .summary import Row, summarise
from .worker import Task, work

#: Version of the JSON form.
FORM = 1


@dataclasses.dataclass
class Results:
    """What a run came to.

    Attributes:
        machine (Dict[str, object]): where it ran.
        titles (Dict[str, str]): the cases by name.
        records (List[dict]): every measurement of every rank.
        failures (List[dict]): ``case``, ``contestant`` and ``reason`` of those that could not do the job.
    """

    machine: dict[str, object]
    titles: dict[str, str]
    records: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    failures: list[dict[str, str]] = dataclasses.field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        """List[Row]: the measurements summed up."""
        return summarise(self.records)

    def save(self, path: str) -> None:
        """Write the results as JSON.

        Args:
            path (str): the file.
        """
        rows = [dataclasses.asdict(row) for row in self.rows]
        with open(path, "w") as file:
            json.dump({"form": FORM, **dataclasses.asdict(self), "rows": rows}, file, indent=1)

    @classmethod
    def read(cls, path: str) -> Results:
        """Read what :meth:`save` wrote.

        Args:
            path (str): the file.

        Returns:
            Results: the results.

        Raises:
            ValueError: the file is of another form.
        """
        with open(path) as file:
            content = json.load(file)
        if not isinstance(content, dict) or content.pop("form", None) != FORM:
            raise ValueError(f"{path} holds no results of this benchmark (of form {FORM})")
        content.pop("rows")
        return cls(**content)


class Run:
    """A run of the benchmark.

    Args:
        cases (Sequence[Case]): the cases.
        rounds (int): how often each contestant's time is taken; there is one more round, in which memory is watched.
        device (str): "cpu" or "cuda".
        directory (Optional[str]): a directory on the disk to be measured; the system's for temporary files by default.
        progress (Callable[[str], None]): is told before each set of processes what it does.
    """

    def __init__(
        self,
        cases: Sequence[Case],
        rounds: int = 5,
        device: str = "cpu",
        directory: str | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.cases = cases
        self.rounds = rounds
        self.device = device
        self.directory = directory
        self._progress = progress
        self._numbers = itertools.count()

    @property
    def steps(self) -> int:
        """int: how often progress is told."""
        return sum(1 + len(case.contestants) * (self.rounds + 1) for case in self.cases)

    def __call__(self) -> Results:
        """Measure.

        Returns:
            Results: what came of it.
        """
        titles = {case.name: case.title for case in self.cases}
        with tempfile.TemporaryDirectory(dir=self.directory) as directory:
            self._results = Results(machine.describe(directory, self.device), titles)
            self._processes = Processes(self.device)
        for case in self.cases:
            with tempfile.TemporaryDirectory(dir=self.directory) as directory:
                self._case(case, directory)
        return self._results

    def _case(self, case: Case, directory: str) -> None:
        self._progress(f"{case.title}: saving")
        try:
            self._start(case, "", directory)
        except RanksFailed as error:
            self._fail(case, "saving", error)
            return
        checkpoints.settle(case, directory)
        left = list(case.contestants)
        for number in range(self.rounds + 1):
            # Everybody is first, and last, about as often.
            turn = number % len(case.contestants)
            for contestant in case.contestants[turn:] + case.contestants[:turn]:
                self._progress(f"{case.title}: {contestant}")
                if contestant in left and not self._measured(case, contestant, number, directory):
                    left.remove(contestant)

    def _measured(self, case: Case, contestant: str, number: int, directory: str) -> bool:
        try:
            ranks = self._start(case, contestant, directory, observed=number == 0)
        except RanksFailed as error:
            self._fail(case, contestant, error)
            return False
        for rank, measurements in enumerate(ranks):
            known = {
                "case": case.name,
                "contestant": contestant,
                "round": number,
                "rank": rank,
                "observed": number == 0,
            }
            self._results.records.extend({**known, **measured} for measured in measurements)
        return True

    def _fail(self, case: Case, contestant: str, error: RanksFailed) -> None:
        self._results.failures.append({"case": case.name, "contestant": contestant, "reason": str(error)})

    def _start(self, case: Case, contestant: str, directory: str, observed: bool = False) -> list[list[dict[str, Any]]]:
        meeting = os.path.join(directory, f"meeting-{next(self._numbers)}")
        tasks = [
            Task(case, contestant, rank, directory, meeting, observed, self.device) for rank in range(case.processes)
        ]
        return self._processes.run(work, tasks)

"""``colossalai-fork gate``: the contract against the installed ColossalAI."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import traceback
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..gate.run import Selection


class NoJudgement(click.ClickException):
    """The gate cannot even begin."""

    exit_code = 2


#: Characters of a temporary directory in which multiprocessing can still make its sockets.
LONGEST = 70
EXTRA = "this command needs more packages: python -m pip install 'colossalai-fork[gate]'"


def _report_file(ctx: click.Context, parameter: click.Parameter, path: tuple[str, ...]) -> tuple[str, ...]:
    from ..gate.report.documents import SUFFIXES

    for file in path:
        if os.path.splitext(file)[1].lower() not in SUFFIXES:
            raise click.BadParameter(f"the suffix of {file} must be one of {', '.join(SUFFIXES)}")
        if not os.path.isdir(os.path.dirname(os.path.abspath(file))):
            raise click.BadParameter(f"there is no directory for {file}")
    return path


def _class_names(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


@click.command()
@click.option(
    "--overlay",
    type=click.Choice(["on", "off"]),
    default="on",
    show_default=True,
    help="Whether colossalai_fork.apply() is called first.",
)
@click.option(
    "--classes",
    default="",
    metavar="NAMES",
    callback=_class_names,
    help="Checkpoint IO classes, separated by commas, e.g. general,LowLevelZero. All by default.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only configurations of at most N processes; 1 is the quick check.",
)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option(
    "--report",
    "reports",
    metavar="FILE",
    multiple=True,
    type=click.Path(dir_okay=False, writable=True),
    callback=_report_file,
    help="Write FILE.json, FILE.xml (JUnit) or FILE.md as well; may be given several times.",
)
@click.option(
    "--baseline",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="A JSON report whose violations are known: exactly these, found as they are there, are let pass.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Test processes at a time (more than one needs pytest-xdist).",
)
@click.option("--durations", is_flag=True, help="List the ten slowest cases.")
@click.argument("files", nargs=-1, metavar="[TESTS]...", type=click.Path(exists=True))
def gate(
    overlay: str,
    classes: tuple[str, ...],
    processes: int | None,
    device: str,
    reports: tuple[str, ...],
    baseline: str | None,
    jobs: int | None,
    durations: bool,
    files: tuple[str, ...],
) -> None:
    """Hold checkpoint IO classes against the contract of loading an optimizer.

    Ends with a table of classes and contract points. TESTS are test modules that use the kit for classes of your own; by
    default the gate's own run, against the installed ColossalAI.

    Exit status: 0 if nothing is violated, or what a baseline knows and no more; 1 if something is, or if a known violation
    has changed or disappeared; 2 if the gate could not judge, because nothing ran or something else than the class failed.
    """
    try:
        selection, known = _prepared(overlay, classes, processes, device, reports, baseline, jobs, files)
        from rich.console import Console

        from ..gate.report.verdict import judge

        # This very stream: what sys.stdout is while pytest runs is kept for the case that it breaks off.
        code = judge(Console(file=sys.stdout), selection, reports, known, durations)
    except (click.ClickException, SystemExit):
        raise
    except KeyboardInterrupt:
        raise NoJudgement("interrupted") from None
    except Exception as error:
        traceback.print_exc()
        raise NoJudgement(f"the gate itself failed: {type(error).__name__}: {error}") from error
    raise SystemExit(code)


def _prepared(
    overlay: str,
    classes: tuple[str, ...],
    processes: int | None,
    device: str,
    reports: tuple[str, ...],
    baseline: str | None,
    jobs: int | None,
    files: tuple[str, ...],
) -> tuple[Selection, dict[str, tuple[str, ...]] | None]:
    if importlib.util.find_spec("pytest") is None or (
        jobs is not None and jobs > 1 and importlib.util.find_spec("xdist") is None
    ):
        raise NoJudgement(EXTRA)
    from ..gate.report.baseline import BaselineError, read
    from ..gate.run import Selection, default_jobs, suite_classes
    from ..gate.selection import unknown_classes

    _temporary_directory()
    if device == "cuda":
        _cuda()
    if not files:
        unknown = unknown_classes(classes, suite_classes())
        if unknown:
            raise click.BadParameter("; ".join(unknown), param_hint="--classes")
    try:
        known = None if baseline is None else read(baseline)
    except BaselineError as error:
        raise NoJudgement(str(error)) from error
    return (
        Selection(
            overlay=overlay == "on",
            classes=classes,
            processes=processes or 0,
            device=device,
            files=files,
            jobs=jobs or default_jobs(),
        ),
        known,
    )


def _temporary_directory() -> None:
    directory = tempfile.gettempdir()
    if len(directory) > LONGEST:
        raise NoJudgement(
            f"the path of the temporary directory {directory} is too long for sockets: "
            f"let TMPDIR name one of at most {LONGEST} characters"
        )
    try:
        with tempfile.TemporaryFile() as file:
            file.write(bytes(65536))
            file.flush()
    except OSError as error:
        raise NoJudgement(
            f"cannot write temporary files: {error.strerror}; let TMPDIR name a directory with space"
        ) from error


def _cuda() -> None:
    import torch

    if not torch.cuda.is_available():
        raise NoJudgement("--device cuda needs a CUDA device, and torch finds none here")

"""``colossalai-fork gate``: the contract against the installed ColossalAI."""

import importlib.util
import os
import sys

import click

EXTRA = "this command needs more packages: python -m pip install 'colossalai-fork[gate]'"


def _report_file(ctx, parameter, path):
    from ..gate.report.documents import SUFFIXES

    for file in path:
        if os.path.splitext(file)[1].lower() not in SUFFIXES:
            raise click.BadParameter(f"the suffix of {file} must be one of {', '.join(SUFFIXES)}")
        if not os.path.isdir(os.path.dirname(os.path.abspath(file))):
            raise click.BadParameter(f"there is no directory for {file}")
    return path


def _class_names(ctx, parameter, value):
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
    help="A JSON report whose violations are known: exactly these are let pass.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Test processes at a time (more than one needs pytest-xdist).",
)
@click.argument("files", nargs=-1, metavar="[TESTS]...", type=click.Path(exists=True))
def gate(overlay, classes, processes, device, reports, baseline, jobs, files):
    """Hold checkpoint IO classes against the contract of loading an optimizer.

    Ends with a table of classes and contract points. TESTS are test modules that use the kit for classes of your own; by
    default the gate's own run, against the installed ColossalAI.

    Exit status: 0 if nothing is violated, or what a baseline knows and no more; 1 if something is, or if a known violation
    has disappeared; 2 if the gate could not judge, because nothing ran or the kit itself failed.
    """
    if importlib.util.find_spec("pytest") is None:
        raise click.ClickException(EXTRA)
    from rich.console import Console

    from ..gate.report.baseline import BaselineError, read
    from ..gate.report.verdict import judge
    from ..gate.run import Selection, default_jobs

    junit = [file for file in reports if file.lower().endswith(".xml")]
    if len(junit) > 1:
        raise click.BadParameter("there can be one JUnit file", param_hint="--report")
    if jobs is not None and jobs > 1 and importlib.util.find_spec("xdist") is None:
        raise click.ClickException(EXTRA)
    try:
        known = None if baseline is None else read(baseline)
    except BaselineError as error:
        raise click.ClickException(str(error)) from error
    selection = Selection(
        overlay=overlay == "on",
        classes=classes,
        processes=processes or 0,
        device=device,
        files=files,
        jobs=jobs or default_jobs(),
        junit_xml=os.path.abspath(junit[0]) if junit else None,
    )
    # This very stream: what sys.stdout is while pytest runs is kept for the case that it breaks off.
    raise SystemExit(judge(Console(file=sys.stdout), selection, reports, known))

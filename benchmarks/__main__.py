"""``python -m benchmarks``: measure, and write the results down."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from . import cases as known

if TYPE_CHECKING:
    from rich.console import Console

    from .run import Results


def _chosen(whole: bool, names: tuple[str, ...], gigabytes: float) -> list[known.Case]:
    if names:
        return [known.by_name(name).scaled(gigabytes) for name in names]
    return [case.scaled(gigabytes) for case in (known.WHOLE if whole else known.QUICK)]


def _measure(console: Console, chosen: list[known.Case], **options: Any) -> Results:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from .run import Run

    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting")

        def tell(text: str) -> None:
            progress.update(task, description=text, advance=tell.started)
            tell.started = 1
            if not console.is_terminal and text.endswith("saving"):
                # A log shows no bar, but wants to say how far it is.
                console.print(text)

        tell.started = 0
        run = Run(chosen, progress=tell, **options)
        progress.update(task, total=run.steps)
        return run()


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


@click.command()
@click.option("--whole", is_flag=True, help="Every case, instead of a few small ones.")
@click.option(
    "--case", "names", multiple=True, type=click.Choice([case.name for case in known.WHOLE]), help="This case only."
)
@click.option(
    "--rounds", default=5, show_default=True, type=click.IntRange(min=1), help="How often each time is taken."
)
@click.option(
    "--gigabytes",
    default=1.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Size of the largest case; the others follow.",
)
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, writable=True),
    help="Where to keep checkpoints meanwhile: the disk that is measured.",
)
@click.option(
    "--output",
    default="build/benchmark",
    show_default=True,
    type=click.Path(file_okay=False),
    help="Where results.json, results.md and results.png go.",
)
@click.option(
    "--show",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Measure nothing; report on this results.json.",
)
def main(
    whole: bool,
    names: tuple[str, ...],
    rounds: int,
    gigabytes: float,
    device: str,
    directory: str | None,
    output: str,
    show: str | None,
) -> None:
    """Measure how long loaders of optimizer checkpoints take, what they read and how much memory they need.

    The quick form takes about two minutes on two idle cores, the whole about fifteen. Exit status: 1 if a loader could not
    do its job.
    """
    from rich.console import Console

    from . import figure, report
    from .run import Results

    console = Console()
    if show:
        try:
            results = Results.read(show)
        except ValueError as error:
            raise click.ClickException(str(error)) from error
    elif device == "cuda" and not _has_cuda():
        console.print("Skipped: needs a CUDA device, found none.")
        return
    else:
        chosen = _chosen(whole, names, gigabytes)
        results = _measure(console, chosen, rounds=rounds, device=device, directory=directory)
    os.makedirs(output, exist_ok=True)
    results.save(os.path.join(output, "results.json"))
    with open(os.path.join(output, "results.md"), "w") as file:
        file.write(report.markdown(results, "results.png"))
    figure.save(results, os.path.join(output, "results.png"))
    report.show(console, results)
    console.print(f"{output}: results.json, results.md, results.png")
    if results.failures:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

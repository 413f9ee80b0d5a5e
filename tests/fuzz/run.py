"""The long run: ``tox run -e fuzz -- --inputs 100000``."""

import multiprocessing
import pathlib
import sys
import tempfile

import click

sys.path[:0] = [
    str(pathlib.Path(__file__).resolve().parent),
    str(pathlib.Path(__file__).resolve().parents[1]),
]

import fuzzer


@click.command()
@click.option(
    "--inputs",
    default=10_000,
    show_default=True,
    help="How many spoilt checkpoints to load.",
)
@click.option("--seed", default=0, show_default=True, help="Another seed makes other checkpoints.")
@click.option("--first", default=0, show_default=True, help="The number of the first one.")
@click.option("--processes", default=2, show_default=True)
@click.option(
    "--keep",
    type=int,
    help="Write the checkpoint of this number to a folder, and judge it alone.",
)
def main(inputs, seed, first, processes, keep):
    """Load spoilt checkpoints. Exit status: 0 if each was refused unchanged or loaded as natively, 1 otherwise."""
    if keep is not None:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="fuzz-"))
        path, kind, done = fuzzer.spoilt(keep, seed, folder)
        click.echo(f"{path}\n{done}")
        click.echo(fuzzer.judged(path, kind, folder))
        return
    step = -(-inputs // processes)
    parts = [range(first + start, min(first + start + step, first + inputs)) for start in range(0, inputs, step)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        found = pool.starmap(_run, [(part, seed) for part in parts])
    failures = [failure for findings in found for failure in findings.failures]
    for number, done, why in failures:
        click.echo(f"\n--keep {number} --seed {seed}: {done}\n{why[:3000]}")
    counts = sum((findings.counts for findings in found), start=type(found[0].counts)())
    click.echo(
        ", ".join(f"{counts[outcome]:,} {outcome}" for outcome in (fuzzer.REFUSED, fuzzer.LOADED, fuzzer.FAILED))
    )
    sys.exit(bool(failures))


def _run(numbers, seed):
    return fuzzer.run(numbers, seed)


if __name__ == "__main__":
    main()

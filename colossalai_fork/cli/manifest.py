"""``colossalai-fork manifest``: write the checksums of a checkpoint's files beside it."""

import click


@click.command()
@click.argument("checkpoint", type=click.Path(exists=True))
def manifest(checkpoint: str) -> None:
    """Write size and SHA-256 of every file of a checkpoint beside its index, or beside the file that holds the whole state.

    Loading and `verify` compare sizes with them from then on, and contents if they are asked to. Saving into the same place
    removes the manifest.

    Exit status: 0 if it is written, 1 if the checkpoint is not sound, 2 if that could not be found out or it cannot be written.
    """
    # Not at the top: torch takes seconds to import, and the other commands need not wait for it.
    from ..checkpoint_io.optimizer_restore.files.sources import UnreadableFileError
    from ..checkpoints.manifest import write_manifest
    from ..checkpoints.opened import Checkpoint
    from .inspect import print_problems
    from .verify import progress, size_of

    opened = Checkpoint(checkpoint)
    # What an earlier manifest says is about to be replaced.
    told = {str(problem) for problem in opened.saved.altered}
    problems = [problem for problem in opened.problems if str(problem) not in told]
    if problems:
        print_problems(problems)
        raise SystemExit(1)
    try:
        with progress("reading", size_of(opened)) as advance:
            path = write_manifest(opened, advance)
    except (OSError, UnreadableFileError) as error:
        raise click.UsageError(f"the manifest cannot be written: {error}")
    click.echo(f"{path}: {len(opened.saved.files)} files, {size_of(opened):,} bytes")

"""Runs the demo from start to end."""

import os

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from . import report, results
from .curves import Curves, curves_of
from .processes import Processes, temporary_directory
from .schedule import WORLD_SIZE, Schedule


def show(console: Console, steps: int, file: str | None = None) -> bool:
    """Run both parts and print what came of them.

    Args:
        console (rich.console.Console): where to.
        steps (int): steps of training after the checkpoint.
        file (Optional[str]): where to draw the loss curves; None for the console.

    Returns:
        bool: whether all that the demo claims held.

    Raises:
        ProcessFailed: a process failed or hung.
    """
    console.print("\n[bold]1. The smallest case[/], each time in a process of its own\n", highlight=False)
    unmodified, fixed = reproduce(console)
    console.print(report.reproduction_table(unmodified, fixed))
    console.print("By hand: python -m colossalai_fork.demo.reproduction [--fixed]", style="dim", markup=False)

    schedule = Schedule(steps)
    console.print(
        f"\n[bold]2. A model in training[/]: digits, Booster, LowLevelZeroPlugin, Adam, {WORLD_SIZE} processes\n\n"
        f"For {schedule.last_layer.steps} steps only the last layer is trained. Then, after a checkpoint, the whole "
        f"model, but with a learning rate a hundred times too high. After {schedule.astray.steps} steps of that the "
        f"run goes back to the checkpoint, in the same process, and makes {steps} steps with the right one.\n",
        highlight=False,
    )
    training = train(console, steps)
    console.print(report.training_table(training))
    if training.unmodified_cannot_save is not None:
        console.print(report.cannot_save_text(training))
    console.print()
    _draw(console, curves_of(training), file)

    claims = results.claims_of_reproduction(unmodified, fixed) + results.claims_of_training(training)
    console.print("\n[bold]3. What this shows[/]\n", highlight=False)
    console.print(report.claims_table(claims))
    return all(claim.holds for claim in claims)


def reproduce(console: Console) -> tuple[results.Reproduction, results.Reproduction]:
    """Run the smallest case without and with the overlay.

    Args:
        console (rich.console.Console): shows that it is running.

    Returns:
        Tuple[Reproduction, Reproduction]: what came of it without and with the overlay.

    Raises:
        ProcessFailed: a process failed or hung.
    """
    script = "colossalai_fork.demo.reproduction"
    with temporary_directory() as directory, console.status("running"):
        with Processes([[script], [script, "--fixed"]], directory) as scripts:
            unmodified, fixed = scripts.wait()
    return results.Reproduction.read(unmodified), results.Reproduction.read(fixed)


def train(console: Console, steps: int) -> results.Training:
    """Run the training.

    Args:
        console (rich.console.Console): shows how far it is.
        steps (int): steps of training after the checkpoint.

    Returns:
        Training: what came of it.

    Raises:
        ProcessFailed: a process failed or hung.
    """
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with (
        temporary_directory() as directory,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("starting", total=Schedule(steps).total_steps)
        steps_made = os.path.join(directory, "steps-0")

        def progress() -> int:
            made = os.path.getsize(steps_made) if os.path.exists(steps_made) else 0
            bar.update(task, completed=made, description="training" if made else "starting")
            return made

        commands = [
            ["colossalai_fork.demo.training", f"--directory={directory}", f"--rank={rank}", f"--steps={steps}"]
            for rank in range(WORLD_SIZE)
        ]
        with Processes(commands, directory) as ranks:
            ranks.wait(progress)
        return results.Training.read(os.path.join(directory, "results.json"))


def _draw(console: Console, curves: Curves, file: str | None) -> None:
    if file is None:
        from .terminal_plot import plot

        braille = console.color_system is not None and console.encoding.startswith("utf")
        console.print(plot(curves, console.width, braille), no_wrap=True)
    else:
        from .figure import save

        save(curves, file)
        console.print(f"loss curves: {file}", markup=False, highlight=False, soft_wrap=True)

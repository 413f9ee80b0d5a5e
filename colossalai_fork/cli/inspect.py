"""``colossalai-fork inspect``: what an optimizer checkpoint holds, and whether it is sound."""

import collections
import os

import click


@click.command()
@click.argument("checkpoint", type=click.Path(exists=True))
def inspect(checkpoint):
    """Show what an optimizer checkpoint holds. Runs no code from it, and reads no more of its tensors than their shapes.

    CHECKPOINT is a directory, an index file, or a file that holds the whole state.

    Exit status: 0 if it is sound, 1 if no optimizer could load it.
    """
    # Not at the top: torch and colossalai take seconds to import, and the other commands need not wait for them.
    from rich.console import Console

    from ..checkpoint_io.optimizer_restore.destination import Destination
    from ..checkpoint_io.optimizer_restore.files.saved_state import is_sharded, open_sharded, open_unsharded
    from ..checkpoint_io.optimizer_restore.files.sources import UnreadableFileError
    from ..checkpoint_io.optimizer_restore.validation import validate

    sharded, path = is_sharded(checkpoint)
    saved = open_sharded(path) if sharded else open_unsharded(path)
    states = {}
    for shard in saved.shards:
        try:
            states[shard.path] = shard.states()
        except UnreadableFileError:
            states[shard.path] = {}  # validation says why
    console = Console()
    console.print(_files(states))
    console.print(_groups(saved.groups or []))
    console.print(_kinds(states))
    problems = []
    validate(saved, Destination(_Fitting(saved.groups or [], states)), problems)
    for problem in problems:
        console.print(f"- {problem}", style="red", markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"{len(problems)} problem{'' if len(problems) == 1 else 's'}" if problems else "The checkpoint is sound."
    )
    raise SystemExit(1 if problems else 0)


class _Fitting:
    """An optimizer as the checkpoint wants it, with parameters that take no memory.

    Args:
        groups (list): the saved groups.
        states (dict): states by parameter id, by file.
    """

    def __init__(self, groups, states):
        import torch

        from ..checkpoint_io.optimizer_restore.state_kinds import ELEMENTWISE_STATE, is_tensor

        shapes = {
            param_id: value.shape
            for of_file in states.values()
            for param_id, state in of_file.items()
            if isinstance(state, dict)
            for key, value in state.items()
            if key in ELEMENTWISE_STATE and is_tensor(value)
        }
        made = {}
        for param_id in (param_id for group in groups for param_id in group["params"]):
            made[param_id] = torch.empty(shapes.get(param_id, ()), device="meta")
        self.defaults, self.state = {}, {}
        self.param_groups = [{"params": [made[param_id] for param_id in group["params"]]} for group in groups]


def _table(title, *columns):
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    for column in columns:
        numbers = column in ("size", "ids", "parameters")
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    return table


def _files(states):
    from rich.text import Text

    from ..checkpoint_io.optimizer_restore.errors import shown

    table = _table("files of states", "file", "size", "ids")
    for path, of_file in states.items():
        size = f"{os.path.getsize(path):,}" if os.path.isfile(path) else "missing"
        table.add_row(Text(str(shown(os.path.basename(path)))), size, str(len(of_file)))
    return table


def _groups(groups):
    from rich.text import Text

    from ..checkpoint_io.optimizer_restore.errors import shown

    table = _table("parameter groups", "group", "parameters", "settings")
    for position, group in enumerate(groups):
        settings = (f"{key}={value!r}" for key, value in group.items() if key not in ("params", "param_names"))
        table.add_row(str(position), str(len(group["params"])), Text(str(shown(", ".join(settings), 2000))))
    return table


def _kinds(states):
    from rich.text import Text

    from ..checkpoint_io.optimizer_restore.errors import shown
    from ..checkpoint_io.optimizer_restore.state_kinds import is_tensor as is_saved_tensor

    counts = collections.Counter()
    for of_file in states.values():
        for state in of_file.values():
            for key, value in (state if isinstance(state, dict) else {}).items():
                is_tensor = is_saved_tensor(value)
                kind = str(value.dtype).removeprefix("torch.") if is_tensor else type(value).__name__
                counts[str(key), kind + (", one number" if is_tensor and value.dim() == 0 else "")] += 1
    table = _table("states", "name", "kind", "parameters")
    for (key, kind), count in sorted(counts.items()):
        table.add_row(Text(str(shown(key))), Text(kind), str(count))
    return table

"""``python -m benchmarks.scale``: what a thousand ranks would do, worked out rank by rank in one process.

Placements, validation, plans and reading are the loaders' own code. Only the bytes are not there: the files are stood in for
by sources that count what they are asked for.
"""

from __future__ import annotations

import dataclasses
import math
import os
import pickle
import tempfile
import time
from typing import Any, Callable

import click
import torch

from colossalai_fork.checkpoint_io.optimizer_restore.destination import Destination
from colossalai_fork.checkpoint_io.optimizer_restore.errors import MAX_PROBLEMS_PRINTED, Problem
from colossalai_fork.checkpoint_io.optimizer_restore.files.saved_state import SavedShard, SavedState
from colossalai_fork.checkpoint_io.optimizer_restore.files.saved_tensor import SavedTensor, contiguous_stride
from colossalai_fork.checkpoint_io.optimizer_restore.placement import (
    FlatSlice,
    PartitionedDimension,
    Placement,
    Replicated,
)
from colossalai_fork.checkpoint_io.optimizer_restore.validation import validate

from . import gate_parts

KEYS = ("exp_avg", "exp_avg_sq")
PER_SHARD = 100
_Shapes = list[tuple[tuple[int, ...], int | None]]
BEGIN, END = "<!-- made by python -m benchmarks.scale -->", "<!-- until here -->"


@dataclasses.dataclass(frozen=True)
class Layout:
    """How ranks share the state.

    Attributes:
        stages (int): pipeline stages; each has a range of the parameters.
        tensor (int): ranks that share each matrix by tensor parallelism.
        zero (int): ranks that share by ZeRO what is left.
    """

    stages: int
    tensor: int
    zero: int

    @property
    def ranks(self) -> int:
        """int: all ranks together."""
        return self.stages * self.tensor * self.zero

    def __str__(self) -> str:
        parts = (("pipeline", self.stages), ("tensor", self.tensor), ("ZeRO", self.zero))
        return " × ".join(f"{name} {size}" for name, size in parts if size > 1)


def layouts(ranks: int) -> list[Layout]:
    """Ways of sharing among a number of ranks.

    Args:
        ranks (int): a multiple of 128.

    Returns:
        List[Layout]: the ways.
    """
    return [Layout(1, 1, ranks), Layout(1, 8, ranks // 8), Layout(16, 8, ranks // 128)]


def shapes_of(count: int, width: int) -> _Shapes:
    """The parameters of a model of many layers: four square matrices, three wide ones and two vectors in each.

    Args:
        count (int): how many parameters.
        width (int): the model's width.

    Returns:
        List[Tuple[Tuple[int, ...], Optional[int]]]: shape of each, and the dimension that tensor parallelism cuts.
    """
    wide = 7 * width // 2
    layer = [((width, width), 0)] * 3 + [((width, width), 1)]
    layer += [((wide, width), 0)] * 2 + [((width, wide), 1)] + [((width,), None)] * 2
    return [layer[number % len(layer)] for number in range(count)]


class CountingSource:
    """A file that counts what is read, and holds nothing.

    Args:
        path (str): what to call it.
        size (int): its size in bytes.
    """

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size
        self.reads = self.bytes = 0

    def read_into(self, offset: int, buffer: Any) -> None:
        """Count a read."""
        self.reads += 1
        self.bytes += len(buffer)

    def _nothing(self, *arguments: Any) -> None:
        pass

    advise = check_unchanged = rest = close = _nothing


class Checkpoint:
    """A checkpoint without bytes.

    Args:
        shapes (list): what :func:`shapes_of` returned.
    """

    def __init__(self, shapes: _Shapes) -> None:
        self.shapes = shapes
        self.sources, self.shards, self.index = [], [], {}
        for first in range(0, len(shapes), PER_SHARD):
            self._add(first, shapes[first : first + PER_SHARD])
        options = torch.optim.Adam([torch.zeros(1)]).state_dict()["param_groups"][0]
        self.groups = [{**options, "params": list(range(len(shapes)))}]

    def _add(self, first: int, shapes: _Shapes) -> None:
        path = f"pytorch_optim-{len(self.shards) + 1:05d}.bin"
        source = CountingSource(path, 1)
        states = {}
        for param_id, (shape, _) in enumerate(shapes, first):
            states[param_id] = {"step": self._tensor(source, ()), **{key: self._tensor(source, shape) for key in KEYS}}
            self.index[param_id] = path
        self.sources.append(source)
        shard = SavedShard(path, lambda: states, keep=True)
        shard.sources = [source]
        self.shards.append(shard)

    @staticmethod
    def _tensor(source: CountingSource, shape: tuple[int, ...]) -> SavedTensor:
        # Where torch.save puts it: on a multiple of 64 bytes, behind a header.
        start = -(-(source.size + 128) // 64) * 64
        tensor = SavedTensor(source, start, torch.float32, shape, contiguous_stride(shape))
        source.size = start + tensor.nbytes()
        return tensor

    @property
    def bytes(self) -> int:
        """int: of state."""
        return sum(
            tensor.nbytes() for shard in self.shards for state in shard.states().values() for tensor in state.values()
        )

    def opened(self) -> SavedState:
        """The checkpoint as a rank has opened it.

        Returns:
            SavedState: nothing has been read of it.
        """
        for source in self.sources:
            source.reads = source.bytes = 0
        return SavedState("the checkpoint", self.groups, "the groups", list(self.shards), self.index)


def placement_on(layout: Layout, number: int, shape: tuple[int, ...], cut: int | None) -> Placement:
    """The part of a parameter that a rank of its pipeline stage keeps.

    Args:
        layout (Layout): how ranks share.
        number (int): the rank.
        shape (Tuple[int, ...]): the parameter's shape.
        cut (Optional[int]): the dimension that tensor parallelism cuts.

    Returns:
        Placement: the part.
    """
    rest, zero_rank = divmod(number, layout.zero)
    whole = Replicated(shape)
    if cut is not None and layout.tensor > 1:
        local = [length // (layout.tensor if each == cut else 1) for each, length in enumerate(shape)]
        whole = PartitionedDimension(shape, local, rest % layout.tensor, layout.tensor, cut)
    return FlatSlice(whole, zero_rank, layout.zero)


class Rank(Destination):
    """The optimizer of one rank, without memory.

    Args:
        shapes (list): what :func:`shapes_of` returned.
        layout (Layout): how ranks share.
        number (int): the rank.
    """

    by_position = False

    def __init__(self, shapes: _Shapes, layout: Layout, number: int) -> None:
        stage = number // (layout.tensor * layout.zero)
        self.ids = range(*(len(shapes) * each // layout.stages for each in (stage, stage + 1)))
        placements = [placement_on(layout, number, *shapes[param_id]) for param_id in self.ids]
        params = [torch.nn.Parameter(torch.empty(each.local_shape, device="meta")) for each in placements]
        self._placements = {id(param): each for param, each in zip(params, placements)}
        super().__init__(torch.optim.Adam(params))

    def placement(self, param: torch.Tensor) -> Placement:
        return self._placements[id(param)]

    def local_groups(self, groups: list[dict[str, Any]], source: str, problems: list[Problem]) -> list[dict[str, Any]]:
        return [{**groups[0], "params": list(self.ids)}]


def measure_rank(checkpoint: Checkpoint, layout: Layout, number: int) -> dict[str, float]:
    """Do all that a rank does but read and train.

    Args:
        checkpoint (Checkpoint): the checkpoint.
        layout (Layout): how ranks share.
        number (int): the rank.

    Returns:
        Dict[str, float]: ``placing``, ``validating`` and ``reading`` in seconds, ``bytes``, ``reads`` and ``files``.
    """
    times = [time.perf_counter()]
    rank = Rank(checkpoint.shapes, layout, number)
    times.append(time.perf_counter())
    problems = []
    saved = checkpoint.opened()
    plan = validate(saved, rank, problems)
    assert not problems, problems[:3]
    times.append(time.perf_counter())
    for _ in plan.entries():
        pass
    times.append(time.perf_counter())
    placing, validating, reading = (end - start for start, end in zip(times, times[1:]))
    asked = [source for source in checkpoint.sources if source.reads]
    return {
        "placing": placing,
        "validating": validating,
        "reading": reading,
        "bytes": sum(source.bytes for source in asked),
        "reads": sum(source.reads for source in asked),
        "files": len(plan.shards),
    }


def kept_bytes(checkpoint: Checkpoint, layout: Layout) -> int:
    """State that all ranks keep together, exactly: ranks and parameters that are alike are worked out once.

    Args:
        checkpoint (Checkpoint): the checkpoint.
        layout (Layout): how ranks share.

    Returns:
        int: bytes, padding included, and what is replicated counted on every rank that keeps it.
    """
    counts = {}
    for shape in checkpoint.shapes:
        counts[shape] = counts.get(shape, 0) + 1
    ranks = range(layout.tensor * layout.zero)
    total = 4 * len(checkpoint.shapes) * len(ranks)
    for (shape, cut), count in counts.items():
        elements = sum(math.prod(placement_on(layout, number, shape, cut).local_shape) for number in ranks)
        total += elements * 4 * len(KEYS) * count
    return total


def measure_opening(parameters: int = 1000) -> tuple[float, float]:
    """What it takes to open a file of torch's, by parameter.

    Args:
        parameters (int): parameters in the file.

    Returns:
        Tuple[float, float]: seconds and bytes for each.
    """
    state = {number: {"step": torch.zeros(()), **{key: torch.zeros(2) for key in KEYS}} for number in range(parameters)}
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "shard.bin")
        torch.save(state, path)
        before, start = gate_parts.bytes_read(), time.perf_counter()
        shard = SavedShard.of_file(path)
        shard.states()
        seconds, characters = time.perf_counter() - start, gate_parts.bytes_read() - before
        for source in shard.sources:
            source.close()
    return seconds / parameters, characters / parameters


def agreement_bytes(ranks: int) -> tuple[int, int]:
    """What ranks tell each other.

    Args:
        ranks (int): how many.

    Returns:
        Tuple[int, int]: bytes that a rank sends if all is well, and that it receives if every rank has the most problems
            that are told.
    """
    path = "checkpoint/pytorch_optim-00001.bin"
    text = "the state does not have the parameter's shape"
    problem = Problem(text, False, path, 99_999, "exp_avg", (1024, 1024), (1024, 3584))
    # Two agreements of five integers each.
    return 2 * 5 * 8, ranks * len(pickle.dumps(problem)) * MAX_PROBLEMS_PRINTED


def table(
    checkpoint: Checkpoint, ranks: int, sample: int, tell: Callable[[str], None] = lambda text: None
) -> tuple[list[str], list[list[str]]]:
    """Measure every layout.

    Args:
        checkpoint (Checkpoint): the checkpoint.
        ranks (int): how many ranks.
        sample (int): how many of them are worked out whole.
        tell (Callable[[str], None]): is told what is being done.

    Returns:
        Tuple[List[str], List[List[str]]]: head and rows.
    """
    size = checkpoint.bytes
    seconds_to_open, bytes_to_open = measure_opening()
    head = ["ranks share by", "placing s", "validating s", "opening s", "planning reads s", "keeps MB", "reads MB"]
    head += ["to open MB", "reads", "files", "all keep ÷ checkpoint", "all read ÷ checkpoint"]
    rows = []
    for layout in layouts(ranks):
        measured = []
        for number in sorted({(ranks - 1) * each // max(1, sample - 1) for each in range(sample)}):
            tell(f"{layout}: rank {number}")
            measured.append(measure_rank(checkpoint, layout, number))
        mean = {key: sum(each[key] for each in measured) / len(measured) for key in measured[0]}
        listed = min(len(checkpoint.shapes), mean["files"] * PER_SHARD)
        kept = kept_bytes(checkpoint, layout)
        to_open = listed * bytes_to_open
        rows.append(
            [
                str(layout),
                *(f"{mean[key]:.1f}" for key in ("placing", "validating")),
                f"{listed * seconds_to_open:.1f}",
                f"{mean['reading']:.1f}",
                *(f"{number / 1e6:,.0f}" for number in (kept / ranks, mean["bytes"], to_open)),
                *(f"{mean[key]:,.0f}" for key in ("reads", "files")),
                *(f"{number / size:.3f}" for number in (kept, (mean["bytes"] + to_open) * ranks)),
            ]
        )
    return head, rows


def _text(checkpoint: Checkpoint, ranks: int, sample: int, head: list[str], rows: list[list[str]]) -> str:
    well, ill = agreement_bytes(ranks)
    elements = checkpoint.bytes / 4 / len(KEYS)
    lines = [
        f"{len(checkpoint.shapes):,} parameters with {elements / 1e9:,.0f} billion elements, {checkpoint.bytes / 1e12:.2f} TB "
        f"of Adam's state in {len(checkpoint.shards):,} files, {ranks:,} ranks, of which {sample} of each layout were worked "
        "out whole and what they keep for all. Figures are of one rank, means of those.",
        "",
        *(f"| {' | '.join(row)} |" for row in (head, ["---"] + ["---:"] * (len(head) - 1), *rows)),
        "",
        f"To agree, a rank sends {well} bytes in two all-reduces if all is well. If every rank has the most problems that are "
        f"told ({MAX_PROBLEMS_PRINTED}), each gets {ill / 1e6:.1f} MB.",
    ]
    return "\n".join(lines)


@click.command()
@click.option("--parameters", default=100_000, show_default=True, type=click.IntRange(min=1))
@click.option("--ranks", default=1024, show_default=True, type=click.IntRange(min=128))
@click.option("--width", default=1024, show_default=True, type=click.IntRange(min=16), help="Width of the model.")
@click.option("--sample", default=4, show_default=True, type=click.IntRange(min=1), help="Ranks to work out whole.")
@click.option(
    "--write", type=click.Path(exists=True, dir_okay=False), help="Put the table into this page, docs/scale.md."
)
def main(parameters: int, ranks: int, width: int, sample: int, write: str | None) -> None:
    """Work out what loading takes on many ranks, without them."""
    checkpoint = Checkpoint(shapes_of(parameters, width))
    head, rows = table(checkpoint, ranks, sample, lambda text: click.echo(text, err=True))
    text = _text(checkpoint, ranks, sample, head, rows)
    click.echo(text)
    if write:
        with open(write) as file:
            page = file.read()
        before, _, rest = page.partition(BEGIN)
        with open(write, "w") as file:
            file.write(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()

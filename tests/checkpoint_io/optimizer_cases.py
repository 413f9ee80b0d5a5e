"""Random optimizers, histories and checkpoints for the differential test."""

import dataclasses
from typing import Any, Dict, Tuple

import torch
from hypothesis import strategies as st

SHAPES = ((), (0,), (1,), (3,), (7,), (2, 3), (4, 1), (2, 1, 3))
DTYPES = (torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)

#: Options that each class takes beside the learning rate; a value is drawn for some of them.
OPTIONS = {
    "ASGD": {"lambd": (1e-4, 1e-2), "t0": (0.0, 1e6), "weight_decay": (0, 0.1)},
    "Adadelta": {"rho": (0.9, 0.5), "weight_decay": (0, 0.1)},
    "Adafactor": {"d": (1.0, 2.0), "weight_decay": (0.0, 0.1)},
    "Adagrad": {"lr_decay": (0, 0.1), "initial_accumulator_value": (0, 0.5), "weight_decay": (0, 0.1)},
    "Adam": {"amsgrad": (False, True), "betas": ((0.9, 0.99), (0.5, 0.9)), "weight_decay": (0, 0.1)},
    "AdamW": {"amsgrad": (False, True), "betas": ((0.9, 0.99), (0.5, 0.9)), "weight_decay": (0, 0.1)},
    "Adamax": {"betas": ((0.9, 0.99), (0.5, 0.9)), "weight_decay": (0, 0.1)},
    "LBFGS": {"history_size": (2, 5), "max_iter": (1, 3)},
    "Muon": {"momentum": (0.95, 0.5), "nesterov": (True, False), "weight_decay": (0.1, 0.0)},
    "NAdam": {"momentum_decay": (4e-3, 0.1), "decoupled_weight_decay": (False, True), "weight_decay": (0, 0.1)},
    "RAdam": {"decoupled_weight_decay": (False, True), "weight_decay": (0, 0.1)},
    "RMSprop": {"centered": (False, True), "momentum": (0, 0.9), "weight_decay": (0, 0.1)},
    "Rprop": {"etas": ((0.5, 1.2), (0.3, 1.5))},
    "SGD": {"momentum": (0, 0.9), "weight_decay": (0, 0.1), "maximize": (False, True)},
    "SparseAdam": {"betas": ((0.9, 0.99), (0.5, 0.9))},
}
FOREACH = {"Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"}


def optimizer_names():
    """The optimizer classes of this torch.

    Returns:
        List[str]: their names.
    """
    return sorted(
        name
        for name, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer) and value is not torch.optim.Optimizer
    )


@dataclasses.dataclass(frozen=True)
class History:
    """How an optimizer was made and what it went through.

    Attributes:
        options (Dict[str, Any]): options of the optimizer.
        steps (Tuple[Tuple[int, ...], ...]): for each step, the parameters that had gradients.
        seed (int): seed of the gradients.
    """

    options: Dict[str, Any]
    steps: Tuple[Tuple[int, ...], ...]
    seed: int


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A checkpoint and an optimizer to load it into.

    Attributes:
        name (str): the optimizer class.
        shapes (Tuple[Tuple[int, ...], ...]): shapes of the parameters.
        dtypes (Tuple[torch.dtype, ...]): their dtypes.
        groups (Tuple[Tuple[int, ...], ...]): the parameters in each group.
        source (History): what is saved.
        destination (History): what it is loaded into.
        shards (int): number of shards; 0 leaves writing to ColossalAI.
        shard_size (float): megabytes in a shard that ColossalAI writes.
        layout (str): layout of the files.
        low_cpu_mem_mode (bool): argument of loading.
        num_threads (int): argument of loading.
        hooks (str): load hooks of the destination: "none", "counting" or "changing".
        dropped (Tuple[str, ...]): group keys that an older torch would not have saved.
    """

    name: str
    shapes: Tuple[Tuple[int, ...], ...]
    dtypes: Tuple[torch.dtype, ...]
    groups: Tuple[Tuple[int, ...], ...]
    source: History
    destination: History
    shards: int
    shard_size: float
    layout: str
    low_cpu_mem_mode: bool
    num_threads: int
    hooks: str
    dropped: Tuple[str, ...]


@st.composite
def scenarios(draw, name):
    """Draw a scenario.

    Args:
        draw (Callable): hypothesis's.
        name (str): the optimizer class.

    Returns:
        Scenario: the scenario.
    """
    count = draw(st.integers(1, 6))
    shapes = SHAPES
    dtypes = DTYPES
    if name in ("Muon", "SparseAdam"):
        shapes = ((2, 3), (4, 1), (3, 3))
    if name in ("Muon", "SparseAdam", "LBFGS"):
        dtypes = (torch.float32, torch.float64)
    if name in ("LBFGS", "Adafactor"):
        # They cannot step parameters without elements.
        shapes = tuple(shape for shape in shapes if 0 not in shape)
    if name == "LBFGS":
        # All parameters go into one flat vector.
        dtypes = (draw(st.sampled_from(dtypes)),)
    ends = sorted(draw(st.sets(st.integers(1, count), max_size=2)) | {count})
    if name == "LBFGS":
        ends = [count]
    starts = [0, *ends[:-1]]
    return Scenario(
        name=name,
        shapes=tuple(draw(st.sampled_from(shapes)) for _ in range(count)),
        dtypes=tuple(draw(st.sampled_from(dtypes)) for _ in range(count)),
        groups=tuple(tuple(range(start, end)) for start, end in zip(starts, ends)),
        source=draw(histories(name, count)),
        destination=draw(histories(name, count)),
        shards=draw(st.integers(0, 4)),
        shard_size=draw(st.sampled_from((1024, 1e-5, 1e-9))),
        layout=draw(st.sampled_from(("torch-sharded", "torch-sharded", "safetensors-sharded", "torch-one-file"))),
        low_cpu_mem_mode=draw(st.booleans()),
        num_threads=draw(st.integers(1, 3)),
        hooks=draw(st.sampled_from(("none", "counting", "changing"))),
        dropped=tuple(
            sorted(draw(st.sets(st.sampled_from(("maximize", "foreach", "capturable", "differentiable", "fused")))))
        ),
    )


@st.composite
def histories(draw, name, count):
    """Draw a history.

    Args:
        draw (Callable): hypothesis's.
        name (str): the optimizer class.
        count (int): number of parameters.

    Returns:
        History: the history.
    """
    options = {
        option: draw(st.sampled_from(values)) for option, values in OPTIONS.get(name, {}).items() if draw(st.booleans())
    }
    if name in FOREACH:
        options["foreach"] = draw(st.sampled_from((None, False, True)))
    some = st.sets(st.integers(0, count - 1)).map(lambda chosen: tuple(sorted(chosen)))
    return History(options, tuple(draw(st.lists(some, max_size=3))), draw(st.integers(0, 2**16)))


def make(scenario, history, seed):
    """Make an optimizer and take its steps.

    Args:
        scenario (Scenario): the scenario.
        history (History): which of its two histories.
        seed (int): seed of the parameters.

    Returns:
        torch.optim.Optimizer: the optimizer.
    """
    generator = torch.Generator().manual_seed(seed)
    parameters = [
        torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype))
        for shape, dtype in zip(scenario.shapes, scenario.dtypes)
    ]
    groups = [
        {"params": [parameters[number] for number in members], "lr": 0.01 * (position + 1)}
        for position, members in enumerate(scenario.groups)
    ]
    optimizer = getattr(torch.optim, scenario.name)(groups, **{"lr": 0.01, **history.options})
    generator = torch.Generator().manual_seed(history.seed)
    for chosen in history.steps:
        take_step(scenario, optimizer, chosen, generator)
    return optimizer


def take_step(scenario, optimizer, chosen, generator):
    """Give some parameters gradients, and take a step.

    Args:
        scenario (Scenario): the scenario.
        optimizer (torch.optim.Optimizer): the optimizer.
        chosen (Iterable[int]): parameters that get gradients.
        generator (torch.Generator): where the gradients come from.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, parameter in enumerate(parameters):
        gradient = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
        if scenario.name == "SparseAdam":
            rows = torch.tensor([0, parameter.shape[0] - 1]).unique()
            gradient = torch.sparse_coo_tensor(rows[None], gradient[rows], parameter.shape).coalesce()
        parameter.grad = gradient if number in chosen else None
    if scenario.name == "LBFGS":
        if any(parameter.grad is not None for parameter in parameters):
            optimizer.step(lambda: sum((p.detach().double().square().sum() for p in parameters), torch.zeros(())))
    else:
        optimizer.step()

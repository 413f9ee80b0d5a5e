"""Sound checkpoints in every layout that the checkpoint IO classes write, for the fuzzer to spoil."""

import io
import json
import pickle

import torch
from safetensors.torch import save

SHAPES = ((4, 3), (5,), (), (2, 2), (12,))
INDEX = "pytorch_optim.bin.index.json"


def optimizer(kind, seed):
    """Make an optimizer that has been trained a little.

    Args:
        kind (str): "adam", "sgd" or "flat": Adam over parameters of one dimension, as experts keep them.
        seed (int): What its numbers come from.

    Returns:
        Optimizer: The optimizer, of two groups.
    """
    generator = torch.Generator().manual_seed(seed)
    shapes = [(torch.Size(shape).numel(),) if kind == "flat" else shape for shape in SHAPES]
    params = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    groups = [{"params": params[:3]}, {"params": params[3:], "lr": 0.25 + seed}]
    made = torch.optim.SGD(groups, lr=0.1, momentum=0.9) if kind == "sgd" else torch.optim.Adam(groups, lr=0.1)
    for param in params:
        param.grad = torch.randn(param.shape, generator=generator)
    made.step()
    return made


def _torch_bytes(content, legacy=False):
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=not legacy)
    return buffer.getvalue()


def _safetensors_bytes(states, groups=None):
    entries, pickled = {}, []
    for param_id, state in states.items():
        for key, value in state.items():
            name = f"state.{param_id}.{key}"
            if isinstance(value, torch.Tensor):
                entries[name] = value.contiguous().clone()
            elif value is not None:
                entries[name] = torch.tensor(list(pickle.dumps(value)), dtype=torch.uint8)
                pickled.append(name)
    if groups is not None:
        entries["param_groups"] = torch.tensor(list(pickle.dumps(groups)), dtype=torch.uint8)
        pickled.append("param_groups")
    return save(entries, {"format": "pt", "non_tensor_keys": json.dumps(pickled)})


def _sharded(state_dict, names, to_bytes):
    states = list(state_dict["state"].items())
    half = len(states) // 2
    shards = [dict(states[:half]), dict(states[half:])]
    index = {str(param_id): name for name, shard in zip(names, shards) for param_id in shard}
    if "stage" in names[0]:
        # A parameter that two stages share is saved by both, and the index names one of them.
        shards[1][states[0][0]] = states[0][1]
    files = {name: to_bytes(shard) for name, shard in zip(names, shards)}
    files["groups.bin"] = _torch_bytes(state_dict["param_groups"])
    content = {
        "metadata": {"param_groups": "groups.bin", "total_size": 1},
        "weight_map": index,
    }
    return {**files, INDEX: json.dumps(content, indent=2).encode()}


def _bins(*names):
    return lambda state_dict: _sharded(state_dict, names, _torch_bytes)


LAYOUTS = {
    "one file": lambda state_dict: {"optimizer.bin": _torch_bytes(state_dict)},
    "one older file": lambda state_dict: {"optimizer.bin": _torch_bytes(state_dict, legacy=True)},
    "one safetensors file": lambda state_dict: {
        "optimizer.safetensors": _safetensors_bytes(state_dict["state"], state_dict["param_groups"])
    },
    "shards": _bins("pytorch_optim-00001.bin", "pytorch_optim-00002.bin"),
    "stages": _bins(
        "pytorch_optim-stage-00000-shard-00001.bin",
        "pytorch_optim-stage-00001-shard-00001.bin",
    ),
    "older shards": lambda state_dict: _sharded(
        state_dict, ("a.bin", "b.bin"), lambda shard: _torch_bytes(shard, True)
    ),
    "safetensors shards": lambda state_dict: _sharded(
        state_dict,
        ("optim-00001.safetensors", "optim-00002.safetensors"),
        _safetensors_bytes,
    ),
}


def checkpoint(layout, kind, seed):
    """Make a checkpoint.

    Args:
        layout (str): One of LAYOUTS.
        kind (str): See :func:`optimizer`.
        seed (int): See :func:`optimizer`.

    Returns:
        dict: The bytes of its files by name.
    """
    return LAYOUTS[layout](optimizer(kind, seed).state_dict())

"""Writes optimizer checkpoints in the layouts that ColossalAI writes, and spoils them in every way a case needs.

The layouts are written from scratch, so that a fault in a saver or a loader under test cannot hide behind itself:

    torch, sharded          pytorch_optim-0000N.bin (state by id), pytorch_optim_group.bin, pytorch_optim.bin.index.json
    torch, one file         {"state": …, "param_groups": …}
    safetensors, sharded    optimizer-0000N.safetensors (entries "state.<id>.<key>"), group file and index as above
    safetensors, one file   the same entries and "param_groups"

In safetensors anything that is no tensor is pickled into a tensor of bytes and listed in the file's metadata, and None is
left out; that is what ColossalAI's asynchronous saving writes.
"""

import json
import os
import pickle
from pathlib import Path
from typing import Any, Callable

import torch

#: The layouts, as cases name them.
LAYOUTS = ("torch-sharded", "torch-one-file", "safetensors-sharded", "safetensors-one-file")

GROUP_FILE = "pytorch_optim_group.bin"
_STEMS = {False: ("pytorch_optim", ".bin"), True: ("optimizer", ".safetensors")}
_INDEX_FILES = {False: "pytorch_optim.bin.index.json", True: "optimizer.safetensors.index.json"}


def is_sharded(layout: str) -> bool:
    """Whether the layout is a directory with an index."""
    return layout.endswith("-sharded")


def is_safetensors(layout: str) -> bool:
    """Whether the layout stores tensors in safetensors files."""
    return layout.startswith("safetensors")


def is_one_file(layout: str) -> bool:
    """Whether the layout is one file."""
    return not is_sharded(layout)


def is_torch(layout: str) -> bool:
    """Whether the layout stores tensors in torch files."""
    return not is_safetensors(layout)


def as_byte_tensor(value: object) -> torch.Tensor:
    """Pickle a value into a tensor of bytes.

    Args:
        value (object): what to pickle.

    Returns:
        torch.Tensor: the pickle.
    """
    return torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)


def write_safetensors(path: str, states: dict[int, dict[str, object]], groups: object = None) -> None:
    """Write a safetensors file of optimizer state.

    Args:
        path (str): the file.
        states (Dict[int, Dict[str, object]]): state by id.
        groups (object): parameter groups, for a checkpoint of one file.
    """
    from safetensors.torch import save_file

    entries, pickled = {}, []
    for param_id, state in states.items():
        for key, value in state.items():
            if value is not None:
                entries[f"state.{param_id}.{key}"] = value
    if groups is not None:
        entries["param_groups"] = groups
    for name, value in entries.items():
        if isinstance(value, torch.Tensor):
            # safetensors stores no strides and refuses entries that share memory.
            entries[name] = value.detach().clone(memory_format=torch.contiguous_format)
        else:
            entries[name] = as_byte_tensor(value)
            pickled.append(name)
    metadata = {"format": "pt"}
    if pickled:
        metadata["non_tensor_keys"] = json.dumps(pickled)
    save_file(entries, path, metadata=metadata)


class CheckpointFiles:
    """A checkpoint about to be written; its parts may be changed first.

    Args:
        saved (dict): a state dict with global ids and global shapes.
        layout (str): one of :data:`LAYOUTS`.
        shards (int): number of shards the ids are dealt to, for a sharded layout.

    Attributes:
        groups (object): content of the group file, or the groups in the one file.
        shards (Dict[str, Dict[int, Dict[str, object]]]): states by file name.
        weight_map (Dict[str, str]): what the index says.
        metadata (Dict[str, object]): what the index says beside it.
    """

    def __init__(self, saved: dict[str, Any], layout: str, shards: int = 2) -> None:
        self.layout = layout
        self.groups = [dict(group) for group in saved["param_groups"]]
        ids = list(saved["state"])
        per_shard = max(1, -(-len(ids) // shards))
        # A saver with nothing to save writes one shard with nothing in it, which its index does not name.
        chunks = [ids[start : start + per_shard] for start in range(0, len(ids), per_shard)] or [[]]
        self.shards = {
            self.shard_name(number): {param_id: dict_or_value(saved["state"][param_id]) for param_id in chunk}
            for number, chunk in enumerate(chunks)
        }
        self.weight_map = {
            str(param_id): name
            for name, states in self.shards.items()
            for param_id, state in states.items()
            if not is_safetensors(layout) or any(value is not None for value in state.values())
        }
        self.metadata = {"param_groups": GROUP_FILE, "total_size": 0}

    def shard_name(self, number: int) -> str:
        """File name of a shard.

        Args:
            number (int): counted from 0.

        Returns:
            str: the name.
        """
        stem, ending = _STEMS[is_safetensors(self.layout)]
        return f"{stem}-{number + 1:05d}{ending}"

    @property
    def index_name(self) -> str:
        """File name of the index."""
        return _INDEX_FILES[is_safetensors(self.layout)]

    @property
    def states(self) -> dict[int | str, Any]:
        """All states by id; a change in one is written."""
        return {param_id: state for shard in self.shards.values() for param_id, state in shard.items()}

    def name_of(self, param_id: int) -> str:
        """The file that holds a parameter's state, without its directory.

        Args:
            param_id (int): the id.

        Returns:
            str: a shard of a sharded checkpoint; the one file otherwise.
        """
        if not is_sharded(self.layout):
            return self.one_file_name
        return next(name for name, states in self.shards.items() if param_id in states)

    @property
    def one_file_name(self) -> str:
        """Name of the file of a checkpoint of one file."""
        return "optimizer" + _STEMS[is_safetensors(self.layout)][1]

    def write(self, directory: str) -> str:
        """Write the checkpoint.

        Args:
            directory (str): where; made if need be.

        Returns:
            str: what ``load_optimizer`` is to be given.
        """
        os.makedirs(directory, exist_ok=True)
        if not is_sharded(self.layout):
            path = os.path.join(directory, self.one_file_name)
            if is_safetensors(self.layout):
                write_safetensors(path, self.states, self.groups)
            else:
                torch.save({"state": self.states, "param_groups": self.groups}, path)
            return path
        for name, states in self.shards.items():
            path = os.path.join(directory, name)
            if is_safetensors(self.layout):
                write_safetensors(path, states)
            else:
                torch.save(states, path)
        torch.save(self.groups, os.path.join(directory, GROUP_FILE))
        with open(os.path.join(directory, self.index_name), "w") as file:
            json.dump({"metadata": self.metadata, "weight_map": self.weight_map}, file)
        return directory


def dict_or_value(state: object) -> object:
    """A copy of a mapping, anything else as it is: some cases save states that are none."""
    return dict(state) if isinstance(state, dict) else state


def truncate(path: str, size: int) -> None:
    """Cut a file short.

    Args:
        path (str): the file.
        size (int): bytes that are left.
    """
    with open(path, "r+b") as file:
        file.truncate(size)


def scramble(path: str) -> None:
    """Put noise into a file, always the same.

    Args:
        path (str): the file.
    """
    Path(path).write_bytes(bytes((7 * position * position + 13) % 251 for position in range(1, 1001)))


def replace_by_pipe(path: str) -> None:
    """Put a named pipe in the place of a file: opening it for reading waits for a writer that never comes.

    Args:
        path (str): the file.
    """
    os.remove(path)
    os.mkfifo(path)


class RunsCode:
    """A value whose pickle makes a file when it is opened.

    Args:
        evidence (str): the file that it makes.
    """

    def __init__(self, evidence: str) -> None:
        self.evidence = evidence

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, (self.evidence, "w")

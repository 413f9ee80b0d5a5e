"""HybridParallel: the loaded state replaces the present one, and the groups must fit."""

from ..text.places import INSTEAD, Change, Edit, Method, assigns, both, calls, mentions

_READ_GROUPS = '''
@staticmethod
def read_param_groups(index_file: CheckpointIndexFile, param_ids) -> list:
    """
    Read the saved param groups, once it is clear that no shard of some parameters is missing.

    Args:
        index_file (CheckpointIndexFile): The index of the checkpoint.
        param_ids (Iterable[int]): The ids of the parameters kept by the current pipeline stage.

    Returns:
        list: The saved param groups.

    Raises:
        FileNotFoundError: if the index lists files of these parameters that do not exist.
    """
    names = {index_file.weight_map[str(i)] for i in param_ids if str(i) in index_file.weight_map}
    missing = sorted(name for name in names if not os.path.isfile(os.path.join(index_file.root_path, name)))
    if missing:
        raise FileNotFoundError(f"The checkpoint in {index_file.root_path} lacks {', '.join(missing)}")
    return torch.load(index_file.get_param_group_filename(), map_location=torch.device("cpu"))
'''

_REPLACE_GROUPS = '''
@staticmethod
def replace_param_groups(optimizer: OptimizerWrapper, saved_groups: list):
    """
    Replace the param groups of an optimizer by saved ones, and drop its states.

    Args:
        optimizer (OptimizerWrapper): The boosted optimizer.
        saved_groups (list): The saved param groups, with the ids of the parameters of all pipeline stages.

    Raises:
        ValueError: if the optimizer has another number of groups, or a group of another size.
    """
    saved_sizes = [len(group["params"]) for group in saved_groups]
    sizes = [len(group["params"]) for group in optimizer.param_info["param_groups"]]
    if saved_sizes != sizes:
        raise ValueError(f"The checkpoint has param groups of {saved_sizes} parameters, the optimizer of {sizes}")
    pairs = zip(optimizer.optim.param_groups, saved_groups)
    updated_groups = [{**saved_pg, "params": old_pg["params"]} for old_pg, saved_pg in pairs]
    optimizer.optim.__setstate__({"state": defaultdict(dict), "param_groups": updated_groups})
'''


def reads_groups(function: str) -> Edit:
    """Edit a loader: see that the files are there before anything changes.

    Args:
        function (str): the loader.

    Returns:
        Edit: what to do there.
    """
    return Edit(
        function,
        INSTEAD,
        assigns("saved_groups"),
        "saved_groups = self.read_param_groups(ckpt_index_file, id_map)\n",
        what="the reading of the groups",
    )


def replaces_groups(function: str, groups: str) -> Edit:
    """Edit a loader: from the collecting of the new groups to their update.

    Args:
        function (str): the loader.
        groups (str): what it calls the saved groups.

    Returns:
        Edit: what to do there.
    """
    return Edit(
        function,
        INSTEAD,
        assigns("updated_groups"),
        f"self.replace_param_groups(optimizer, {groups})\n",
        last=both(calls("update"), mentions("param_groups")),
        what="the update of the groups",
    )


CHANGES = [
    Change(
        "colossalai/checkpoint_io/hybrid_parallel_checkpoint_io.py",
        [
            reads_groups("HybridParallelCheckpointIO.load_sharded_optimizer"),
            replaces_groups("HybridParallelCheckpointIO.load_sharded_optimizer", "saved_groups"),
            Method("HybridParallelCheckpointIO", _REPLACE_GROUPS, after=("load_sharded_optimizer",)),
            Method("HybridParallelCheckpointIO", _READ_GROUPS, after=("load_sharded_optimizer",)),
            replaces_groups("HybridParallelCheckpointIO.load_unsharded_optimizer", 'state_dict["param_groups"]'),
        ],
    )
]

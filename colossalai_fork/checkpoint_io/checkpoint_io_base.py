"""Where loading and saving an optimizer begin, for every checkpoint IO class."""

import os
from pathlib import Path
from typing import Optional, Union

import colossalai.checkpoint_io.checkpoint_io_base as upstream
from colossalai.checkpoint_io.utils import get_optimizer_base_filenames
from torch.optim import Optimizer

from .optimizer_restore.files.saved_state import is_sharded
from .optimizer_restore.fresh_save import save_beside, says_who_writes

__all__ = ["CheckpointIO"]


class CheckpointIO(upstream.CheckpointIO):
    """Base class of the fixed checkpoint IO classes."""

    def load_optimizer(
        self,
        optimizer: Optimizer,
        checkpoint: Union[str, Path],
        prefix: Optional[str] = None,
        low_cpu_mem_mode: bool = True,
        num_threads: int = 1,
    ) -> None:
        """
        Replace all of an optimizer's state and its parameter groups by saved ones, or leave the optimizer as it is.

        Must be called on every rank that the optimizer was boosted on.

        Args:
            optimizer (Optimizer): The optimizer, boosted or not.
            checkpoint (Union[str, Path]): checkpoint path: a directory with one index file, an index file, or a file
                that holds the whole state.
            prefix (str, optional): The prefix that the checkpoint was saved with. The index file has it anyway.
            low_cpu_mem_mode (bool): whether to stream the checkpoint. If False, this rank's part is read into host memory
                before the optimizer changes. Default: True.
            num_threads (int): number of threads that read if not ``low_cpu_mem_mode``. Default: 1.

        Raises:
            ValueError: If the checkpoint does not fit the optimizer. Nothing has changed, on any rank.
            RuntimeError: If the checkpoint is damaged or missing. The message says what the optimizer holds.
            FileNotFoundError: If a file of it is missing. The error is a RuntimeError, and a ValueError, too.
        """
        from .general_checkpoint_io import GeneralCheckpointIO

        # A rank that finds no checkpoint must not raise here, where the others would wait for it in vain.
        sharded, path = is_sharded(checkpoint)
        if sharded and type(self).load_sharded_optimizer is not GeneralCheckpointIO.load_sharded_optimizer:
            # A loader of somebody else's opens what it is given as an index file.
            if Path(path).is_dir():
                raise ValueError("cannot load the optimizer: {} holds no index file, or several".format(path))
        load = self.load_sharded_optimizer if sharded else self.load_unsharded_optimizer
        arguments = (optimizer, path, prefix) if sharded else (optimizer, path)
        load(*arguments, low_cpu_mem_mode=low_cpu_mem_mode, num_threads=num_threads)

    def save_optimizer(
        self,
        optimizer: Optimizer,
        checkpoint: Union[str, Path],
        shard: bool = False,
        gather_dtensor: bool = True,
        prefix: Optional[str] = None,
        size_per_shard: int = 1024,
        use_async: bool = False,
    ) -> None:
        """
        Save an optimizer.

        Saved in shards, and not asynchronously, it replaces what the directory holds of an earlier save in a single step at
        the end: ended at any point, the directory holds exactly the old checkpoint or the new one. Until then there must be
        room for both.

        Must be called on every rank that the optimizer was boosted on.

        Args:
            optimizer (Optimizer): The optimizer, boosted or not.
            checkpoint (Union[str, Path]): checkpoint path: a directory if ``shard``, else a file.
            shard (bool): whether to save an index, a group file and shards. Default: False.
            gather_dtensor (bool): whether to gather distributed tensors. Default: True.
            prefix (str, optional): prefix of the file names if ``shard``.
            size_per_shard (int): size of a shard in MB. Default: 1024.
            use_async (bool): whether to write safetensors asynchronously. Default: False.

        Raises:
            OSError: If something cannot be written. An earlier checkpoint in the directory is as it was.
        """
        if not shard:
            self.save_unsharded_optimizer(optimizer, checkpoint, gather_dtensor, use_async=use_async)
            return

        def save(directory: Union[str, Path]) -> None:
            self.save_sharded_optimizer(
                optimizer, directory, gather_dtensor, prefix, size_per_shard, use_async=use_async
            )

        writes, group = False, None
        # Asynchronous writers are not done when the saver returns.
        if not use_async and not os.path.isfile(checkpoint) and says_who_writes(self):
            writes, group = self.optimizer_writers()
        if writes:
            save_beside(checkpoint, get_optimizer_base_filenames(prefix)[1], save, group)
        else:
            save(checkpoint)

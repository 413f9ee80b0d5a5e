"""Loading for optimizers that every rank holds whole."""

from functools import partial
from pathlib import Path
from typing import Any, Optional, Tuple, Union

import colossalai.checkpoint_io.general_checkpoint_io as upstream
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from .checkpoint_io_base import CheckpointIO
from .optimizer_restore.boosted import unwrapped
from .optimizer_restore.destination import Destination
from .optimizer_restore.files.saved_state import open_sharded, open_unsharded
from .optimizer_restore.restore import restore

__all__ = ["GeneralCheckpointIO"]


class GeneralCheckpointIO(upstream.GeneralCheckpointIO, CheckpointIO):
    """Checkpoint IO for optimizers that every rank holds whole."""

    def optimizer_destination(self, optimizer: Any) -> Destination:
        """
        Say what is known of an optimizer that is about to be loaded. All that the loaders of subclasses differ in.

        Args:
            optimizer (Union[Optimizer, OptimizerWrapper]): The optimizer, boosted or not.

        Returns:
            Destination: Which saved parameter belongs to which of its parameters, which part of it this rank keeps, and
                which ranks load together. Here each rank acts for itself.
        """
        return Destination(unwrapped(optimizer))

    def optimizer_writers(self) -> Tuple[bool, Optional[ProcessGroup]]:
        """
        Say which ranks write the files of a sharded optimizer. All that saving in a single step needs to know of a class.

        Returns:
            Tuple[bool, Optional[ProcessGroup]]: Whether this rank writes, or takes part with those that do; and those, if
                there are several. The first of them writes the index, when all files of the others are complete.
        """
        return True, None

    def load_sharded_optimizer(
        self,
        optimizer: Optimizer,
        index_file_path: Union[str, Path],
        prefix: Optional[str] = None,
        low_cpu_mem_mode: bool = True,
        num_threads: int = 1,
    ) -> None:
        """
        Load an optimizer from shards.

        Must be called on every rank that loads together, as :meth:`optimizer_destination` says.

        Args:
            optimizer (Optimizer): The optimizer, boosted or not.
            index_file_path (Union[str, Path]): Path to the index file.
            prefix (str, optional): Not used, the index names the files.
            low_cpu_mem_mode (bool): Whether to stream the shards. Default: True.
            num_threads (int): Number of threads that read if not ``low_cpu_mem_mode``. Default: 1.

        Raises:
            ValueError: If the checkpoint does not fit the optimizer. Nothing has changed, on any rank.
            RuntimeError: If the checkpoint is damaged. The message says what the optimizer holds.
        """
        opened = partial(open_sharded, index_file_path)
        restore(self.optimizer_destination(optimizer), opened, low_cpu_mem_mode, num_threads)

    def load_unsharded_optimizer(
        self,
        optimizer: Optimizer,
        checkpoint: Union[str, Path],
        low_cpu_mem_mode: bool = True,
        num_threads: int = 1,
    ) -> None:
        """
        Load an optimizer from one file.

        Must be called on every rank that loads together, as :meth:`optimizer_destination` says.

        Args:
            optimizer (Optimizer): The optimizer, boosted or not.
            checkpoint (Union[str, Path]): Path to the file.
            low_cpu_mem_mode (bool): Whether to stream the file. Default: True.
            num_threads (int): Number of threads that read if not ``low_cpu_mem_mode``. Default: 1.

        Raises:
            ValueError: If the checkpoint does not fit the optimizer. Nothing has changed, on any rank.
            RuntimeError: If the checkpoint is damaged. The message says what the optimizer holds.
        """
        opened = partial(open_unsharded, checkpoint)
        restore(self.optimizer_destination(optimizer), opened, low_cpu_mem_mode, num_threads)

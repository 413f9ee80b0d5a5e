"""What worker processes need, imported once in the process that they are forked from.

Importing takes seconds and a fork some milliseconds. Forking is sound while a process has one thread, so the number of
threads after the imports is kept for :mod:`benchmarks.processes` to ask. colossalai_fork is not imported: only those who run with it do.
"""

import importlib
import logging
import os
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.INFO)

for _name in (
    "torch.distributed.checkpoint.state_dict",
    "colossalai.booster.plugin",
    "colossalai.nn.optimizer",
    "transformers.models.llama.modeling_llama",
):
    importlib.import_module(_name)

#: Threads of this process after the imports; 1 as well where the system does not tell.
THREADS = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1

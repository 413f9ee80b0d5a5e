"""Imports what every worker process needs, once, in the process that the workers are forked from.

torch and colossalai take about five seconds to import and a fork takes a few hundredths of one. Forking is sound only
while the process has a single thread, so this module notes how many there were once everything was imported, and
:mod:`workers` starts its processes the slow way where the answer is not one.
"""

import gc
import importlib
import logging
import os
import warnings

warnings.filterwarnings("ignore")
# ColossalAI announces every step of saving and loading on every rank.
logging.disable(logging.INFO)

for _name in ("torch", "torch.distributed", "colossalai.booster", "colossalai.booster.plugin", "pytest"):
    importlib.import_module(_name)
# A collection between cases need not look at what was imported, and leaves the pages shared with the fork server alone.
gc.freeze()


def count_threads() -> int | None:
    """Return how many threads this process has, or None where the system does not say.

    Returns:
        Optional[int]: the number of threads.
    """
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return None


#: Number of threads after the imports.
THREADS = count_threads()
#: The process that did the imports: the worker itself, or the one it was forked from.
IMPORTED_BY = os.getpid()

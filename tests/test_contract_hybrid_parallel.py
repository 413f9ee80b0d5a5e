"""The gate's cases for this class, run as part of the project's own tests."""

from colossalai_fork.gate.test_hybrid_parallel import *

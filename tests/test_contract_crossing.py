"""The gate's crossings between configurations, run as part of the project's own tests."""

from colossalai_fork.gate.test_crossing import test_loads_what_another_configuration_saved

__all__ = ["test_loads_what_another_configuration_saved"]

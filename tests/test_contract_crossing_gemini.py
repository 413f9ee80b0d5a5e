"""The gate's crossings of Gemini and FSDP, run as part of the project's own tests."""

from colossalai_fork.gate.test_crossing_gemini import test_loads_what_another_configuration_saved

__all__ = ["test_loads_what_another_configuration_saved"]

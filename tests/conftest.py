"""Options and fixtures come from the gate's pytest plugin."""

pytest_plugins = ["colossalai_fork.gate.plugin"]

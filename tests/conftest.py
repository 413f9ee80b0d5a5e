"""Options and fixtures; those of the contract come from the gate's pytest plugin."""

import hypothesis

pytest_plugins = ["colossalai_fork.gate.plugin"]

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("colossalai-fork", deadline=None)
hypothesis.settings.load_profile("colossalai-fork")


def pytest_addoption(parser):
    """Add this project's own options."""
    parser.addoption(
        "--differential-cases",
        type=int,
        default=200,
        help="number of random cases that are compared with torch's own loading (default: 200)",
    )

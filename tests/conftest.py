"""Options and fixtures; those of the contract come from the gate's pytest plugin."""

import hypothesis

pytest_plugins = ["colossalai_fork.gate.plugin"]

# How long an example takes says how busy the machine is. The same examples every time: a commit must not fail for what
# the one before had no luck to find. ``--hypothesis-profile=explore`` looks for new ones.
hypothesis.settings.register_profile("same", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=3000, print_blob=True)
hypothesis.settings.load_profile("same")


def pytest_addoption(parser):
    """Add this project's own options."""
    parser.addoption(
        "--differential-cases",
        type=int,
        default=1000,
        help="number of random cases that are compared with torch's own loading (default: 1,000)",
    )

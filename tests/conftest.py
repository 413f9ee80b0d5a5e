"""Options and fixtures; those of the contract come from the gate's pytest plugin."""

pytest_plugins = ["colossalai_fork.gate.plugin"]


def pytest_addoption(parser):
    """Add this project's own options."""
    parser.addoption(
        "--differential-cases",
        type=int,
        default=200,
        help="number of random cases that are compared with torch's own loading (default: 200)",
    )

"""The command ``colossalai-fork``."""

import importlib

import click

from .. import __version__

# To add a command, add its name here; ``colossalai_fork.cli.<name>`` must have a click command of that name.
COMMANDS = ("demo", "gate", "inspect", "manifest", "patch", "status", "verify")


class LazyGroup(click.Group):
    """A group that imports a command's module when that command is wanted, and not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return getattr(importlib.import_module(f"{__name__}.{name}"), name)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Optimizer checkpoints that load right in ColossalAI."""

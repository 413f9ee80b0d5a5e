"""Print the fingerprints of what is installed, for the table: ``python -m colossalai_fork.overlay [MODULE:QUALNAME ...]``.

Without arguments those of every function in the table.
"""

import importlib
import sys

from .fingerprint import source_of
from .inspection import find
from .table import REPLACEMENTS


def main(symbols: list[str]) -> None:
    """Print fingerprints of what is installed, ready to be pasted into the table.

    Args:
        symbols (list[str]): ``MODULE:QUALNAME`` each; every symbol of the table if empty.
    """
    for symbol in symbols or [row.symbol for row in REPLACEMENTS if row.kind == "replace"]:
        module, _, name = symbol.partition(":")
        owner, attribute = find(importlib.import_module(module), name)
        digests = source_of(vars(owner)[attribute]).fingerprint.split()
        print(symbol)
        for start in range(0, len(digests), 7):
            blank = " " if start + 7 < len(digests) else ""
            print(f'    "{" ".join(digests[start:start + 7])}{blank}"')


if __name__ == "__main__":
    main(sys.argv[1:])

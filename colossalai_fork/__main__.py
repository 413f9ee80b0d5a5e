import os
import sys

# ``python -m`` looks for modules where it is run; nobody's files there are to take the place of a library's.
_here = os.getcwd()
if sys.path and sys.path[0] in ("", _here) and os.path.dirname(os.path.dirname(os.path.abspath(__file__))) != _here:
    if _here not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        del sys.path[0]

from .cli import main  # noqa: E402

main(prog_name="colossalai-fork")

"""What the installed torch can do, for tests that would ask too much of an older one."""

import torch

#: Whether it saves unsigned integers of more than 8 bits.
SAVES_UNSIGNED = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6)

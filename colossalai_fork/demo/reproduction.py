"""
The smallest case: an empty optimizer checkpoint is loaded over an optimizer that has been used.

    python -m colossalai_fork.demo.reproduction          ColossalAI as it is installed
    python -m colossalai_fork.demo.reproduction --fixed  with the overlay

The checkpoint is of before the first step, so nothing of that step may be left after loading it: no state, and the next
step moves the parameter by lr * gradient = 0.1 * 1, from 1 to 0.9.
"""

import argparse
import tempfile

import torch
from colossalai.checkpoint_io import GeneralCheckpointIO


def main() -> None:
    """Print what the optimizer holds after loading, and where its next step leads."""
    parser = argparse.ArgumentParser(prog="python -m colossalai_fork.demo.reproduction")
    parser.add_argument("--fixed", action="store_true", help="apply the overlay first")
    if parser.parse_args().fixed:
        import colossalai_fork

        colossalai_fork.apply()

    parameter = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    checkpoint_io = GeneralCheckpointIO()

    with tempfile.TemporaryDirectory() as directory:
        checkpoint_io.save_optimizer(optimizer, directory, shard=True)

        parameter.grad = torch.tensor([1.0])
        optimizer.step()
        with torch.no_grad():
            parameter.fill_(1.0)

        checkpoint_io.load_optimizer(optimizer, directory)

    print("state after loading:", optimizer.state_dict()["state"])
    optimizer.step()
    print("parameter after the next step:", parameter.item())


if __name__ == "__main__":
    main()

"""What the checkpoints of these tests are made of."""

import torch


def adam():
    """An Adam that has state for two of its three parameters."""
    params = [torch.nn.Parameter(torch.zeros(shape)) for shape in ((2, 3), (4,), ())]
    optimizer = torch.optim.Adam([{"params": params[:2]}, {"params": params[2:], "lr": 0.25}])
    for param in params[:2]:
        param.grad = torch.ones_like(param)
    optimizer.step()
    return optimizer

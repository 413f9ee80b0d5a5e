"""The script of the report: it prints a stale momentum and 0.81 where {} and 0.9 are right."""

REPRODUCTION = """
import tempfile
import torch
from colossalai.checkpoint_io import GeneralCheckpointIO

def optimizer_with_gradient():
    param = torch.nn.Parameter(torch.tensor([1.0]))
    param.grad = torch.tensor([1.0])
    return param, torch.optim.SGD([param], lr=0.1, momentum=0.9)

_, never_stepped = optimizer_with_gradient()
param, trained = optimizer_with_gradient()
trained.state[param]["momentum_buffer"] = torch.tensor([1.0])
with tempfile.TemporaryDirectory() as directory:
    GeneralCheckpointIO().save_optimizer(never_stepped, directory, shard=True)
    GeneralCheckpointIO().load_optimizer(trained, directory)
print(dict(trained.state[param]) if param in trained.state else {})
trained.step()
print(round(param.item(), 4))
"""

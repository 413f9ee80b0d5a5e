"""What only a GPU can show of loading, apart from the gate's contract on CUDA. The same code runs on CPU as far as it can.

Prepared for a machine with one GPU: two ranks share it, and talk over gloo, because NCCL wants a GPU for each.
"""

import copy
import dataclasses
import os
import traceback

import pytest
import torch
import torch.distributed as dist

from benchmarks.cases import by_name
from benchmarks.processes import Processes
from benchmarks.run import Run
from colossalai_fork.checkpoint_io import GeneralCheckpointIO, LowLevelZeroCheckpointIO
from colossalai_fork.gate.contract.checkpoint_files import CheckpointFiles
from colossalai_fork.gate.contract.comparison import differences
from colossalai_fork.gate.cpu import stand_in

needs_cuda = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, found none"),
]
on_cuda = pytest.mark.parametrize("device", [pytest.param("cuda", marks=needs_cuda)])
everywhere = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
MIB = 2**20
#: What torch's allocator may add to each of a few tensors.
ROUNDING = MIB // 8


def adam(device, count=4, elements=1024, trained=True, **options):
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(elements, device=device)) for _ in range(count)]
    optimizer = torch.optim.Adam(params, lr=0.01, **options)
    for param in params if trained else ():
        param.grad = torch.randn_like(param)
    if trained:
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


def write(path, optimizer, shards=2):
    return CheckpointFiles(optimizer.state_dict(), "torch-sharded", shards=shards).write(str(path))


def on_host(state_dict):
    return {
        **state_dict,
        "state": {
            key: {name: value.cpu().clone() for name, value in state.items()}
            for key, state in state_dict["state"].items()
        },
    }


OPTIONS = {"plain": {}, "foreach": {"foreach": True}, "fused": {"fused": True}, "capturable": {"capturable": True}}


@everywhere
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "read first"])
@pytest.mark.parametrize("loader", OPTIONS)
@pytest.mark.parametrize("saver", OPTIONS)
def test_step_and_moments_lie_where_native_loading_puts_them(tmp_path, device, saver, loader, streamed):
    if device == "cpu" and "capturable" in (saver, loader):
        pytest.skip("only optimizers on a device can be captured")
    saved = adam(device, **OPTIONS[saver])
    ours, native = adam(device, **OPTIONS[loader]), adam(device, **OPTIONS[loader])
    GeneralCheckpointIO().load_optimizer(ours, write(tmp_path, saved), low_cpu_mem_mode=streamed)
    native.load_state_dict(on_host(saved.state_dict()))
    # Compares values, dtypes and devices.
    assert not differences(native.state_dict(), ours.state_dict(), "")


@on_cuda
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "read first"])
@pytest.mark.parametrize("old, new", [(8, 8), (0, 8), (8, 2), (2, 8)])
def test_device_memory_is_at_most_the_larger_state_and_one_parameters(tmp_path, device, old, new, streamed):
    elements = 4 * MIB
    saved = adam(device, 8, elements)
    state_dict = on_host(saved.state_dict())
    state_dict["state"] = {key: state for key, state in state_dict["state"].items() if key < new}
    path = CheckpointFiles(state_dict, "torch-sharded", shards=4).write(str(tmp_path))
    del saved, state_dict
    optimizer = adam(device, 8, elements, trained=False)
    for param in optimizer.param_groups[0]["params"][:old]:
        param.grad = torch.ones_like(param)
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    GeneralCheckpointIO().load_optimizer(optimizer, path, low_cpu_mem_mode=streamed)
    torch.cuda.synchronize()
    one = 2 * 4 * elements
    assert torch.cuda.max_memory_allocated() <= max(before, torch.cuda.memory_allocated()) + one + ROUNDING


@on_cuda
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "read first"])
def test_copies_that_wait_for_the_device_get_the_right_bytes(tmp_path, device, streamed):
    # Host memory that is staged, pinned or not, must not be used again before the device has copied it.
    saved = adam(device, 64, MIB // 4)
    expected = copy.deepcopy(saved.state_dict())
    path = write(tmp_path, saved, shards=8)
    optimizer = adam(device, 64, MIB // 4)
    torch.cuda._sleep(10**9)
    GeneralCheckpointIO().load_optimizer(optimizer, path, low_cpu_mem_mode=streamed)
    torch.cuda.synchronize()
    assert not differences(expected, optimizer.state_dict(), "")


@on_cuda
def test_loading_on_another_stream_is_seen_by_this_one_after_waiting(tmp_path, device):
    saved = adam(device, 8, MIB)
    expected = copy.deepcopy(saved.state_dict())
    optimizer = adam(device, 8, MIB)
    path = write(tmp_path, saved)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        GeneralCheckpointIO().load_optimizer(optimizer, path)
    torch.cuda.current_stream().wait_stream(stream)
    assert not differences(expected, optimizer.state_dict(), "")


@on_cuda
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "read first"])
def test_no_pinned_memory_is_left(tmp_path, device, streamed):
    saved = adam(device, fused=False)
    optimizer = adam(device, fused=False)
    GeneralCheckpointIO().load_optimizer(optimizer, write(tmp_path, saved), low_cpu_mem_mode=streamed)
    values = [value for state in optimizer.state.values() for value in state.values()]
    assert {value.device.type for value in values} == {"cpu", "cuda"}
    assert not any(value.is_pinned() for value in values if value.device.type == "cpu")


@dataclasses.dataclass(frozen=True)
class Task:
    """What one of two ranks is to do.

    Attributes:
        rank (int): the rank.
        device (str): "cpu" or "cuda".
        good (str): a checkpoint.
        bad (str): one that this rank may not be able to load.
        meeting (str): a file that does not exist yet.
    """

    rank: int
    device: str
    good: str
    bad: str
    meeting: str


def load_with_zero(connection, task):
    """Load a good checkpoint and a bad one, and send what became of the state each time."""
    try:
        if task.device == "cpu":
            stand_in.install()
        else:
            torch.cuda.set_device(0)
        dist.init_process_group("gloo", init_method="file://" + task.meeting, rank=task.rank, world_size=2)
        connection.send(_loaded(task))
    except BaseException:
        connection.send(traceback.format_exc())
    os._exit(0)


def _loaded(task):
    from colossalai.zero import LowLevelZeroOptimizer

    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(shape, device=task.device)) for shape in ((5, 3), (8,))]
    optimizer = LowLevelZeroOptimizer(torch.optim.Adam(params, lr=0.01))
    io = LowLevelZeroCheckpointIO()
    io.load_optimizer(optimizer, task.good)
    good = optimizer.optim.state_dict()["state"]
    places = {value.device.type for state in good.values() for value in state.values() if value.dim()}
    before, refusal = copy.deepcopy(good), None
    try:
        io.load_optimizer(optimizer, task.bad)
    except Exception as error:
        refusal = str(error)
    unchanged = not differences(before, optimizer.optim.state_dict()["state"], "")
    # Tensors would be sent through a server in this process, which ends now.
    values = {param_id: state["exp_avg"].tolist() for param_id, state in before.items()}
    return [values, places, refusal, unchanged]


@everywhere
def test_two_ranks_on_one_device_load_their_slices_and_refuse_together(tmp_path, device):
    shapes = ((5, 3), (8,))
    params = [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes]
    saved = torch.optim.Adam(params, lr=0.01)
    for param in params:
        param.grad = torch.arange(param.numel(), dtype=torch.float32).reshape(param.shape)
    saved.step()
    good = write(tmp_path / "good", saved)
    # The first rank's copy is sound.
    bad = write(tmp_path / "bad-0", saved), write(tmp_path / "bad-1", saved)
    os.remove(os.path.join(bad[1], "pytorch_optim-00002.bin"))
    meeting = str(tmp_path / "meeting")
    answers = Processes(device).run(load_with_zero, [Task(rank, device, good, bad[rank], meeting) for rank in (0, 1)])
    for rank, (values, places, refusal, unchanged) in enumerate(answers):
        assert places == {device}
        assert refusal is not None and "rank 1" in refusal and unchanged
        for param_id, shape in enumerate(shapes):
            whole = saved.state[params[param_id]]["exp_avg"].reshape(-1)
            length = -(-whole.numel() // 2)
            slices = torch.nn.functional.pad(whole, (0, 2 * length - whole.numel())).reshape(2, length)
            assert values[param_id] == slices[rank].tolist()


@on_cuda
def test_the_benchmarks_general_case(device):
    case = by_name("general-large")
    case = dataclasses.replace(case, megabytes=256)
    results = Run([case], rounds=1, device=device)()
    assert not results.failures
    for row in results.rows:
        print(row)
        if row.contestant == "ours":
            assert row.extra_device <= case.megabytes * 1e6 / case.parameters + ROUNDING

"""Loads spoilt checkpoints and judges what comes of it.

Right is a ``CheckpointLoadError`` and an optimizer that is bit for bit unchanged, or a load that equals the native one.
``inspect`` must end with its exit status. Nothing may crash, hang, take much memory, or run code that a file names. Every
input is made from its number alone, so that it can be made again.
"""

import collections
import copy
import json
import os
import pathlib
import pickle
import random
import resource
import shutil
import signal
import struct
import tempfile
import traceback

import torch
from click.testing import CliRunner
from layouts import INDEX, LAYOUTS, checkpoint, optimizer
from safetensors import safe_open
from spoiling import Spoiler

# What the children need, imported before they are made.
from colossalai_fork.checkpoint_io import GeneralCheckpointIO
from colossalai_fork.checkpoint_io.optimizer_restore.errors import CheckpointLoadError
from colossalai_fork.checkpoint_io.optimizer_restore.files.sources import UnreadableFileError
from colossalai_fork.cli import inspect
from colossalai_fork.gate.contract.comparison import differences

SECONDS = 10
MEGABYTES = 500
# Each child tries so many inputs, since starting one takes longer than an input.
IN_ONE_CHILD = 100
KINDS = ("adam", "adam", "sgd", "flat")

REFUSED, LOADED, FAILED = "refused", "loaded", "failed"


def spoilt(number, seed, folder):
    """Write the checkpoint of a number.

    Args:
        number (int): The number.
        seed (int): Numbers of another seed are other checkpoints.
        folder (pathlib.Path): Where to write it.

    Returns:
        tuple: The path to load, the kind of optimizer, and what was done.
    """
    chance = random.Random(f"{seed}-{number}")
    layout, kind = chance.choice(sorted(LAYOUTS)), chance.choice(KINDS)
    files = dict(_checkpoint(layout, kind))
    spoiler = Spoiler(chance, str(folder / "trace"))
    spoiler.spoil(files)
    target = folder / "checkpoint"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for name, data in files.items():
        (target / name).write_bytes(data)
    path = target if layout.endswith("shards") or layout == "stages" else target / next(iter(_checkpoint(layout, kind)))
    return path, kind, [layout, kind, *spoiler.done]


_made = {}


def _checkpoint(layout, kind):
    if (layout, kind) not in _made:
        _made[layout, kind] = checkpoint(layout, kind, 1)
    return _made[layout, kind]


def judged(path, kind, folder):
    """Load a checkpoint, inspect it, and judge.

    Args:
        path (pathlib.Path): The checkpoint.
        kind (str): The kind of optimizer that it was made of.
        folder (pathlib.Path): Where code in a file would leave its trace.

    Returns:
        tuple: REFUSED, LOADED or FAILED, and why.
    """
    destination = optimizer(kind, 2)
    before = copy.deepcopy(destination.state_dict())
    try:
        GeneralCheckpointIO().load_optimizer(destination, str(path))
        outcome, why = LOADED, ""
    except CheckpointLoadError as error:
        outcome, why = REFUSED, str(error)
        if not why.replace("\n", "").isprintable():
            outcome, why = FAILED, f"a message that cannot be printed: {why!r}"
        elif _is_unexpected(error.__cause__):
            outcome, why = FAILED, "".join(traceback.format_exception(type(error), error, error.__traceback__))
        elif differences(before, destination.state_dict()):
            outcome, why = (
                FAILED,
                f"changed: {differences(before, destination.state_dict())[:3]} {why}",
            )
    except Exception:
        outcome, why = FAILED, traceback.format_exc()
    if outcome == LOADED:
        why = _unlike_native(path, kind, destination)
        outcome = FAILED if why else LOADED
    if (folder / "trace").exists():
        return FAILED, "code in the file has run"
    inspected = _inspected(path)
    return (FAILED, inspected) if inspected else (outcome, why)


def _is_unexpected(cause):
    # An exception that nobody has foreseen is a refusal, too, for the other ranks' sake; here it is a fault.
    return cause is not None and not isinstance(cause, (CheckpointLoadError, UnreadableFileError, OSError))


def _unlike_native(path, kind, loaded):
    # What has been loaded names nothing but plain data, so that it may be unpickled without limits.
    expected = optimizer(kind, 2)
    try:
        expected.load_state_dict(_read_natively(path))
    except Exception as error:
        # Torch 2.7 and newer refuse what older ones write: data whose length is no multiple of its elements.
        if "does not match expected size" in str(error):
            return ""
        return f"native loading refuses what was loaded: {traceback.format_exc()}"
    different = differences(expected.state_dict(), loaded.state_dict())
    return f"not what native loading gives: {different[:3]}" if different else ""


def _read_natively(path):
    if not path.is_dir():
        return _read_file(path)
    index = json.loads((path / INDEX).read_text())
    states = {}
    for name in dict.fromkeys(index["weight_map"].values()):
        content = _read_file(path / name)
        content = content["state"] if name.endswith(".safetensors") else content
        listed = {key for key, where in index["weight_map"].items() if where == name}
        states.update({key: value for key, value in content.items() if str(key) in listed})
    groups = _read_file(path / index["metadata"]["param_groups"])
    return {
        "state": {int(key): state for key, state in states.items()},
        "param_groups": groups,
    }


def _read_file(path):
    return _flat(path) if path.suffix == ".safetensors" else torch.load(path, map_location="cpu", weights_only=False)


def _flat(path):
    with safe_open(str(path), framework="pt") as file:
        pickled = json.loads((file.metadata() or {}).get("non_tensor_keys", "[]"))
        entries = {key: file.get_tensor(key) for key in file.keys()}
    for key in pickled:
        entries[key] = pickle.loads(bytes(entries[key].tolist()))
    states = collections.defaultdict(dict)
    groups = entries.pop("param_groups", None)
    for key, value in entries.items():
        _, param_id, name = key.split(".", 2)
        states[int(param_id)][name] = value
    return {"state": dict(states), "param_groups": groups}


def _inspected(path):
    result = CliRunner().invoke(inspect.inspect, [str(path)], env={"COLUMNS": "100"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return "inspect: " + "".join(traceback.format_exception(*result.exc_info))
    # A path that does not exist is an error of how the command is called.
    if result.exit_code not in ((0, 1) if os.path.exists(path) else (2,)):
        return f"inspect: exit status {result.exit_code}: {result.output}"
    if not result.output.replace("\n", "").isprintable():
        return f"inspect: prints what is no text: {result.output!r}"
    return ""


# ======================================
# many inputs, in forked children
# ======================================


class Findings:
    """What came of many inputs.

    Attributes:
        counts: How many inputs came to which end.
        failures: Number, what was done, and what went wrong.
    """

    def __init__(self):
        self.counts = collections.Counter()
        self.failures = []

    def add(self, number, done, outcome, why):
        self.counts[outcome] += 1
        if outcome == FAILED:
            self.failures.append((number, done, why))


def run(numbers, seed, progress=lambda findings: None):
    """Try inputs.

    Args:
        numbers (range): Their numbers.
        seed (int): See :func:`spoilt`.
        progress (Callable): Is told the findings now and then.

    Returns:
        Findings: What came of them.
    """
    findings = Findings()
    waiting = list(numbers)
    while waiting:
        batch, waiting = waiting[:IN_ONE_CHILD], waiting[IN_ONE_CHILD:]
        tried = _in_child(batch, seed, findings)
        waiting = batch[tried:] + waiting
        progress(findings)
    return findings


def _in_child(batch, seed, findings):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="fuzz-"))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            _try_all(batch, seed, folder, writing)
        finally:
            os._exit(0)
    os.close(writing)
    tried = 0
    with os.fdopen(reading, "rb") as pipe:
        while True:
            size = pipe.read(8)
            if len(size) < 8:
                break
            findings.add(*pickle.loads(pipe.read(struct.unpack("<Q", size)[0])))
            tried += 1
    _, status = os.waitpid(child, 0)
    if tried < len(batch):
        ended = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "an end without a word"
        _, _, done = spoilt(batch[tried], seed, folder)
        why = f"{ended} (SIGALRM, SIGXCPU: more than {SECONDS} s)"
        findings.add(batch[tried], done, FAILED, why)
        tried += 1
    shutil.rmtree(folder, ignore_errors=True)
    return tried


def _try_all(batch, seed, folder, writing):
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    # Threads reserve addresses for their stacks, and allocators for themselves, which is no memory yet.
    allowance = pages * resource.getpagesize() + ((MEGABYTES + 256) << 20)
    resource.setrlimit(resource.RLIMIT_AS, (allowance, allowance))
    for number in batch:
        path, kind, done = spoilt(number, seed, folder)
        signal.alarm(SECONDS)
        try:
            outcome, why = judged(path, kind, folder)
        except BaseException:
            outcome, why = FAILED, traceback.format_exc()
        signal.alarm(0)
        message = pickle.dumps((number, done, outcome, str(why)[:20_000]))
        with os.fdopen(os.dup(writing), "wb") as pipe:
            pipe.write(struct.pack("<Q", len(message)) + message)

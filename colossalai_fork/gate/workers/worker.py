"""What a worker process does: join the process group, then run the cases it is sent until it is told to stop."""

import contextlib
import ctypes
import dataclasses
import datetime
import faulthandler
import gc
import importlib
import importlib.util
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from typing import Any, Dict, Optional, Tuple

from . import process_groups
from .outcomes import ContractViolation, NotApplicable, RankOutcome, Status

#: The signal on which a worker writes the stacks of all its threads into its stacks file.
DUMP_STACKS = getattr(signal, "SIGUSR1", None)


@dataclasses.dataclass(frozen=True)
class Seat:
    """The place of one worker in its set.

    Attributes:
        rank (int): its rank.
        world_size (int): number of workers in the set.
        directory (str): the set's own directory.
        overlay (bool): whether ``colossalai_fork.apply()`` is called before anything else.
        device (str): "cpu" or "cuda".
        search_path (Tuple[str, ...]): ``sys.path`` of the process that asked for the set.
    """

    rank: int
    world_size: int
    directory: str
    overlay: bool
    device: str
    search_path: Tuple[str, ...]

    @property
    def output_file(self):
        """Where everything the worker prints goes."""
        return os.path.join(self.directory, f"output-{self.rank}.txt")

    @property
    def stacks_file(self):
        """Where the stacks go when the worker is asked for them or crashes."""
        return os.path.join(self.directory, f"stacks-{self.rank}.txt")


@dataclasses.dataclass(frozen=True)
class Call:
    """A method of a class to run on every rank.

    Attributes:
        module (str): name of the module that defines the class.
        file (Optional[str]): its source file, for a module that cannot be imported by name.
        class_name (str): qualified name of the class.
        method (str): the method.
        arguments (Dict[str, Any]): keyword arguments.
        directory (str): an empty directory that all ranks share.
    """

    module: str
    file: Optional[str]
    class_name: str
    method: str
    arguments: Dict[str, Any]
    directory: str

    def resolve(self):
        """Find the class.

        Returns:
            type: the class.
        """
        found = _import(self.module, self.file)
        for name in self.class_name.split("."):
            found = getattr(found, name)
        return found


def _import(name, file):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        if file is None:
            raise
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def serve(connection, seat):
    """Run cases until the connection closes.

    Args:
        connection (multiprocessing.connection.Connection): calls come in here and outcomes go out.
        seat (Seat): who this worker is.
    """
    _die_with_the_parent()
    _redirect_output(seat)
    sys.path[:] = list(seat.search_path)
    stacks = open(seat.stacks_file, "w")
    faulthandler.enable(file=stacks)
    if DUMP_STACKS is not None:
        faulthandler.register(DUMP_STACKS, file=stacks, all_threads=True)

    from . import preload

    forked = preload.IMPORTED_BY != os.getpid()
    connection.send(preload.THREADS if forked else 1)
    _join(seat)
    while True:
        try:
            call = connection.recv()
        except EOFError:
            break
        if call is None:
            break
        connection.send(_run(call, seat))
    # Not the orderly way out: destructors of process groups wait for peers that may be gone.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _join(seat):
    import torch.distributed

    from ..cpu import stand_in

    process_groups.keep_destroyed_groups()
    torch.set_num_threads(1)
    if seat.device == "cpu":
        stand_in.install()
        backend = "gloo"
    else:
        torch.cuda.set_device(seat.rank % torch.cuda.device_count())
        backend = "cpu:gloo,cuda:nccl"
    if seat.overlay:
        import colossalai_fork

        colossalai_fork.apply()
    torch.distributed.init_process_group(
        backend,
        init_method="file://" + os.path.join(seat.directory, "rendezvous"),
        rank=seat.rank,
        world_size=seat.world_size,
        timeout=datetime.timedelta(minutes=10),
    )


def _run(call, seat):
    import torch

    # Here and not after the case before: the wait for this call has been time enough for all but the busiest machine.
    process_groups.let_go_of_groups()
    torch.manual_seed(0)
    start = os.path.getsize(seat.output_file)
    in_step = True
    try:
        instance = call.resolve()()
        instance.rank, instance.directory = seat.rank, call.directory
        getattr(type(instance), call.method).run_here(instance, **call.arguments)
        status, text = Status.HELD, ""
    except NotApplicable as reason:
        status, text = Status.NOT_APPLICABLE, str(reason)
    except ContractViolation as violation:
        status, text, in_step = Status.VIOLATED, _describe(violation), violation.in_step
    except BaseException as error:  # a case may end in anything, pytest's own exceptions and SystemExit included
        skipped = type(error).__name__ == "Skipped"
        status, text = (Status.NOT_APPLICABLE, str(error)) if skipped else (Status.BROKEN, _describe(error))
        in_step = skipped
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    output = "" if status in (Status.HELD, Status.NOT_APPLICABLE) else _read_from(seat.output_file, start)
    return RankOutcome(seat.rank, status, text, output, in_step)


def _describe(error):
    # The frame of this module says nothing to the reader.
    return "".join(traceback.format_exception(type(error), error, error.__traceback__.tb_next))


def _read_from(path, start, at_most=4000):
    with open(path, errors="replace") as file:
        file.seek(start)
        return file.read()[-at_most:]


def _redirect_output(seat):
    # The descriptors inherited from the fork server belong to whatever captured output when that was started.
    descriptor = os.open(seat.output_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)


def _die_with_the_parent():
    parent = multiprocessing.parent_process()

    def wait_for_the_parent():
        parent.join()
        os._exit(1)

    if parent is not None:
        threading.Thread(target=wait_for_the_parent, daemon=True).start()
    # The thread needs the interpreter lock, which a stuck extension may hold; Linux can send a signal as well.
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG

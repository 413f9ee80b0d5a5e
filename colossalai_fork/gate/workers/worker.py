"""What a worker process does: join the process group, then run the cases it is sent until it is told to stop."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import datetime
import errno
import faulthandler
import gc
import importlib
import importlib.util
import multiprocessing
import os
import signal
import sys
import sysconfig
import threading
import traceback
from typing import TYPE_CHECKING, Any, Sequence

from . import process_groups
from .outcomes import ContractViolation, KitFailure, NotApplicable, RankOutcome, Status

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from types import ModuleType

#: What a worker says once it can run cases.
JOINED = "joined"
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
        working_directory (str): that process's.
    """

    rank: int
    world_size: int
    directory: str
    overlay: bool
    device: str
    search_path: tuple[str, ...]
    working_directory: str

    @property
    def output_file(self) -> str:
        """Where everything the worker prints goes."""
        return os.path.join(self.directory, f"output-{self.rank}.txt")

    @property
    def stacks_file(self) -> str:
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
    file: str | None
    class_name: str
    method: str
    arguments: dict[str, Any]
    directory: str

    def resolve(self) -> type:
        """Find the class.

        Returns:
            type: the class.
        """
        found = _import(self.module, self.file)
        for name in self.class_name.split("."):
            found = getattr(found, name)
        return found


def _import(name: str, file: str | None) -> ModuleType:
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


def serve(connection: Connection, seat: Seat) -> None:
    """Run cases until the connection closes.

    Args:
        connection (multiprocessing.connection.Connection): calls come in here and outcomes go out.
        seat (Seat): who this worker is.
    """
    _die_with_the_parent()
    _redirect_output(seat)
    os.chdir(seat.working_directory)
    sys.path[:] = standard_library_first(seat.search_path)
    stacks = open(seat.stacks_file, "w")
    faulthandler.enable(file=stacks)
    if DUMP_STACKS is not None:
        faulthandler.register(DUMP_STACKS, file=stacks, all_threads=True)

    from . import preload

    forked = preload.IMPORTED_BY != os.getpid()
    connection.send(preload.THREADS if forked else 1)
    _join(seat)
    connection.send(JOINED)
    while True:
        try:
            call = connection.recv()
        except EOFError:
            break
        if call is None:
            break
        try:
            outcome = _run(call, seat)
        except BaseException as error:  # the kit's own fault, which is none of the class under test
            outcome = RankOutcome(seat.rank, Status.BROKEN, _said(error), _traceback(error))
        connection.send(outcome)
    # Not the orderly way out: destructors of process groups wait for peers that may be gone.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def standard_library_first(search_path: Sequence[str]) -> list[str]:
    """Order a search path so that no module of an author can take the place of one of Python's own.

    Args:
        search_path (Sequence[str]): directories.

    Returns:
        List[str]: the same directories.
    """
    paths = sysconfig.get_paths()
    own = [paths["stdlib"], paths["platstdlib"], os.path.join(paths["platstdlib"], "lib-dynload")]
    first = [each for each in search_path if each in own or each.endswith(".zip") and not os.path.exists(each)]
    return first + [each for each in search_path if each not in first]


def _join(seat: Seat) -> None:
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


def _run(call: Call, seat: Seat) -> RankOutcome:
    import torch

    # Here and not after the case before: the wait for this call has been time enough for all but the busiest machine.
    process_groups.let_go_of_groups()
    torch.manual_seed(0)
    start = os.path.getsize(seat.output_file)
    in_step, context = True, ""
    try:
        instance = call.resolve()()
        instance.rank, instance.directory = seat.rank, call.directory
        prepare = getattr(instance, "prepare", None)
        if prepare is not None:
            prepare()
        getattr(type(instance), call.method).run_here(instance, **call.arguments)
        status, text = Status.HELD, ""
    except NotApplicable as reason:
        status, text = Status.NOT_APPLICABLE, str(reason)
    except ContractViolation as violation:
        status, text, in_step = Status.VIOLATED, str(violation), violation.in_step
        context = _traceback(violation)
    except KitFailure as failure:
        status, text, context = Status.BROKEN, str(failure), _traceback(failure.__cause__)
        in_step = False
    except BaseException as error:  # a case may end in anything, pytest's own exceptions and SystemExit included
        skipped = type(error).__name__ == "Skipped"
        status, text = (Status.NOT_APPLICABLE, str(error)) if skipped else (Status.BROKEN, _said(error))
        in_step, context = skipped, "" if skipped else _traceback(error)
    if status in (Status.BROKEN, Status.VIOLATED):
        full = no_space_left(call.directory) or no_space_left(seat.directory)
        if full:
            # Whatever went wrong, a full disk comes first.
            status, text, in_step = Status.BROKEN, f"{full}\n{text}", False
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    output = "" if status in (Status.HELD, Status.NOT_APPLICABLE) else _read_from(seat.output_file, start)
    return RankOutcome(seat.rank, status, text, context, output, in_step)


def no_space_left(directory: str, size: int = 65536) -> str | None:
    """Try whether a directory can be written to.

    Args:
        directory (str): the directory.
        size (int): how many bytes to write.

    Returns:
        Optional[str]: why it cannot; None if it can.
    """
    probe = os.path.join(directory, f".probe-{os.getpid()}")
    try:
        with open(probe, "wb") as file:
            file.write(bytes(size))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            return f"{os.strerror(error.errno)} in {directory} (TMPDIR says where cases write)"
    finally:
        with contextlib.suppress(OSError):
            os.remove(probe)
    return None


def _said(error: BaseException) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1:]
    place = f" (in {where[0].name}, {os.path.basename(where[0].filename)}:{where[0].lineno})" if where else ""
    return f"{type(error).__name__}: {error}{place}"


def _traceback(error: BaseException | None) -> str:
    if error is None:
        return ""
    # The frame of this module says nothing to the reader.
    frames = error.__traceback__
    own = frames is not None and frames.tb_frame.f_code.co_filename == __file__ and frames.tb_next
    return "".join(traceback.format_exception(type(error), error, own or frames)).strip()


def _read_from(path: str, start: int, at_most: int = 4000) -> str:
    with open(path, errors="replace") as file:
        file.seek(start)
        return file.read()[-at_most:]


def _redirect_output(seat: Seat) -> None:
    # The descriptors inherited from the fork server belong to whatever captured output when that was started.
    descriptor = os.open(seat.output_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)


def _die_with_the_parent() -> None:
    parent = multiprocessing.parent_process()

    def wait_for_the_parent() -> None:
        parent.join()
        os._exit(1)

    if parent is not None:
        threading.Thread(target=wait_for_the_parent, daemon=True).start()
    # The thread needs the interpreter lock, which a stuck extension may hold; Linux can send a signal as well.
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG

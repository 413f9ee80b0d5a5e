"""Run something that may crash, hang or take all memory: in a forked child, with limits."""

import os
import pickle
import resource
import signal
import sys
import traceback

MEGABYTE = 1 << 20


class Outcome:
    """What became of a guarded call.

    Args:
        kind (str): "returned", "raised" or "died" (of a signal, of its limits, or without a word).
        value (object): What it returned; the exception as (class name, message); or how it died.
    """

    def __init__(self, kind, value):
        self.kind = kind
        self.value = value

    def __repr__(self):
        return f"{self.kind}: {str(self.value)[:2000]}"


def guarded(function, *arguments, seconds=10, memory=300 * MEGABYTE):
    """Call a function in a forked child.

    Args:
        function (Callable): What to call. Its result must be picklable.
        arguments (object): What with.
        seconds (int): The child is ended when it has used this much time of a processor, or three times as much by the clock.
        memory (int): How many bytes the child may take beside those of this process.

    Returns:
        Outcome: What became of it.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            _limit(seconds, memory)
            message = _called(function, arguments)
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(message)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        message = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Outcome("died", signal.Signals(os.WTERMSIG(status)).name)
    return Outcome(*pickle.loads(message)) if message else Outcome("died", "without a word")


def _limit(seconds, memory):
    signal.alarm(3 * seconds)
    used = sum(os.times()[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + seconds, int(used) + seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    # Threads reserve addresses for their stacks, and allocators for themselves, which is no memory yet.
    allowance = pages * resource.getpagesize() + memory + 256 * MEGABYTE
    resource.setrlimit(resource.RLIMIT_AS, (allowance, allowance))


def _called(function, arguments):
    try:
        return pickle.dumps(("returned", function(*arguments)))
    except BaseException as error:
        if os.environ.get("SHOW_TRACEBACKS"):
            traceback.print_exc(file=sys.stderr)
        return pickle.dumps(("raised", (type(error).__name__, str(error))))

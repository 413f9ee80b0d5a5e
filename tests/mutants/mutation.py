"""How a fault is put into the loaders, and how a table of faults says which contract cases must notice it.

Faults are put in inside the worker processes, for the length of one case. A mutant either puts another function around or
in the place of one, whatever its lines look like (:func:`replacing`), or replaces lines of it by others (:func:`mutant`).
The latter swaps the function's code and not the function, so it also reaches ColossalAI's own classes, which hold the very
same functions. A mutant whose function or lines are no longer there fails loudly: whoever rewrites the function decides
what the same fault looks like now.
"""

import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import sys
import textwrap
from typing import Any, Callable, Dict, Tuple


@dataclasses.dataclass(frozen=True)
class Catch:
    """A case that must fail.

    Attributes:
        configuration (str): a class of test_mutants.py.
        method (str): the case.
        arguments (Dict[str, Any]): its arguments.
    """

    configuration: str
    method: str
    arguments: Dict[str, Any]

    def __str__(self):
        return f"{self.configuration}.{self.method}({', '.join(map(str, self.arguments.values()))})"


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A fault.

    Attributes:
        name (str): what is wrong.
        module (str): name of a module below colossalai_fork.checkpoint_io.
        function (str): the function's qualified name there.
        old (str): a piece of its source that occurs once.
        new (str): what takes its place.
        catches (Tuple[Catch, ...]): cases, each of which must fail.
        hangs (bool): whether a rank then waits for what never comes.
    """

    name: str
    module: str
    function: str
    old: str
    new: str
    catches: Tuple[Catch, ...]
    hangs: bool = False

    @contextlib.contextmanager
    def applied(self):
        """Apply the mutant for a while.

        Yields:
            None: the fault is in.

        Raises:
            LookupError: if the function does not have the lines.
        """
        function, mutated = self._function(), self._mutated()
        original = function.__code__
        function.__code__ = mutated
        try:
            yield
        finally:
            function.__code__ = original

    def _function(self):
        found = _module(self.module)
        for name in self.function.split("."):
            found = inspect.getattr_static(found, name)
            found = getattr(found, "__func__", getattr(found, "fget", found))
        return inspect.unwrap(found)

    def _mutated(self):
        function = self._function()
        source = textwrap.dedent(inspect.getsource(function))
        if source.count(self.old) != 1:
            raise LookupError(f"{self.module}.{self.function} has {source.count(self.old)} times: {self.old}")
        # Decorators belong to the object around the function, which stays.
        body = source[source.index("def ") :].replace(self.old, self.new)
        # In a class, because super() closes over it.
        body = "class Mutated:\n" + textwrap.indent(body, "    ")
        names = {}
        exec(compile(body, f"<mutant: {self.name}>", "exec"), function.__globals__, names)
        mutated = names["Mutated"].__dict__[function.__name__].__code__
        if mutated.co_freevars != function.__code__.co_freevars:
            raise LookupError(f"{self.module}.{self.function} closes over {function.__code__.co_freevars}")
        return mutated


@dataclasses.dataclass(frozen=True)
class Replacement:
    """A fault that is a function in the place of another one.

    Attributes:
        name (str): what is wrong.
        module (str): name of a module below colossalai_fork.checkpoint_io.
        function (str): the function's qualified name there. Not a method of a checkpoint IO class, which ColossalAI's has, too.
        change (Callable[[Callable], Callable]): makes the faulty function of the right one.
        catches (Tuple[Catch, ...]): cases, each of which must fail.
        hangs (bool): whether a rank then waits for what never comes.
    """

    name: str
    module: str
    function: str
    change: Callable[[Callable], Callable]
    catches: Tuple[Catch, ...]
    hangs: bool = False

    @contextlib.contextmanager
    def applied(self):
        """Apply the mutant for a while.

        Yields:
            None: the fault is in.

        Raises:
            AttributeError: if there is no such function.
        """
        *owners, name = self.function.split(".")
        owner = _module(self.module)
        for each in owners:
            owner = getattr(owner, each)
        original = inspect.getattr_static(owner, name)
        faulty = self.change(original)
        holders = [owner] if owners else [module for module in _modules() if vars(module).get(name) is original]
        for holder in holders:
            setattr(holder, name, faulty)
        try:
            yield
        finally:
            for holder in holders:
                setattr(holder, name, original)


def _modules():
    # Modules that import a function by its name have a name of their own for it.
    return [module for name, module in list(sys.modules.items()) if name.startswith("colossalai_fork.checkpoint_io")]


def _module(name):
    for package in ("", ".optimizer_restore", ".optimizer_restore.files"):
        full_name = f"colossalai_fork.checkpoint_io{package}.{name}"
        if importlib.util.find_spec(full_name):
            return importlib.import_module(full_name)
    raise LookupError(f"colossalai_fork.checkpoint_io has no module {name}")


#: A configuration of each class of checkpoint IO.
CLASSES = ("General", "DataParallel", "Zero", "TensorParallel", "ExpertParallel", "Gemini", "FSDP")


def where(configurations, method, layout="torch-sharded", **arguments):
    """The same case in some configurations.

    Args:
        configurations (Union[str, Iterable[str]]): classes of test_mutants.py; a text names them with spaces between.
        method (str): the case.
        layout (Optional[str]): its layout; None if it has none.
        arguments (Any): its other arguments.

    Returns:
        List[Catch]: a catch for each.
    """
    names = configurations.split() if isinstance(configurations, str) else configurations
    arguments = arguments if layout is None else {"layout": layout, **arguments}
    return [Catch(name, method, arguments) for name in names]


def everywhere(method, layout="torch-sharded", but="", **arguments):
    """The same case with every class, but for those in which the fault is none or the case does not apply.

    Args:
        method (str): the case.
        layout (Optional[str]): its layout; None if it has none.
        but (str): names of the others, with spaces between.
        arguments (Any): its other arguments.

    Returns:
        List[Catch]: a catch for each.
    """
    unknown = set(but.split()) - set(CLASSES)
    if unknown:
        raise LookupError(f"there are no classes {unknown}")
    return where([name for name in CLASSES if name not in but.split()], method, layout, **arguments)


def together(method, layout="torch-sharded", but="", **arguments):
    """The same case with every class whose ranks load together; see :func:`everywhere`."""
    return everywhere(method, layout, f"General {but}", **arguments)


def mutant(name, place, old, new, *catches, hangs=False):
    """A mutant of ``module:function``; each of the catches is a list, as :func:`where` makes it."""
    module, function = place.split(":")
    return Mutant(name, module, function, old, new, tuple(each for some in catches for each in some), hangs)


def replacing(name, place, change, *catches, hangs=False):
    """A mutant with another function in the place of ``module:function``; see :class:`Replacement`."""
    module, function = place.split(":")
    return Replacement(name, module, function, change, tuple(each for some in catches for each in some), hangs)


def around(before=None, after=None):
    """A change that does something beside the right thing.

    Args:
        before (Optional[Callable]): called first, with the arguments of the function.
        after (Optional[Callable]): called then, with what ``before`` returned in front of the arguments.

    Returns:
        Callable[[Callable], Callable]: the change.
    """

    def change(original):
        def faulty(*arguments, **keywords):
            noted = before(*arguments) if before else None
            result = original(*arguments, **keywords)
            if after:
                after(noted, *arguments)
            return result

        return faulty

    return change


def instead(result=None):
    """A change that always returns the same.

    Args:
        result (Any): what.

    Returns:
        Callable[[Callable], Callable]: the change.
    """
    return lambda original: lambda *arguments, **keywords: result

"""How a fault is put into the loaders, and how a table of faults says which contract cases must notice it.

A mutant puts another behaviour in the place of one function, in memory, inside the worker processes: a function of the
mutant's own around the original (:func:`fault`), or the original with other lines (:func:`mutant`). It swaps the
function's code and not the function, so it also reaches ColossalAI's own classes, which hold the very same functions. A
mutant whose function or lines are no longer there fails loudly: whoever rewrites the function decides what the same
fault looks like now.
"""

import contextlib
import dataclasses
import functools
import gc
import importlib
import importlib.util
import inspect
import textwrap
import types
from typing import Any, Callable, Dict, Optional, Tuple

#: A global variable of the module of the function that is changed.
_MUTANT = "__mutant__"


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
        catches (Tuple[Catch, ...]): cases, each of which must fail.
        hangs (bool): whether a rank then waits for what never comes.
        old (str): a piece of its source that occurs once.
        new (str): what takes its place.
        instead (Optional[Callable]): what is called instead, with the original in front of the arguments.
    """

    name: str
    module: str
    function: str
    catches: Tuple[Catch, ...]
    hangs: bool = False
    old: str = ""
    new: str = ""
    instead: Optional[Callable] = None

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
        # The overlay puts copies of functions into ColossalAI's modules.
        copies = [each for each in gc.get_referrers(original) if isinstance(each, types.FunctionType)]
        if self.instead is not None:
            copy = types.FunctionType(
                original, function.__globals__, function.__name__, function.__defaults__, function.__closure__
            )
            copy.__kwdefaults__ = function.__kwdefaults__
            function.__globals__[_MUTANT] = functools.partial(self.instead, copy)
        for each in copies:
            each.__code__ = mutated
        try:
            yield
        finally:
            for each in copies:
                each.__code__ = original
            function.__globals__.pop(_MUTANT, None)

    def _function(self):
        found = _module(self.module)
        for name in self.function.split("."):
            found = inspect.getattr_static(found, name)
            found = getattr(found, "__func__", getattr(found, "fget", found))
        return inspect.unwrap(found)

    def _mutated(self):
        function = self._function()
        if self.instead is not None:
            closes_over = "\n    ".join(function.__code__.co_freevars)
            source = f"def {function.__name__}(*arguments, **options):\n    {closes_over}\n"
            source += f"    return {_MUTANT}(*arguments, **options)\n"
            return self._compiled(function, source)
        source = textwrap.dedent(inspect.getsource(function))
        if source.count(self.old) != 1:
            raise LookupError(f"{self.module}.{self.function} has {source.count(self.old)} times: {self.old}")
        # Decorators belong to the object around the function, which stays.
        return self._compiled(function, source[source.index("def ") :].replace(self.old, self.new))

    def _compiled(self, function, body):
        # In a class, because super() closes over it.
        body = "class Mutated:\n" + textwrap.indent(body, "    ")
        names = {}
        exec(compile(body, f"<mutant: {self.name}>", "exec"), function.__globals__, names)
        mutated = names["Mutated"].__dict__[function.__name__].__code__
        if mutated.co_freevars != function.__code__.co_freevars:
            raise LookupError(f"{self.module}.{self.function} closes over {function.__code__.co_freevars}")
        return mutated


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


def fault(place, *catches, hangs=False):
    """Make a mutant of a function that is to be called instead of ``module:function``, and gets it in front.

    Args:
        place (str): the module and the function's qualified name.
        catches (List[Catch]): as :func:`where` makes them.
        hangs (bool): see :class:`Mutant`.

    Returns:
        Callable: the decorator, which gives the mutant the function's name.
    """

    def decorate(instead):
        module, function = place.split(":")
        every = tuple(each for some in catches for each in some)
        return Mutant(instead.__name__.replace("_", " ").strip(), module, function, every, hangs, instead=instead)

    return decorate


def mutant(name, place, old, new, *catches, hangs=False):
    """A mutant of lines of ``module:function``; the catches are lists, as :func:`where` makes them."""
    module, function = place.split(":")
    return Mutant(name, module, function, tuple(each for some in catches for each in some), hangs, old, new)

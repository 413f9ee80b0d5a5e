"""The checks that contract cases are made of. All of them must be called on every rank."""

import errno
import os
import re
from typing import Any, Callable, Iterable

import torch
import torch.distributed

from ..workers.outcomes import ContractViolation, KitFailure, NotApplicable
from . import checkpoint_files
from .comparison import differences, frozen, look_at, loose_storages, twin_of
from .subjects import Recipe, Subject, closure_for, give_gradients, saved_natively


class Checks:
    """Needs what :class:`~.base.ContractBase` says of a configuration."""

    def everyone(self, value: Any) -> list[Any]:
        """Exchange a value.

        Args:
            value (object): this rank's.

        Returns:
            list: every rank's, in order.
        """
        if self.world_size == 1:
            return [value]
        values = [None] * self.world_size
        torch.distributed.all_gather_object(values, value)
        return values

    def verdict(self, problems: list[str]) -> None:
        """Fail on every rank if any rank has something to complain of.

        Args:
            problems (List[str]): this rank's complaints.
        """
        said = self.everyone(list(problems))
        lines = [
            f"rank {rank}: {line}" if self.world_size > 1 else line for rank, own in enumerate(said) for line in own
        ]
        if lines:
            violation = ContractViolation("\n".join(lines))
            # All ranks raise here, so their processes can go on with the next case.
            violation.in_step = True
            raise violation

    def require(self, condition: object, reason: str | None) -> None:
        """Leave the case unless a condition holds, which must be the same on every rank.

        Args:
            condition (object): the condition.
            reason (Optional[str]): why the case does not apply otherwise.
        """
        if not condition:
            raise NotApplicable(reason)

    def write(self, files: checkpoint_files.CheckpointFiles, name: str = "checkpoint") -> str:
        """Write a checkpoint that all ranks share.

        Args:
            files (CheckpointFiles): the checkpoint.
            name (str): a directory for it, below the case's.

        Returns:
            str: what to load.
        """
        path = files.write(os.path.join(self.directory, name)) if self.rank == 0 else None
        return self.everyone(path)[0]

    def files(self, saved: dict[str, Any], layout: str, shards: int = 2) -> checkpoint_files.CheckpointFiles:
        """Lay a state dict out as a checkpoint.

        Args:
            saved (dict): the state dict.
            layout (str): the layout.
            shards (int): number of shards.

        Returns:
            CheckpointFiles: not written yet.
        """
        return checkpoint_files.CheckpointFiles(saved, layout, shards)

    def saved(
        self, recipe: Recipe | None = None, ids: tuple[int, ...] | None = None, seed: int = 11, steps: int = 3
    ) -> dict[str, Any]:
        """What a checkpoint of the whole model holds, made by torch alone.

        Args:
            recipe (Optional[Recipe]): see :func:`subjects.saved_natively`; by default the configuration's own, with
                learning rates that differ from those of :meth:`build`.
            ids (Optional[Tuple[int, ...]]): as there.
            seed (int): as there.
            steps (int): as there.

        Returns:
            dict: a state dict.
        """
        recipe = recipe or self.recipe()
        return saved_natively(recipe.with_rates(3), ids, seed, steps, self.state_dtype(recipe))

    def trained(self, seed: int = 1, recipe: Recipe | None = None, steps: int = 2) -> Subject:
        """A subject whose optimizer has state for every parameter.

        Args:
            seed (int): seed of parameters and gradients.
            recipe (Optional[Recipe]): what to build.
            steps (int): number of steps.

        Returns:
            Subject: the subject.
        """
        subject = self.build(seed, recipe)
        for step in range(steps):
            subject.train(100 * seed + step, None)
        return subject

    def native_twin(self, subject: Subject, saved: dict[str, Any]) -> torch.optim.Optimizer:
        """An optimizer that holds what the subject's must hold after loading, by torch's own loading.

        Args:
            subject (Subject): the subject, before it loads.
            saved (dict): a state dict with global ids and shapes.

        Returns:
            torch.optim.Optimizer: independent of the subject.
        """
        twin = twin_of(subject.inner)
        twin.load_state_dict(frozen(self.local_state(subject, saved)))
        return twin

    def load(self, subject: Subject, path: str, **options: Any) -> BaseException | None:
        """Load, on every rank.

        Args:
            subject (Subject): where to.
            path (str): what.
            options (Any): more arguments of ``load_optimizer``.

        Returns:
            Optional[BaseException]: what was raised on this rank.
        """
        return self.tried(self.checkpoint_io().load_optimizer, subject.optimizer, path, **options)

    def tried(self, method: Callable[..., object], *arguments: Any, **options: Any) -> BaseException | None:
        """Call a method of the class under test.

        Args:
            method (Callable): the method.
            arguments (Any): its arguments.
            options (Any): its keyword arguments.

        Returns:
            Optional[BaseException]: what was raised on this rank; a class may raise anything, and may even want to exit.

        Raises:
            KitFailure: if it failed for want of space on the disk, which says nothing about the class.
        """
        try:
            method(*arguments, **options)
        except BaseException as error:
            cause = error
            while cause is not None:
                if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise KitFailure(f"{os.strerror(cause.errno)}: {cause}") from error
                cause = cause.__cause__ or cause.__context__
            return error
        return None

    def must_load(self, subject: Subject, path: str, **options: Any) -> None:
        """Load what every rank must accept; the weights must not change.

        Args:
            subject (Subject): where to.
            path (str): what.
            options (Any): more arguments of ``load_optimizer``.
        """
        weights = subject.weights()
        error = self.load(subject, path, **options)
        problems = [] if error is None else [f"refused a good checkpoint: {type(error).__name__}: {error}"]
        self.verdict(problems + differences(weights, subject.weights(), "loading changed the "))

    def must_equal(self, subject: Subject, twin: torch.optim.Optimizer, step: bool = True) -> None:
        """The subject's optimizer must hold what its twin holds, bit for bit, and take the same next step.

        Args:
            subject (Subject): the subject.
            twin (torch.optim.Optimizer): from :meth:`native_twin`.
            step (bool): whether to take the step.
        """
        found = differences(look_at(twin), look_at(subject.inner), "")
        self.verdict(found + loose_storages(subject.inner))
        if not step:
            return
        mine = subject.parameters
        others = [parameter for group in twin.param_groups for parameter in group["params"]]
        for parameters in (mine, others):
            give_gradients(parameters, torch.Generator().manual_seed(5 + self.rank))
        problems = []
        try:
            twin.step(*closure_for(twin))
            subject.inner.step(*closure_for(subject.inner))
        except Exception as error:
            problems.append(f"the next step failed: {type(error).__name__}: {error}")
        problems += differences(look_at(twin), look_at(subject.inner), "after the next step, ")
        problems += differences(
            [each.detach() for each in others], [each.detach() for each in mine], "after the next step, parameters"
        )
        self.verdict(problems)

    def must_replace(
        self, subject: Subject, saved: dict[str, Any], path: str, step: bool = True, **options: Any
    ) -> None:
        """Load a good checkpoint, and check that it replaces the subject's state as native loading would.

        Args:
            subject (Subject): where to.
            saved (dict): what the checkpoint holds.
            path (str): the checkpoint.
            step (bool): whether to compare the next step too.
            options (Any): more arguments of ``load_optimizer``.
        """
        twin = self.native_twin(subject, saved)
        self.must_load(subject, path, **options)
        self.must_equal(subject, twin, step)

    def must_refuse(
        self,
        subject: Subject,
        path: str,
        mentions: Iterable[object] = (),
        ranks: Iterable[int] = (),
        kinds: type[BaseException] | tuple[type[BaseException], ...] = (ValueError, RuntimeError),
        **options: Any,
    ) -> None:
        """Load what every rank must refuse without any change, and check that a good checkpoint still loads.

        Args:
            subject (Subject): where to.
            path (str): what; it may differ from rank to rank.
            mentions (Iterable[object]): what the message must contain; a tuple of integers stands for a shape.
            ranks (Iterable[int]): ranks that the message must name.
            kinds (Union[type, Tuple[type, ...]]): exception types of which the error must be one.
            options (Any): more arguments of ``load_optimizer``.
        """
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        before, weights = look_at(subject.inner), subject.weights()
        error = self.load(subject, path, **options)
        problems = differences(before, look_at(subject.inner), "after the refusal, ")
        problems += differences(weights, subject.weights(), "after the refusal, the ")
        if error is None:
            problems.insert(0, "a checkpoint that cannot be right was accepted")
        else:
            if not isinstance(error, kinds) or isinstance(error, (NotImplementedError, RecursionError)):
                wanted = " or ".join(kind.__name__ for kind in kinds)
                problems.append(f"raised {type(error).__name__}, which is no {wanted}: {error}")
            mentions = [*mentions, *(re.compile(rf"rank {rank}\b") for rank in ranks if self.world_size > 1)]
            problems += [f"the message does not mention {each}: {error}" for each in mentions if not told(error, each)]
        self.verdict(problems)
        self.good_load_works(subject)

    def good_load_works(self, subject: Subject) -> None:
        """Load a good checkpoint after a refusal.

        Args:
            subject (Subject): where to.
        """
        layout = self.layouts[0]
        saved = self.saved(subject.recipe, seed=23)
        path = self.write(self.files(saved, layout), "good")
        self.must_replace(subject, saved, path)


def told(error: BaseException, wanted: object) -> bool:
    """Whether a message says something.

    Args:
        error (BaseException): the message.
        wanted (object): a text, a number, a compiled expression, or a shape.

    Returns:
        bool: whether it is there.
    """
    text = str(error)
    if isinstance(wanted, tuple):
        return re.search(r"[(\[]" + r",\s*".join(map(str, wanted)) + r",?[)\]]", text) is not None
    if isinstance(wanted, re.Pattern):
        return wanted.search(text) is not None
    if isinstance(wanted, int):
        return re.search(rf"(?<![\d.]){wanted}(?![\d.])", text) is not None
    return str(wanted) in text

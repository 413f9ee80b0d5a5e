"""
Trains a small model on scikit-learn's digits, one process of two, with ColossalAI's Booster and ZeRO stage 1.

Every run starts from the same seed, and step n always sees the same images. At first only the last layer is trained.
The checkpoint is taken then: it holds state for that layer, and none for the layers below, which were not trained yet.

    reference   goes straight on with the whole model
    unmodified  goes astray, goes back to the checkpoint with ColossalAI's own loader, then does what the reference did
    fixed       the same, but loads with the overlay

All load the same files. ColossalAI cannot write them itself, since its saver fails on a parameter without state.
"""

import argparse
import contextlib
import datetime
import hashlib
import json
import os
import sys
from typing import Any, Callable

import torch
import torch.distributed as dist
from colossalai.booster import Booster
from colossalai.booster.plugin import LowLevelZeroPlugin
from sklearn.datasets import load_digits
from torch import nn

import colossalai_fork

from ..gate.cpu import stand_in
from .schedule import BATCH_SIZE, FIXED, REFERENCE, UNMODIFIED, WORLD_SIZE, Phase, Schedule

#: Images to train on; the rest tests the model.
TRAINING_IMAGES = 1437


class Digits:
    """The images and their labels, in an order of their own but always the same."""

    def __init__(self) -> None:
        digits = load_digits()
        order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
        images = torch.tensor(digits.data, dtype=torch.float32)[order] / 16
        labels = torch.tensor(digits.target)[order]
        self.images, self.test_images = images.split([TRAINING_IMAGES, len(images) - TRAINING_IMAGES])
        self.labels, self.test_labels = labels.split([TRAINING_IMAGES, len(labels) - TRAINING_IMAGES])

    def batch(self, step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what a process sees in a step.

        Args:
            step (int): number of the step.
            rank (int): the process.

        Returns:
            Tuple[torch.Tensor, torch.Tensor]: images and labels.
        """
        generator = torch.Generator().manual_seed(step)
        chosen = torch.randint(TRAINING_IMAGES, (WORLD_SIZE, BATCH_SIZE), generator=generator)[rank]
        return self.images[chosen], self.labels[chosen]


class Run:
    """A model in training.

    Args:
        digits (Digits): what it is trained on.
        after_step (Callable[[], None]): called after every step.
    """

    def __init__(self, digits: Digits, after_step: Callable[[], None]) -> None:
        torch.manual_seed(0)
        layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)]
        model = nn.Sequential(*layers)
        optimizer = torch.optim.Adam(model.parameters())
        self.lower_layers = layers[:-1]
        self.digits = digits
        self.after_step = after_step
        self.booster = Booster(plugin=LowLevelZeroPlugin(stage=1, precision="fp32"))
        self.model, self.optimizer, self.criterion, _, _ = self.booster.boost(model, optimizer, nn.CrossEntropyLoss())
        self.step = 0

    def train(self, phase: Phase) -> list[float]:
        """Train. Must be called on every rank.

        Args:
            phase (Phase): for how long, and how.

        Returns:
            List[float]: the loss of every step, over the images of all ranks.
        """
        for layer in self.lower_layers:
            layer.requires_grad_(phase.whole_model)
        for group in self.optimizer.param_groups:
            group["lr"] = phase.learning_rate
        losses = []
        for _ in range(phase.steps):
            images, labels = self.digits.batch(self.step, dist.get_rank())
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(images), labels)
            self.booster.backward(loss, self.optimizer)
            self.optimizer.step()
            loss = loss.detach().clone()
            dist.all_reduce(loss)
            losses.append(loss.item() / WORLD_SIZE)
            self.step += 1
            self.after_step()
        return losses

    def save(self, directory: str) -> None:
        """Save model and optimizer, both sharded. Must be called on every rank.

        Args:
            directory (str): where.
        """
        self.booster.save_model(self.model, os.path.join(directory, "model"), shard=True)
        self.booster.save_optimizer(self.optimizer, os.path.join(directory, "optimizer"), shard=True)

    def load(self, directory: str, step: int) -> None:
        """Go back to a checkpoint. Must be called on every rank.

        Args:
            directory (str): where it is.
            step (int): number of steps that were made before it.
        """
        self.booster.load_model(self.model, os.path.join(directory, "model"))
        self.booster.load_optimizer(self.optimizer, os.path.join(directory, "optimizer"))
        self.step = step

    def parameters_with_state(self) -> int:
        """Count the parameters that the optimizer has state for.

        Returns:
            int: how many.
        """
        return len(self.optimizer.optim.state)

    def parameters(self) -> list[torch.Tensor]:
        """Return the model's parameters.

        Returns:
            List[torch.Tensor]: a copy of each.
        """
        return [parameter.detach().clone() for parameter in self.model.parameters()]

    def accuracy(self) -> float:
        """Test the model.

        Returns:
            float: the fraction of the test images that it recognises.
        """
        with torch.no_grad():
            answers = self.model(self.digits.test_images).argmax(dim=1)
        return (answers == self.digits.test_labels).float().mean().item()

    def digests(self) -> list[str]:
        """Hash the bits of the model and of the optimizer's state. Must be called on every rank.

        Returns:
            List[str]: the hash of what each rank holds. Two are equal if, and only if, every bit is.
        """
        digest = hashlib.sha256()
        for parameter in self.model.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        for group in self.optimizer.optim.param_groups:
            for parameter in group["params"]:
                for key, value in sorted(self.optimizer.optim.state.get(parameter, {}).items()):
                    digest.update(key.encode() + value.numpy().tobytes())
        digests = [None] * WORLD_SIZE
        dist.all_gather_object(digests, digest.hexdigest())
        return digests


def _why_unmodified_cannot_save(run: Run, directory: str) -> str | None:
    try:
        run.save(directory)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def train(directory: str, steps: int, after_step: Callable[[], None]) -> dict[str, Any]:
    """Make all runs. Must be called on every rank.

    Args:
        directory (str): for the checkpoints, the same on every rank.
        steps (int): steps after the checkpoint.
        after_step (Callable[[], None]): called after every step.

    Returns:
        Dict[str, Any]: what :meth:`results.Training.read` expects.
    """
    schedule = Schedule(steps)
    digits = Digits()
    checkpoint = os.path.join(directory, "checkpoint")
    runs = {}

    run = Run(digits, after_step)
    before = run.train(schedule.last_layer)
    cannot_save = _why_unmodified_cannot_save(run, os.path.join(directory, "unmodified"))
    with colossalai_fork.apply():
        run.save(checkpoint)
    entries, parameters = run.parameters_with_state(), len(run.parameters())
    after = run.train(schedule.whole_model)
    end = run.parameters()
    runs[REFERENCE] = _result(run, end, before=before, astray=[], after=after, with_state=entries)

    for name, loader in ((UNMODIFIED, contextlib.nullcontext), (FIXED, colossalai_fork.apply)):
        run = Run(digits, after_step)
        before = run.train(schedule.last_layer)
        astray = run.train(schedule.astray)
        with loader():
            run.load(checkpoint, schedule.last_layer.steps)
        entries = run.parameters_with_state()
        after = run.train(schedule.whole_model)
        runs[name] = _result(run, end, before=before, astray=astray, after=after, with_state=entries)

    return {"runs": runs, "parameters": parameters, "unmodified_cannot_save": cannot_save}


def _result(run: Run, end_of_reference: list[torch.Tensor], **found: Any) -> dict[str, Any]:
    distance = max((ours - theirs).abs().max().item() for ours, theirs in zip(run.parameters(), end_of_reference))
    return {**found, "accuracy": run.accuracy(), "distance": distance, "digests": run.digests()}


def main() -> None:
    """Be one of the processes: make all runs, and on the first rank write what came of them."""
    parser = argparse.ArgumentParser(prog="python -m colossalai_fork.demo.training")
    parser.add_argument("--directory", required=True, help="empty directory that the processes share")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--steps", type=int, default=Schedule.steps)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    stand_in.install()
    dist.init_process_group(
        "gloo",
        init_method="file://" + os.path.join(arguments.directory, "rendezvous"),
        rank=arguments.rank,
        world_size=WORLD_SIZE,
        timeout=datetime.timedelta(minutes=3),
    )
    with open(os.path.join(arguments.directory, f"steps-{arguments.rank}"), "w") as steps_made:

        def after_step() -> None:
            # The demo's progress is the size of this file.
            steps_made.write(".")
            steps_made.flush()

        results = train(arguments.directory, arguments.steps, after_step)
    if arguments.rank == 0:
        with open(os.path.join(arguments.directory, "results.json"), "w") as file:
            json.dump(results, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is written. Threads that torch leaves running abort some of the processes that take everything down in order.
    os._exit(0)

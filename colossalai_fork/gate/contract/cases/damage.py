"""Contract points 2, 3 and 8: damaged and hostile checkpoints are refused by name, and nothing in them is run."""

import json
import os
import shutil
from pathlib import Path
from typing import Callable

import pytest
import torch

from ..base import ContractBase, case
from ..checkpoint_files import GROUP_FILE, RunsCode, is_one_file, is_sharded, replace_by_pipe, scramble, truncate
from ..needs import A_FILE_OF_ITS_OWN, Need
from ..subjects import Subject

DAMAGES = {
    "missing": os.remove,
    "100 bytes": lambda path: truncate(path, 100),
    "half": lambda path: truncate(path, os.path.getsize(path) // 2),
    "empty": lambda path: truncate(path, 0),
    "noise": scramble,
    "a text": lambda path: Path(path).write_text("version https://example.org/spec\nsize 12\n"),
    "another object": lambda path: torch.save("not what belongs here", path),
    "a directory": lambda path: (os.remove(path), os.mkdir(path)),
}

ONE_LAYOUT_SHOWS_IT = Need(
    "another layout shows it",
    lambda _, arguments: arguments["part"] == "shard" or arguments["layout"] == "torch-sharded",
)


class DamageCases(ContractBase):
    """Checkpoints that no optimizer could load."""

    def _damage(self, layout: str, part: str, damage: Callable[[str], object]) -> None:
        """Damage one file of a good checkpoint, and check that it is refused by name.

        Args:
            layout (str): the layout.
            part (str): "shard", "groups" or "index".
            damage (Callable[[str], object]): what is done to the file.
        """
        subject = self.trained()
        files = self.files(self.saved(), layout)
        name = {"groups": GROUP_FILE, "index": files.index_name, "shard": files.name_of(3)}[part]
        path = self.write(files)
        if self.rank == 0:
            damage(os.path.join(path if is_sharded(layout) else os.path.dirname(path), name))
        self.everyone(None)
        # A directory without an index can only be named itself.
        mention = name if os.path.lexists(os.path.join(path, name)) or part != "index" else os.path.basename(path)
        self.must_refuse(subject, path, [mention])

    @pytest.mark.parametrize("damage", DAMAGES)
    @case(2, 3, rows=(19,))
    def test_damaged_shard(self, layout: str, damage: str) -> None:
        self._damage(layout, "shard", DAMAGES[damage])

    @pytest.mark.parametrize("damage", DAMAGES)
    @case(2, 3, rows=(19,), layouts=is_sharded)
    def test_damaged_group_file(self, layout: str, damage: str) -> None:
        self._damage(layout, "groups", DAMAGES[damage])

    @pytest.mark.parametrize("damage", ["missing", "half", "empty", "noise", "a directory"])
    @case(2, 3, rows=(19,), layouts=is_sharded)
    def test_damaged_index(self, layout: str, damage: str) -> None:
        self._damage(layout, "index", DAMAGES[damage])

    @pytest.mark.parametrize("part", ["shard", "groups", "index"])
    @case(8, 2, 3, rows=(19,), hangs=True, needs=[ONE_LAYOUT_SHOWS_IT])
    def test_pipe_in_the_place_of_a_file(self, layout: str, part: str) -> None:
        self._damage(layout, part, replace_by_pipe)

    @pytest.mark.parametrize("content", ["a list", "no weight map", "weight map is a list", "metadata is a text"])
    @case(2, 3, rows=(19,), layouts=is_sharded)
    def test_index_with_another_content(self, layout: str, content: str) -> None:
        def rewrite(path: str) -> None:
            index = json.loads(Path(path).read_text())
            if content == "a list":
                index = [index]
            elif content == "no weight map":
                del index["weight_map"]
            elif content == "weight map is a list":
                index["weight_map"] = list(index["weight_map"])
            else:
                index["metadata"] = "none"
            Path(path).write_text(json.dumps(index))

        self._damage(layout, "index", rewrite)

    @pytest.mark.parametrize("content", ["group is a number", "no params", "params is a number", "a mapping"])
    @case(2, 3, rows=(19,))
    def test_groups_with_another_content(self, layout: str, content: str) -> None:
        subject = self.trained()
        files = self.files(self.saved(), layout)
        if content == "group is a number":
            files.groups[0] = 3
        elif content == "no params":
            del files.groups[0]["params"]
        elif content == "params is a number":
            files.groups[0]["params"] = 2
        else:
            files.groups = {"0": files.groups[0]}
        self.must_refuse(subject, self.write(files), [GROUP_FILE if is_sharded(layout) else files.one_file_name])

    @pytest.mark.parametrize("missing", ["state", "param_groups"])
    @case(2, 3, rows=(19,), layouts=lambda layout: layout == "torch-one-file")
    def test_one_file_without_a_part(self, layout: str, missing: str) -> None:
        subject = self.trained()
        path = self.write(self.files(self.saved(), layout))
        content = torch.load(path, weights_only=True)
        del content[missing]
        self.everyone(None)
        if self.rank == 0:
            torch.save(content, path)
        self.everyone(None)
        self.must_refuse(subject, path, [missing])

    @case(2, 3, rows=(19,), layouts=is_sharded)
    def test_index_without_group_file(self, layout: str) -> None:
        subject = self.trained()
        files = self.files(self.saved(), layout)
        del files.metadata["param_groups"]
        self.must_refuse(subject, self.write(files), [files.index_name])

    @case(2, 3, rows=(20,), layouts=lambda layout: layout == "torch-sharded")
    def test_index_lists_what_the_shard_lacks(self, layout: str) -> None:
        subject = self.trained()
        files = self.files(self.saved(), layout)
        name = files.name_of(1)
        del files.shards[name][1]
        self.must_refuse(subject, self.write(files), [1, name])

    @case(2, 3, rows=(20,), layouts=is_sharded)
    def test_shard_holds_what_the_index_does_not_list(self, layout: str) -> None:
        subject = self.trained()
        files = self.files(self.saved(), layout)
        del files.weight_map["1"]
        self.must_refuse(subject, self.write(files), [1, files.name_of(1)])

    @case(2, 3, rows=(20,), layouts=is_sharded)
    def test_id_in_two_shards(self, layout: str) -> None:
        subject = self.trained()
        files = self.files(self.saved(), layout)
        first, last = files.name_of(0), files.name_of(3)
        files.shards[last][0] = files.shards[first][0]
        self.must_refuse(subject, self.write(files), [0, last])

    @pytest.mark.parametrize("ending", [".*.bin", ".*.safetensors"])
    @case(2, 3, rows=(19,), layouts=is_sharded)
    def test_index_names_distributed_tensor_files(self, layout: str, ending: str) -> None:
        subject = self.trained()
        files = self.files(self.saved(), layout)
        files.weight_map["1"] = f"dtensor/weight{ending}"
        self.must_refuse(subject, self.write(files), [f"weight{ending}"])

    @pytest.mark.parametrize("how", ["parent", "absolute"])
    @case(8, 2, layouts=is_sharded)
    def test_shard_outside_the_directory(self, layout: str, how: str) -> None:
        subject = self.trained()
        files = self.files(self.saved(), layout)
        name = files.name_of(0)
        path = self.write(files)
        outside = os.path.join(self.directory, "outside" + os.path.splitext(name)[1])
        if self.rank == 0:
            shutil.move(os.path.join(path, name), outside)
            named = outside if how == "absolute" else os.path.join("..", os.path.basename(outside))
            index = Path(path, files.index_name)
            index.write_text(index.read_text().replace(name, named))
        self.everyone(None)
        self.must_refuse(subject, path, [os.path.basename(outside)])

    @pytest.mark.parametrize("how", ["parent", "absolute"])
    @case(8, 2, layouts=is_sharded)
    def test_group_file_outside_the_directory(self, layout: str, how: str) -> None:
        subject = self.trained()
        files = self.files(self.saved(), layout)
        outside = os.path.join(self.directory, "outside.bin")
        files.metadata["param_groups"] = outside if how == "absolute" else os.path.join("..", "outside.bin")
        path = self.write(files)
        if self.rank == 0:
            shutil.copy(os.path.join(path, GROUP_FILE), outside)
        self.everyone(None)
        self.must_refuse(subject, path, ["outside.bin"])

    @case(2, 3, rows=(19,), layouts=is_sharded)
    def test_two_index_files(self, layout: str) -> None:
        subject = self.trained()
        files = self.files(self.saved(), layout)
        path = self.write(files)
        if self.rank == 0:
            shutil.copy(os.path.join(path, files.index_name), os.path.join(path, f"another.{files.index_name}"))
        self.everyone(None)
        self.must_refuse(subject, path, [files.index_name])

    @case(2, 3, rows=(16, 19), layouts=is_sharded)
    def test_damaged_and_of_another_optimizer(self, layout: str) -> None:
        # What was read of a damaged checkpoint says little about whether it fits.
        subject = self.trained()
        files = self.files(self.saved(), layout)
        del files.groups[0]["betas"]
        path = self.write(files)
        if self.rank == 0:
            truncate(os.path.join(path, files.name_of(3)), 100)
        self.everyone(None)
        self.must_refuse(subject, path, [files.name_of(3), "betas"], kinds=RuntimeError)

    @case(1, 8)
    def test_linked_files(self, layout: str) -> None:
        # Download caches keep files elsewhere and link to them.
        subject = self.trained()
        saved = self.saved(ids=(0, 1))
        path = self.write(self.files(saved, layout), "elsewhere")
        linked = os.path.join(self.directory, "linked")
        if self.rank == 0:
            os.mkdir(linked)
            for name in os.listdir(os.path.join(self.directory, "elsewhere")):
                os.symlink(os.path.join("..", "elsewhere", name), os.path.join(linked, name))
        self.everyone(None)
        self.must_replace(subject, saved, path.replace("elsewhere", "linked"))

    @pytest.mark.parametrize("part", ["shard", "groups"])
    @case(8, 2, 3, rows=(23,), needs=[A_FILE_OF_ITS_OWN])
    def test_code_in_a_file(self, layout: str, part: str) -> None:
        subject = self.trained()
        evidence = os.path.join(self.directory, "it-ran")
        files = self.files(self.saved(), layout)
        if part == "groups":
            files.groups[0]["lr"] = RunsCode(evidence)
            name = GROUP_FILE
        else:
            files.states[1]["note"] = RunsCode(evidence)
            name = files.name_of(1)
        path = self.write(files)
        self._must_not_run(subject, path, evidence, name)

    @case(8, 2, 3, rows=(23,), layouts=is_one_file)
    def test_code_in_the_groups_of_one_file(self, layout: str) -> None:
        subject = self.trained()
        evidence = os.path.join(self.directory, "it-ran")
        files = self.files(self.saved(), layout)
        files.groups[0]["lr"] = RunsCode(evidence)
        self._must_not_run(subject, self.write(files), evidence, files.one_file_name)

    def _must_not_run(self, subject: Subject, path: str, evidence: str, name: str) -> None:
        self.must_refuse(subject, path, [name])
        self.verdict([f"code in the checkpoint ran and made {evidence}"] if os.path.exists(evidence) else [])

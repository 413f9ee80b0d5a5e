"""Holds a class with a format of its own against the contract: ``files()`` says how a checkpoint is written."""

import json
import os
import pathlib
import sys

from colossalai_fork.gate.configurations import GeneralContract
from colossalai_fork.gate.contract.checkpoint_files import CheckpointFiles

sys.path.insert(0, str(pathlib.Path(__file__).parent))


class JsonFiles(CheckpointFiles):
    """A checkpoint about to be written as JSON, independent of the class's own saving where that matters."""

    one_file_name = "optimizer.json"

    def write(self, directory):
        from json_checkpoint import encoded

        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, self.one_file_name)
        content = encoded({"state": self.states, "param_groups": self.groups})
        pathlib.Path(path).write_text(json.dumps(content))
        return path


class TestJson(GeneralContract):
    """One process, one file of JSON."""

    class_under_test = "JsonCheckpointIO"
    layouts = ("json-one-file",)
    not_applicable = {
        "test_code_in_a_file": "JSON holds nothing that could run",
        "test_code_in_the_groups_of_one_file": "JSON holds nothing that could run",
        "test_numpy_number_in_a_group": "JSON has no numbers of numpy",
        "test_saving_makes_no_state": "the case looks into files of torch",
        "test_tensor_without_data": "JSON holds no tensor without its data",
    }

    def checkpoint_io(self):
        from json_checkpoint import JsonCheckpointIO

        return JsonCheckpointIO()

    def files(self, saved, layout, shards=2):
        return JsonFiles(saved, layout, shards)

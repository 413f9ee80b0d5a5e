"""The runner from end to end, at a tiny size; each loader does load what was saved; and what is counted."""

import dataclasses
import itertools
import json
import os

import pytest
import torch
from click.testing import CliRunner
from unmodified import needs_unmodified_colossalai

import colossalai_fork
from benchmarks import checkpoints, contestants, gate_parts, subjects, watch
from benchmarks.__main__ import main
from benchmarks.cases import QUICK, WHOLE, by_name
from benchmarks.run import Run
from colossalai_fork.gate.cpu import stand_in

pytestmark = [
    *needs_unmodified_colossalai,
    pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="the benchmark reads figures that only Linux has"),
]
TINY = dataclasses.replace(by_name("general-large"), megabytes=0.01, parameters=3, shards=2)


@pytest.fixture
def overlay_taken_out():
    yield
    colossalai_fork.revert()


def trained(case):
    subject = subjects.make(case, "cpu")
    subject.train()
    return subject


@pytest.mark.parametrize("safetensors", [False, True], ids=["torch", "safetensors"])
@pytest.mark.parametrize("name", ["ours", "unmodified", "native", "dcp"])
def test_every_loader_loads_what_was_saved(tmp_path, name, safetensors, overlay_taken_out):
    contestant = contestants.CONTESTANTS[name]
    case = dataclasses.replace(TINY, safetensors=safetensors)
    with stand_in.stand_ins():
        saved = trained(case)
        checkpoints.write(case, saved, 0, str(tmp_path))
        contestant.get_ready()
        subject = contestant.subject(case, "cpu", saved.tensor_sizes())
        for _ in ("fresh", "trained"):
            contestant.load(subject, str(tmp_path / contestant.files))
            assert sorted(subject.tensor_sizes()) == sorted(saved.tensor_sizes())
            for key, values in saved.inner.state_dict()["state"].items():
                for part, value in values.items():
                    assert torch.equal(subject.inner.state_dict()["state"][key][part], value), (key, part)
            subject.train()


def test_the_floor_reads_as_many_bytes_as_the_state_has(tmp_path):
    for name, content in (("a", b"abcde"), ("b", b"fghijk")):
        (tmp_path / name).write_bytes(content)
    floor = contestants.CONTESTANTS["floor"]
    subject = floor.subject(None, "cpu", [4, 3])
    subject.sizes = [4, 3]
    floor.load(subject, str(tmp_path))
    assert [bytes(tensor.tolist()) for tensor in subject.tensors] == [b"abcd", b"efg"]


def test_small_tensors_of_the_floor_lie_side_by_side():
    assert contestants.Buffers([2**20, *[1000] * 100]).sizes == [2**20, 2**16, 100_000 - 2**16]


def test_the_command_measures_reports_and_writes_everything_down(tmp_path):
    pytest.importorskip("matplotlib")
    case, out = by_name("zero-2"), tmp_path / "out"
    tiny = ["--gigabytes", "0.001", "--case", case.name, "--rounds", "1"]
    ran = CliRunner().invoke(main, [*tiny, "--directory", str(tmp_path), "--output", str(out)])
    assert ran.exit_code == 0, ran.output
    written = json.loads((out / "results.json").read_text())
    found = {(row["cache"], row["destination"], row["contestant"]): row for row in written["rows"]}
    assert set(found) == set(itertools.product(case.caches, ("fresh", "trained"), case.contestants))
    assert not written["failures"]
    assert all(row["seconds"]["count"] == 1 and row["openings"] > 0 for row in found.values())
    # One more round, in which memory is watched.
    assert len(written["records"]) == 2 * case.processes * len(found)
    assert {each.name for each in out.iterdir()} == {"results.json", "results.md", "results.png"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
    again = ["--show", str(out / "results.json"), "--output", str(tmp_path / "again")]
    assert CliRunner().invoke(main, again).exit_code == 0
    assert (tmp_path / "again" / "results.md").read_text() == (out / "results.md").read_text()


def test_whoever_cannot_do_the_job_is_named_and_the_others_go_on():
    case = dataclasses.replace(TINY, safetensors=True, contestants=("native", "dcp", "floor"))
    broken = dataclasses.replace(case, configuration="no such configuration")
    told = []
    run = Run([broken, case], rounds=1, progress=told.append)
    results = run()
    assert [(each["case"], each["contestant"]) for each in results.failures] == [(TINY.name, "saving")]
    assert "no such configuration" in results.failures[0]["reason"]
    assert {row.contestant for row in results.rows} == {"native", "dcp", "floor"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")
def test_without_a_cuda_device_the_command_says_so(tmp_path):
    ran = CliRunner().invoke(main, ["--device", "cuda", "--output", str(tmp_path / "out")])
    assert ran.exit_code == 0 and "found none" in ran.output
    assert not (tmp_path / "out").exists()


def test_opened_files_of_the_directory_are_counted(tmp_path):
    (tmp_path / "inside").write_text("")
    openings = watch.Openings(str(tmp_path))
    open(tmp_path / "inside").close()
    with openings:
        open(tmp_path / "inside").close()
        os.close(os.open(tmp_path / "inside", os.O_RDONLY))
        open(os.devnull).close()
    assert openings.counts == {str(tmp_path / "inside"): 2}


def test_memory_is_sampled_by_another_process():
    with watch.Sampler() as sampler:
        pass
    assert sampler.resident > 0 and sampler.anonymous >= 0


def test_every_case_has_a_name_of_its_own_and_a_floor():
    assert len({case.name for case in WHOLE}) == len(WHOLE)
    assert {case.name for case in QUICK} <= {case.name for case in WHOLE}
    assert all({"ours", "unmodified", "floor"} <= set(case.contestants) for case in WHOLE)


def test_only_large_cases_are_scaled():
    small = [case.name for case in WHOLE if case.scaled(4) == case]
    assert small and all("small" in name for name in small)
    assert by_name("general-large").scaled(4).megabytes == 4000
    assert by_name("general-small-50k").scaled(4) == by_name("general-small-50k")


def test_stand_ins_are_found():
    with stand_in.stand_ins():
        gate_parts.stand_in_for_cuda()

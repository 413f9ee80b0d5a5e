"""What many ranks would do, worked out on few."""

import pytest
from click.testing import CliRunner

from benchmarks import scale

SHAPES = scale.shapes_of(9, 16)


def measured(layout, shapes=SHAPES):
    checkpoint = scale.Checkpoint(shapes)
    return checkpoint, [scale.measure_rank(checkpoint, layout, number) for number in range(layout.ranks)]


def test_zero_ranks_together_keep_the_checkpoint_once():
    checkpoint = scale.Checkpoint(SHAPES)
    # Sixteen divides each parameter; the step counters are on each rank.
    steps = 4 * len(SHAPES)
    assert scale.kept_bytes(checkpoint, scale.Layout(1, 1, 16)) == checkpoint.bytes + 15 * steps


def test_what_tensor_parallelism_does_not_cut_is_on_each_rank():
    checkpoint = scale.Checkpoint(SHAPES)
    vectors = 2 * 16 * 4 * len(scale.KEYS)
    assert scale.kept_bytes(checkpoint, scale.Layout(1, 2, 1)) == checkpoint.bytes + vectors + 4 * len(SHAPES)


def test_a_rank_that_is_alone_reads_everything():
    checkpoint, (rank,) = measured(scale.Layout(1, 1, 1), scale.shapes_of(9, 256))
    # The headers between tensors are smaller than a page, so small tensors are read together with them.
    assert checkpoint.bytes <= rank["bytes"] < checkpoint.bytes + 9 * 3 * 4096
    assert rank["files"] == 1


def test_a_slice_is_read_alone_where_tensors_are_large():
    checkpoint, ranks = measured(scale.Layout(1, 1, 4), scale.shapes_of(9, 1024))
    assert sum(rank["bytes"] for rank in ranks) < 1.01 * checkpoint.bytes


def test_pipeline_stages_open_their_own_files(monkeypatch):
    monkeypatch.setattr(scale, "PER_SHARD", 3)
    _, ranks = measured(scale.Layout(3, 1, 1))
    assert [rank["files"] for rank in ranks] == [1, 1, 1]


@pytest.mark.parametrize("ranks", [128, 1024])
def test_layouts_have_as_many_ranks_as_asked_for(ranks):
    assert {layout.ranks for layout in scale.layouts(ranks)} == {ranks}
    assert str(scale.layouts(ranks)[1]) == f"tensor 8 × ZeRO {ranks // 8}"


def test_opening_costs_bytes_for_each_parameter():
    seconds, size = scale.measure_opening(100)
    assert seconds > 0 and 300 < size < 5000


def test_the_page_gets_the_table(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{scale.BEGIN}\nstale\n{scale.END}\nafter\n")
    for _ in range(2):
        ran = CliRunner().invoke(
            scale.main, ["--parameters", "32", "--ranks", "128", "--width", "32", "--write", str(page)]
        )
        assert ran.exit_code == 0, ran.output
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "stale" not in text
    assert text.count("| ZeRO 128 |") == 1 and "128 ranks" in text

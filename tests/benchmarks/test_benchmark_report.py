"""What measurements come to, and how they are shown."""

import dataclasses
import json

import pytest
from rich.console import Console

from benchmarks import figure, report
from benchmarks.run import Results
from benchmarks.summary import Spread, ratio, summarise


def record(seconds, contestant="ours", number=1, rank=0, cache="cold", **changes):
    return {
        "case": "case",
        "cache": cache,
        "destination": "fresh",
        "contestant": contestant,
        "round": number,
        "rank": rank,
        "observed": False,
        "seconds": seconds,
        "disk_bytes": 100,
        "own_bytes": 100,
        **changes,
    }


def observed(**changes):
    watched = {
        "extra_anonymous_bytes": 2**20,
        "peak_resident_bytes": 2**22,
        "files_opened": 2,
        "openings": 3,
        **changes,
    }
    return record(99.0, number=0, observed=True, **watched)


def results(records, **changes):
    return Results({"cores": 2}, {"case": "A case"}, records, **changes)


def test_the_slowest_rank_of_each_round_counts():
    records = [
        record(seconds, number=number, rank=rank)
        for number, rank, seconds in ((1, 0, 5), (1, 1, 1), (2, 0, 2), (2, 1, 3))
    ]
    (row,) = summarise(records)
    assert row.seconds == Spread(median=4, low=3, high=5, count=2)


def test_the_time_of_the_observed_round_does_not_count_and_its_memory_does():
    (row,) = summarise([observed(), observed(rank=1, extra_anonymous_bytes=7 * 2**20), record(1), record(2), record(9)])
    assert row.seconds.high == 9 and row.extra_anonymous == 7 * 2**20
    assert (row.peak_resident, row.files_opened, row.openings) == (2**22, 2, 3)


def test_who_was_observed_only_has_no_row():
    assert summarise([observed()]) == []


def test_bytes_from_the_disk_are_those_of_the_worst_rank_in_the_median_round():
    figures = {1: (100, 300), 2: (150, 100), 3: (500, 100)}
    records = [record(1, number=n, rank=r, disk_bytes=b) for n, pair in figures.items() for r, b in enumerate(pair)]
    assert summarise(records)[0].disk_share == 3.0
    assert summarise([{**each, "cache": "warm"} for each in records])[0].disk_share is None


def test_ratios_are_of_medians_in_the_same_situation():
    rows = summarise([record(3), record(2, "unmodified"), record(50, "unmodified", cache="warm")])
    assert ratio(rows, rows[0], "unmodified") == 1.5
    assert ratio(rows, rows[0], "floor") is None


def test_overview_has_contestants_side_by_side():
    table = report.overview(results([record(3), record(2, "unmodified"), record(1.5, "floor")]))
    assert table.head == [
        "seconds",
        "files, optimizer",
        "ours",
        "unmodified",
        "floor",
        "ours ÷ unmodified",
        "ours ÷ floor",
    ]
    assert table.rows == [["A case", "cold, fresh", "3.000", "2.000", "1.500", "1.50", "2.00"]]


def test_nothing_is_compared_with_a_floor_that_is_too_short_to_measure():
    table = report.overview(results([record(3), record(0.001, "floor")]))
    assert table.rows[0][-1] == ""


def test_details_have_every_figure():
    (table,) = report.details(results([observed(), record(3), record(1), record(2, disk_bytes=150)]))
    cells = dict(zip(table.head, table.rows[0]))
    assert cells["loader"] == "ours" and cells["files, optimizer"] == "cold, fresh"
    assert [cells[name] for name in ("sec.", "from", "to", "read")] == ["3.000", "3.000", "3.000", "1.50"]
    assert [cells[name] for name in ("extra MiB", "peak MiB", "opened")] == ["1", "4", "3"]


def test_details_tell_of_failures_and_of_device_memory():
    failed = [{"case": "case", "contestant": "dcp", "reason": "Traceback\n  line\nKeyError: 'step'\n"}]
    found = report.details(results([record(1, extra_device_bytes=2**21)], failures=failed))
    assert found[0].head[-1] == "extra device MiB" and found[0].rows[0][-1] == "2"
    assert found[1].rows == [["A case", "torch DCP", "KeyError: 'step'"]]


@pytest.mark.parametrize("share, busy, words", [(0, 0.1, "not cold"), (100, 3.0, "other work")])
def test_notes_warn_of_files_that_were_not_cold_and_of_a_busy_machine(share, busy, words):
    found = results([record(1, "floor", disk_bytes=share)])
    found.machine["load before"] = busy
    assert words in report.notes(found)[-1]
    quiet = results([record(1, "floor")])
    assert not any(words in note for note in report.notes(quiet))


def test_markdown_and_terminal_have_all_tables():
    found = results([observed(), record(1), record(2, "unmodified")])
    text = report.markdown(found, "picture.png")
    for part in ("![", "## Overview", "## A case", "| cold, fresh | unmodified |", "- cores: 2"):
        assert part in text
    console = Console(record=True, width=120)
    report.show(console, found)
    assert "A case" in console.export_text()


def test_results_can_be_read_again(tmp_path):
    path = tmp_path / "results.json"
    written = results([record(1.5)], failures=[{"case": "case", "contestant": "dcp", "reason": "why"}])
    written.save(path)
    assert Results.read(path) == written
    assert json.loads(path.read_text())["rows"] == json.loads(
        json.dumps([dataclasses.asdict(each) for each in written.rows])
    )
    path.write_text("{}")
    with pytest.raises(ValueError, match="no results"):
        Results.read(path)


def test_a_picture_is_drawn_of_any_number_of_cases(tmp_path):
    pytest.importorskip("matplotlib")
    records = [
        {**each, "case": name} for name in "abcd" for each in (record(1), record(2, "unmodified"), record(1, "floor"))
    ]
    figure.save(Results({}, {name: name for name in "abcd"}, records), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")

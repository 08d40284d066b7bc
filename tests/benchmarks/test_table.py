"""The table says what was measured, what it had to be, and what was missed."""

from pathlib import Path

import pytest

from benchmarks.comparing import Bench, Row, Target, judged
from benchmarks.conversation import Marks, kilobyte
from benchmarks.table import conditions, render, summary
from benchmarks.timing import Slice

LEAST = Target("least", 0.75, "of fresh")
MOST = Target("most", 150, "ms")


def test_a_target_is_met_on_its_own_side_and_at_its_edge() -> None:
    assert (LEAST.met(0.75), LEAST.met(0.74)) == (True, False)
    assert (MOST.met(150), MOST.met(150.1)) == (True, False)


def test_a_missed_target_is_named_under_the_table() -> None:
    rows = [judged("help", "200 ms", 200, MOST), judged("import", "20 ms", 20, MOST), Row("seen", "7")]

    assert summary(rows) == "1 of 2 targets met; missed: help"


def test_the_table_is_markdown_with_every_column_aligned() -> None:
    lines = render([Row("effects", "3,000/s", 0.8, 0.5, 150.4, LEAST, met=True), Row("import", "20 ms")]).splitlines()

    assert len({len(line) for line in lines}) == 1
    assert [cell.strip() for cell in lines[2].split("|")[1:-1]] == [
        "effects",
        "3,000/s",
        "0.80",
        "0.50",
        "150",
        "≥ 0.75 of fresh",
        "met",
    ]


def test_the_conditions_name_the_library_and_the_rounds(tmp_path: Path) -> None:
    text = conditions(5, tmp_path)

    assert "SQLite 3." in text
    assert "Medians of 5 rounds" in text


def test_a_ratio_is_to_the_baseline_of_the_same_moment(tmp_path: Path) -> None:
    bench = Bench(rounds=3, scale=0.001, folder=tmp_path)

    row = bench.rate_row("work", lambda _: Slice(1_000_000, 1.0, 0.5), "units/s", LEAST)

    assert row.figure == "1,000,000 units/s"
    assert row.cpu_us == pytest.approx(0.5)
    assert row.verdict == "met"


def test_growth_counts_only_what_lies_between_the_edges_of_a_window() -> None:
    stored = iter([1_000, 3_000, 50_000, 58_000])
    marks = Marks(lambda: next(stored))
    for turn in (40, 60, 390, 410):
        marks.note(turn)

    growth = marks.growth()

    assert (growth.early_bytes, growth.late_bytes) == (100, 400)


def test_a_turn_says_a_kilobyte_of_its_own() -> None:
    assert len(kilobyte(1)) == len(kilobyte(2)) == 1024
    assert kilobyte(1) != kilobyte(2)
    assert kilobyte(1) == kilobyte(1)

"""The table of the evaluation is written between its own marks, and what stands in the page adds up."""

from argparse import Namespace
from pathlib import Path

import pytest

from evaluation.page import BEGIN, END, of_all, write
from evaluation.verdicts import HEADINGS
from tests.tidy.repository import text

ROWS = [("banking", "1", "2", "8", "8", "0", "0"), ("total", "1", "2", "8", "8", "0", "0")]


def published() -> list[list[str]]:
    between = text("docs/reliability.md").partition(BEGIN)[2].partition(END)[0]
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in between.splitlines() if line[:1] == "|"]


def test_the_table_is_put_between_its_marks_and_nothing_else_is_touched(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")

    write(page, ROWS, "1 of 1.")

    written = page.read_text(encoding="utf-8")
    assert written.startswith(f"before\n{BEGIN}\n\n| suite |")
    assert written.endswith(f"\n\n**1 of 1.**\n\n{END}\nafter\n")
    assert "| banking | 1 | 2 | 8 | 8 | 0 | 0 |" in written
    assert "old" not in written


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no marks\n", encoding="utf-8")

    with pytest.raises(LookupError, match="has no marks for the evaluation"):
        write(page, ROWS, "")


WHOLE = {"part": None, "suite": None, "task": None, "sample": None}


@pytest.mark.parametrize("part", [{"suite": "banking"}, {"sample": 4}, {"part": "once"}, {"task": "user_task_1"}])
def test_a_part_of_the_tasks_is_never_published_as_all_of_them(part: dict[str, object]) -> None:
    assert of_all(Namespace(**WHOLE))
    assert not of_all(Namespace(**{**WHOLE, **part}))


def test_what_is_published_is_all_tasks_at_all_points_and_adds_up() -> None:
    headings, _, *rows = published()
    numbers = {row[0]: [int(cell) for cell in row[1:]] for row in rows}
    total = numbers.pop("total")

    assert tuple(headings) == HEADINGS
    assert total == [sum(column) for column in zip(*numbers.values(), strict=True)]
    assert total[0] == 97
    assert total[2] == 4 * total[1]
    assert total[3:5] == [total[2], 0]

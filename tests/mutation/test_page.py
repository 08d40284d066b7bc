"""The table of mutants: what is printed, what is published, and that the two can be compared."""

from collections import Counter
from pathlib import Path

import pytest

from mutation import page

COUNTS = {
    "core/lease.py": Counter({"killed": 6, "timeout": 1, "caught by type check": 5}),
    "core/retry.py": Counter({"killed": 27, "skipped": 1, "survived": 2}),
    "core/steps.py": Counter[str](),
}


def test_each_module_has_its_row_and_the_last_one_is_the_sum() -> None:
    assert page.rows(page.numbers(COUNTS)) == [
        ("core/lease.py", "12", "7", "5", "0", "0"),
        ("core/retry.py", "30", "27", "0", "1", "2"),
        ("**all**", "42", "34", "5", "1", "2"),
    ]


def test_what_was_written_is_read_back() -> None:
    table = f"before\n{page.START}\n\n{page.as_markdown(page.numbers(COUNTS))}\n\n{page.END}\nafter\n"

    assert page.published(table) == {
        "core/lease.py": (12, 7, 5, 0, 0),
        "core/retry.py": (30, 27, 0, 1, 2),
        "all": (42, 34, 5, 1, 2),
    }


def test_a_terminal_gets_the_same_numbers() -> None:
    lines = page.as_text(page.numbers(COUNTS)).splitlines()

    assert lines[0].split("  ")[0] == "module"
    assert lines[0].endswith("explained survivors")
    assert lines[2].split() == ["core/retry.py", "30", "27", "0", "1", "2"]


def test_a_page_without_the_markers_publishes_nothing() -> None:
    assert page.published("| a | b |\n|---|---|\n| core/x.py | 1 |\n") == {}


@pytest.mark.parametrize("status", ["survived", "no tests", "suspicious", "segfault", "not checked"])
def test_whatever_was_not_killed_has_survived(status: str) -> None:
    assert page.numbers({"core/x.py": Counter({status: 1})}) == {"core/x.py": (1, 0, 0, 0, 1)}


def test_what_was_not_tried_again_stays_as_it_was_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = tmp_path / "reliability.md"
    written.write_text(f"before\n{page.START}\n\n{page.END}\nafter\n", encoding="utf-8")
    monkeypatch.setattr(page, "PAGE", written)

    page.write({"core/lease.py": (12, 7, 5, 0, 0), "core/retry.py": (30, 30, 0, 0, 0)})
    page.write({"core/retry.py": (31, 30, 0, 0, 1)})

    assert page.published(written.read_text(encoding="utf-8")) == {
        "core/lease.py": (12, 7, 5, 0, 0), "core/retry.py": (31, 30, 0, 0, 1), "all": (43, 37, 5, 0, 1),
    }  # fmt: skip


def test_a_page_that_has_no_place_for_the_table_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reliability.md").write_text("nothing here", encoding="utf-8")
    monkeypatch.setattr(page, "PAGE", tmp_path / "reliability.md")

    with pytest.raises(LookupError, match="no place"):
        page.write({"core/lease.py": (1, 1, 0, 0, 0)})

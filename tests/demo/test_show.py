"""What the demo prints: the figures that went in come out, and the bar follows the work."""

from collections.abc import Callable
from io import StringIO

from rich.console import Console

from milepost.cli.demo.killer import Kill, Plan, Report
from milepost.cli.demo.report import Record
from milepost.cli.demo.show import print_outcome, with_bar
from milepost.cli.demo.tally import Line, Tally

TALLY = Tally(
    refunds=Line("refund", expected=24, applied=31, duplicates=7, lost=0, waiting=0, wrong=0),
    vouchers=Line("voucher", expected=10, applied=9, duplicates=0, lost=1, waiting=0, wrong=0),
    mails=Line("mail", expected=48, applied=46, duplicates=0, lost=0, waiting=2, wrong=0),
)
REPORT = Report([Kill(1, 0.5, on_effect=True), Kill(2, 0.5, on_effect=False)], [0.25, 0.75, 0.35], 0, 12.34)
FAULTS = {"lost_answer": 5, "error_after": 6, "busy": 3, "none": 40}


def printed(record: Record | None) -> dict[str, list[str]]:
    """The rows that were printed: the first cell of each, and the rest."""
    console = Console(file=StringIO(), width=100, color_system=None)
    print_outcome(console, 48, TALLY, REPORT, FAULTS, record)
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().replace("┃", "│").splitlines()
    rows = [[cell.strip() for cell in line.strip("│ ").split("│")] for line in lines]
    return {row[0]: row[1:] for row in rows}


def test_the_figures_of_the_outside_ledgers_are_printed_under_their_columns() -> None:
    rows = printed(None)

    assert rows["effect"] == ["expected", "applied", "duplicates", "lost", "waiting", "wrong"]
    assert rows["refunds"] == ["24", "31", "7", "0", "0", "0"]
    assert rows["vouchers"] == ["10", "9", "0", "1", "0", "0"]
    assert rows["mails"] == ["48", "46", "0", "0", "2", "0"]
    assert "7 duplicates, 1 lost, 0 wrong." in rows


def test_what_the_worker_went_through_is_printed() -> None:
    rows = printed(Record(reconciled=9, waiting=2))

    assert rows["SIGKILLs"] == ["2"]
    assert rows["… while an effect was in flight"] == ["1"]
    assert rows["restart to first new step, median (longest)"] == ["0.35 s (0.75 s)"]
    assert rows["answers lost, or an error after the money moved"] == ["11"]
    assert rows["errors before the money moved"] == ["3"]
    assert rows["unknown outcomes reconciled"] == ["9"]
    assert rows["mails waiting for a person"] == ["2"]


def test_the_record_of_the_desk_is_printed_only_where_there_is_one() -> None:
    assert "unknown outcomes reconciled" not in printed(None)


def test_the_bar_shows_the_steps_and_kills_that_the_killer_reports() -> None:
    console = Console(file=StringIO(), width=100, force_terminal=True, color_system=None)

    def run(on_look: Callable[[Report], None]) -> Report:
        on_look(REPORT)
        return REPORT

    report = with_bar(console, "desk", Plan(seed=1, steps=40), lambda: 50, run)

    assert report is REPORT
    assert isinstance(console.file, StringIO)
    assert "40/40 steps · 2 kills" in console.file.getvalue()

"""What the demo prints: the figures that went in come out, the bar follows the work, and the commands can be typed."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.console import Console

from milepost.cli.demo.desk_record import Held, Record
from milepost.cli.demo.killer import Kill, Plan, Report
from milepost.cli.demo.outcome import Outcome
from milepost.cli.demo.show import print_outcome, with_bar
from milepost.cli.demo.tally import Line, Tally

TALLY = Tally(
    (
        Line("refund", expected=24, applied=24, duplicates=0, lost=0, waiting=0, wrong=0, seen=frozenset({"T-001"})),
        Line("voucher", expected=10, applied=9, duplicates=0, lost=0, waiting=0, wrong=0),
        Line("note", expected=48, applied=48, duplicates=0, lost=0, waiting=0, wrong=0),
        Line("mail", expected=48, applied=46, duplicates=0, lost=0, waiting=1, wrong=0, seen=frozenset({"T-001"})),
    )
)
HELD = (
    Held("T-001", "0123456789abcdef", "answer/send_mail#1", "mail", "the worker died"),
    Held("T-002", "fedcba9876543210", "answer/send_mail#1", "mail", "the line broke"),
)
RECORD = Record(
    unknown=11,
    reconciled=9,
    held=HELD,
    stuck=(),
    damaged=(),
    done={"refund": frozenset({"T-001"}), "mail": frozenset()},
)
KILLS = [Kill(1, 0.5, on_effect=True), Kill(2, 0.5, on_effect=False)]
REPORT = Report(steps=40, kills=KILLS, first_steps=[0.25, 0.75, 0.35], seconds=12.34)
FAULTS = {"lost_answer": 5, "error_after": 6, "busy": 3, "none": 40}
PLAN = Plan(seed=7, steps=40, kills=2, on_effect=1)
OUTCOME = Outcome(Path("kept"), 48, PLAN, REPORT, TALLY, FAULTS, RECORD)


def printed(outcome: Outcome) -> list[str]:
    console = Console(file=StringIO(), width=100, color_system=None)
    print_outcome(console, outcome)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().replace("┃", "│").splitlines()


def words_of(line: str) -> list[str]:
    """The words that a shell would take from a line: a # inside a word is no comment there, as it is for shlex."""
    return shlex.split("" if line.startswith("#") else line.partition("  # ")[0])


def rows(outcome: Outcome) -> dict[str, list[str]]:
    """The rows of the tables: the first cell of each, and the rest."""
    cells = [[cell.strip() for cell in line.strip("│ ").split("│")] for line in printed(outcome)]
    return {row[0]: row[1:] for row in cells}


def test_the_figures_of_the_outside_ledgers_are_printed_under_their_columns() -> None:
    found = rows(OUTCOME)

    assert found["effect"] == ["expected", "applied", "duplicates", "lost", "waiting", "wrong"]
    assert found["refunds"] == ["24", "24", "0", "0", "0", "0"]
    assert found["vouchers"] == ["10", "9", "0", "0", "0", "0"]
    assert found["CRM notes"] == ["48", "48", "0", "0", "0", "0"]
    assert found["mails"] == ["48", "46", "0", "0", "1", "0"]


def test_what_the_worker_went_through_is_printed() -> None:
    found = rows(OUTCOME)

    assert found["the worker was killed by SIGKILL"] == ["2"]
    assert found["… while an effect was in flight"] == ["1"]
    assert found["restarts"] == ["2"]
    assert found["restart to first new step, median (longest)"] == ["0.35 s (0.75 s)"]
    assert found["answers lost, or an error after the money moved"] == ["11"]
    assert found["errors before the money moved"] == ["3"]
    assert found["outcomes that nobody knew for a while"] == ["11"]
    assert found["… reconciled without a person"] == ["9"]
    assert found["mails waiting for a person"] == ["2 (1 arrived)"]


def test_the_naive_desk_has_no_record_to_print() -> None:
    found = rows(replace(OUTCOME, record=None))

    assert "outcomes that nobody knew for a while" not in found
    assert not any("milepost" in line for line in printed(replace(OUTCOME, record=None)))


def test_each_mail_that_waits_comes_with_the_commands_to_look_at_it_and_to_settle_it() -> None:
    lines = printed(OUTCOME)
    commands = [words_of(line) for line in lines if line.startswith(("milepost", "export"))]

    happened, did_not = ["--happened", "null", "--why", "found it"], ["--did-not-happen", "--why", "no such mail"]
    assert commands == [
        ["export", f"MILEPOST_STORE={Path('kept').resolve()}/desk.db"],
        ["milepost", "show", "01234567"],
        ["milepost", "resolve", "01234567", "answer/send_mail#1", *happened],
        ["milepost", "show", "fedcba98"],
        ["milepost", "resolve", "fedcba98", "answer/send_mail#1", *did_not],
        ["milepost", "demo", "--finish", "kept"],
    ]
    assert "milepost show 01234567  # T-001: the mail arrived" in lines
    assert "milepost show fedcba98  # T-002: the mail never arrived" in lines


def test_the_place_where_everything_stays_is_named() -> None:
    assert "# Store, ledgers and logs stay in kept" in printed(OUTCOME)
    assert "# Store, ledgers and logs stay in kept" in printed(replace(OUTCOME, record=None))


def test_the_last_line_says_what_the_demo_showed() -> None:
    lost = replace(TALLY.lines[0], applied=23, lost=1)
    failed = replace(OUTCOME, tally=Tally((lost, *TALLY.lines[1:])))

    assert printed(OUTCOME)[-1] == "Nothing was done twice, and nothing was forgotten."
    assert printed(failed)[-1] == "1 lost"


def test_the_bar_shows_the_steps_and_kills_that_the_killer_reports() -> None:
    console = Console(file=StringIO(), width=100, force_terminal=True, color_system=None)

    def run(on_look: Callable[[Report], None]) -> Outcome:
        on_look(replace(REPORT, steps=50))
        return OUTCOME

    outcome = with_bar(console, "desk", PLAN, run)

    assert outcome is OUTCOME
    assert isinstance(console.file, StringIO)
    assert "40/40 steps · 2 kills" in console.file.getvalue()

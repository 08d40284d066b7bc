"""Counting from the outside ledgers: each way in which an effect can go wrong shows in its own column."""

import pytest

from milepost.cli.demo.ledgers import Applied, Mail, Note
from milepost.cli.demo.tally import Line, count
from milepost.cli.demo.tickets import Action, Ticket


def ticket(number: int, label: Action) -> Ticket:
    return Ticket(f"T-{number}", "A. Person", f"p{number}@example.com", f"A-{number}", 100 * number, label, "…")


def refund(number: int, cents: int, seq: int = 1, kind: str = "refund") -> Applied:
    return Applied(kind, seq, f"A-{number}", cents, 1, 0, None, "")


def mail(number: int, seq: int = 1) -> Mail:
    return Mail(seq, f"T-{number}", "", f"p{number}@example.com", "", dropped=False)


DESK = [ticket(1, "refund"), ticket(2, "refund"), ticket(3, "refuse"), ticket(4, "voucher")]
PAID = [refund(1, 100), refund(2, 200), refund(4, 400, kind="voucher")]
NOTED = [Note("T-1", "refund"), Note("T-2", "refund"), Note("T-3", "refuse"), Note("T-4", "voucher")]
MAILED = [mail(number) for number in (1, 2, 3, 4)]


def test_a_desk_without_a_flaw_counts_no_duplicate_no_loss_and_nothing_wrong() -> None:
    tally = count(DESK, PAID, MAILED, NOTED)

    assert tally.lines == (
        Line("refund", expected=2, applied=2, duplicates=0, lost=0, waiting=0, wrong=0),
        Line("voucher", expected=1, applied=1, duplicates=0, lost=0, waiting=0, wrong=0),
        Line("note", expected=4, applied=4, duplicates=0, lost=0, waiting=0, wrong=0),
        Line("mail", expected=4, applied=4, duplicates=0, lost=0, waiting=0, wrong=0),
    )
    assert (tally.duplicates, tally.lost, tally.wrong) == (0, 0, 0)


def test_a_desk_that_keeps_no_notes_is_not_asked_for_them() -> None:
    assert [line.what for line in count(DESK, PAID, MAILED).lines] == ["refund", "voucher", "mail"]


def test_every_effect_beyond_the_first_is_a_duplicate() -> None:
    paid, mailed = [*PAID, refund(1, 100, seq=2), refund(1, 100, seq=3)], [*MAILED, mail(3, seq=2)]

    tally = count(DESK, paid, mailed, [*NOTED, NOTED[3]])

    assert [line.duplicates for line in tally.lines] == [2, 0, 1, 1]
    assert tally.duplicates == 4


def test_an_effect_that_never_came_is_lost_unless_it_waits_for_a_person() -> None:
    lost = count(DESK, PAID[:1], MAILED[:2], NOTED[:1])
    held = count(DESK, PAID[:1], MAILED[:2], NOTED[:1], waiting={"T-2": "refund", "T-4": "voucher"})

    assert [line.lost for line in lost.lines] == [1, 1, 3, 2]
    assert [line.lost for line in held.lines] == [0, 0, 1, 1]
    assert [line.waiting for line in held.lines] == [1, 1, 2, 1]


def test_what_should_have_come_before_the_effect_that_waits_is_lost_all_the_same() -> None:
    tally = count(DESK, PAID[:1], MAILED[:3], NOTED[:3], waiting={"T-2": "mail", "T-4": "mail"})

    assert [line.lost for line in tally.lines] == [1, 1, 1, 0]
    assert [line.waiting for line in tally.lines] == [0, 0, 0, 1]


def test_what_was_done_and_also_waits_is_counted_as_done() -> None:
    tally = count(DESK, PAID, MAILED, NOTED, waiting={"T-1": "mail"})

    assert [line.waiting for line in tally.lines] == [0, 0, 0, 0]


def test_each_line_names_the_tickets_for_which_something_was_done() -> None:
    tally = count(DESK, PAID, MAILED[1:], NOTED)

    assert tally.line("refund").seen == {"T-1", "T-2"}
    assert tally.line("mail").seen == {"T-2", "T-3", "T-4"}


@pytest.mark.parametrize("wrong", [refund(3, 300), refund(1, 101), refund(9, 100)], ids=["refused", "amount", "order"])
def test_money_that_nobody_should_have_moved_is_wrong(wrong: Applied) -> None:
    others = [row for row in PAID if row.order != wrong.order]

    assert count(DESK, [*others, wrong], MAILED).wrong == 1


def test_a_note_about_another_action_than_was_right_is_wrong() -> None:
    assert count(DESK, PAID, MAILED, [*NOTED[:3], Note("T-4", "refund")]).line("note").wrong == 1

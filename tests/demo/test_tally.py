"""Counting from the outside ledgers: each way in which an effect can go wrong shows in its own column."""

import pytest

from milepost.cli.demo.ledgers import Applied, Mail
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
MAILED = [mail(number) for number in (1, 2, 3, 4)]


def test_a_desk_without_a_flaw_counts_no_duplicate_no_loss_and_nothing_wrong() -> None:
    tally = count(DESK, PAID, MAILED)

    assert tally.refunds == Line("refund", expected=2, applied=2, duplicates=0, lost=0, waiting=0, wrong=0)
    assert tally.vouchers == Line("voucher", expected=1, applied=1, duplicates=0, lost=0, waiting=0, wrong=0)
    assert tally.mails == Line("mail", expected=4, applied=4, duplicates=0, lost=0, waiting=0, wrong=0)
    assert (tally.duplicates, tally.lost, tally.wrong) == (0, 0, 0)


def test_every_effect_beyond_the_first_is_a_duplicate() -> None:
    tally = count(DESK, [*PAID, refund(1, 100, seq=2), refund(1, 100, seq=3)], [*MAILED, mail(3, seq=2)])

    assert (tally.refunds.duplicates, tally.vouchers.duplicates, tally.mails.duplicates) == (2, 0, 1)
    assert tally.duplicates == 3


def test_an_effect_that_never_came_is_lost_unless_it_waits_for_a_person() -> None:
    lost = count(DESK, PAID[:1], MAILED[:2])
    held = count(DESK, PAID[:1], MAILED[:2], waiting={"T-2", "T-4"})

    assert (lost.refunds.lost, lost.vouchers.lost, lost.mails.lost) == (1, 1, 2)
    assert (held.refunds.lost, held.vouchers.lost, held.mails.lost) == (0, 0, 1)
    assert (held.refunds.waiting, held.vouchers.waiting, held.mails.waiting) == (1, 1, 1)


def test_what_was_done_and_also_waits_is_counted_as_done() -> None:
    assert count(DESK, PAID, MAILED, waiting={"T-1"}).mails.waiting == 0


@pytest.mark.parametrize("wrong", [refund(3, 300), refund(1, 101), refund(9, 100)], ids=["refused", "amount", "order"])
def test_money_that_nobody_should_have_moved_is_wrong(wrong: Applied) -> None:
    others = [row for row in PAID if row.order != wrong.order]

    assert count(DESK, [*others, wrong], MAILED).wrong == 1

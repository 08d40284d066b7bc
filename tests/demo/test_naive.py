"""The desk as it is often written: that it makes duplicates is shown, not said."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

from milepost.cli.demo.clients import Payments
from milepost.cli.demo.faults import Fault, payment_behaviour
from milepost.cli.demo.naive import NaiveDesk, steps_of
from milepost.cli.demo.outside import Outside
from milepost.cli.demo.tally import count as tally_of
from milepost.cli.demo.tickets import load_tickets
from tests.polling import eventually

TICKETS = load_tickets()


def seed_in_which(kind: str, order: str, *faults: Fault) -> int:
    """A seed in which the first attempts for an order meet exactly these faults."""
    return next(
        seed
        for seed in count()
        if [payment_behaviour(seed, kind, order, n + 1).fault for n in range(len(faults))] == list(faults)
    )


@contextmanager
def worker(outside: Outside) -> Iterator[None]:
    """A naive worker that is killed on the way out."""
    argv = [sys.executable, "-m", "milepost.cli.demo.naive", "--folder", str(outside.folder)]
    argv += ["--seed", str(outside.seed), "--payments-port", str(outside.payments_port)]
    process = subprocess.Popen([*argv, "--mail-port", str(outside.mail_port)])
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def has_applied(outside: Outside, times: int) -> bool:
    return len(outside.applied()) >= times


def test_a_retry_after_a_lost_answer_makes_a_second_voucher(tmp_path: Path) -> None:
    ticket = next(ticket for ticket in TICKETS if ticket.label == "voucher")
    seed = seed_in_which("voucher", ticket.order, Fault.LOST_ANSWER, Fault.NONE)

    with Outside(tmp_path, seed) as outside, Payments(outside.payments_port) as payments:
        NaiveDesk(tmp_path, payments, outside.mail_port, seed).work([ticket])
        tally = tally_of([ticket], outside.applied(), outside.mails())

    assert (tally.line("voucher").applied, tally.line("voucher").duplicates) == (2, 1)


def test_a_worker_killed_after_a_refund_sends_it_again_when_restarted(tmp_path: Path) -> None:
    ticket = TICKETS[0]
    seed = next(  # in which the first answer comes late, so that the worker dies before it hears it
        seed
        for seed in count()
        if payment_behaviour(seed, "refund", ticket.order, 1).fault is Fault.NONE
        and payment_behaviour(seed, "refund", ticket.order, 1).after_ms > 350
        and payment_behaviour(seed, "refund", ticket.order, 2).fault is Fault.NONE
    )

    with Outside(tmp_path, seed) as outside:
        for times in (1, 2):
            with worker(outside):
                eventually(partial(has_applied, outside, times))
        applied = outside.applied()

    assert [(row.order, row.cents) for row in applied] == [(ticket.order, ticket.cents)] * 2


def test_a_finished_ticket_is_not_done_again(tmp_path: Path) -> None:
    ticket = next(ticket for ticket in TICKETS if ticket.label == "refuse")

    with Outside(tmp_path, 1) as outside, Payments(outside.payments_port) as payments:
        for _ in range(2):
            NaiveDesk(tmp_path, payments, outside.mail_port, 1).work([ticket])
        sent = len(outside.mails())

    assert (tmp_path / "done.txt").read_text().split() == [ticket.id]
    assert sent == 1


def test_the_steps_of_the_desk_are_one_reading_one_mail_and_the_money_of_each_ticket() -> None:
    assert steps_of(TICKETS) == 2 * len(TICKETS) + sum(t.label in {"refund", "voucher"} for t in TICKETS)

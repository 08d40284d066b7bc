"""The desk as it is often written: a loop, plain retries, and a file of finished tickets.

It is not a straw man. It retries what failed, it sends an idempotency key and keeps it through the retries of a call,
and after a crash it skips the tickets that it finished. What it lacks is a record of what it began. The key lives in
memory and dies with the process; a ticket that was half done is done again from its first line; a lost answer and a
failure look the same. `python -m milepost.cli.demo.naive` is its worker.
"""

import argparse
import smtplib
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from milepost.cli.demo.clients import Payments, connect_mail, letter
from milepost.cli.demo.killer import Killer, Plan, Report
from milepost.cli.demo.model import Verdict, decide, thinking_ms
from milepost.cli.demo.outside import Outside
from milepost.cli.demo.tickets import Ticket, load_tickets

_TRIES = 6
_PAUSE_SECONDS = 0.05
_BEGUN = " sending "
_STEP_WORDS = (" read ", " sent ")


class NaiveDesk:
    """The loop. `folder` holds its file of finished tickets and its log."""

    def __init__(self, folder: Path, payments: Payments, mail_port: int, seed: int) -> None:
        self._done_file = folder / "done.txt"
        self._log_file = _log_file(folder)
        self._payments = payments
        self._mail_port = mail_port
        self._seed = seed

    def work(self, tickets: Sequence[Ticket]) -> None:
        """Do every ticket that is not in the file of finished ones."""
        done = set(self._done_file.read_text().split()) if self._done_file.exists() else set()
        for ticket in tickets:
            if ticket.id not in done:
                self._do(ticket)
                _append(self._done_file, ticket.id)

    def _do(self, ticket: Ticket) -> None:
        time.sleep(thinking_ms(ticket.text, self._seed) / 1_000)
        verdict = decide(ticket.text, ticket.customer, self._seed)
        self._say(f"{ticket.id} read {verdict.action}")
        if verdict.action == "refund":
            key = str(uuid.uuid4())
            self._retry(ticket, "refund", lambda: self._payments.refund(ticket.order, ticket.cents, key=key))
        elif verdict.action == "voucher":
            self._retry(ticket, "voucher", lambda: self._payments.voucher(ticket.order, ticket.cents))
        self._retry(ticket, "mail", lambda: self._mail(ticket, verdict))

    def _mail(self, ticket: Ticket, verdict: Verdict) -> None:
        with connect_mail(self._mail_port) as smtp:
            smtp.send_message(letter(ticket, verdict.reply))

    def _retry(self, ticket: Ticket, what: str, send: Callable[[], object]) -> None:
        for attempt in range(1, _TRIES + 1):
            self._say(f"{ticket.id}{_BEGUN}{what} {attempt}")
            try:
                send()
            except (httpx.HTTPError, smtplib.SMTPException, OSError) as error:
                self._say(f"{ticket.id} failed {what}: {error!r}")
                if attempt == _TRIES:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                self._say(f"{ticket.id} sent {what} {attempt}")
                return

    def _say(self, line: str) -> None:
        _append(self._log_file, line)


def steps_of(tickets: Sequence[Ticket]) -> int:
    """How many steps the whole desk has: a ticket is read and answered, and some move money in between."""
    return sum(3 if ticket.label in {"refund", "voucher"} else 2 for ticket in tickets)


def steps_done(folder: Path) -> int:
    """How many steps the log of the desk in `folder` holds; one that was done again counts again."""
    return sum(any(word in line for word in _STEP_WORDS) for line in _lines(_log_file(folder)))


def run_naive(outside: Outside, plan: Plan, tickets: int, on_look: Callable[[Report], None] = lambda _: None) -> Report:
    """Run the naive desk's worker over the first tickets under the killer, in the folder of the outside world."""
    log_file = _log_file(outside.folder)
    argv = [sys.executable, "-m", "milepost.cli.demo.naive"]
    argv += ["--folder", str(outside.folder), "--seed", str(outside.seed)]
    argv += ["--payments-port", str(outside.payments_port), "--mail-port", str(outside.mail_port)]
    argv += ["--tickets", str(tickets)]
    return Killer(
        argv,
        plan,
        progress=lambda: steps_done(outside.folder),
        in_flight=lambda: _in_flight(_lines(log_file)),
        log=outside.folder / "naive-worker.log",
        on_look=on_look,
    ).run()


def _log_file(folder: Path) -> Path:
    return folder / "naive.log"


def _in_flight(lines: Sequence[str]) -> list[str]:
    return [f"line {len(lines)}"] if lines and _BEGUN in lines[-1] else []


def _append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def main(argv: Sequence[str] | None = None) -> None:
    """Work through the tickets once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--payments-port", type=int, required=True)
    parser.add_argument("--mail-port", type=int, required=True)
    parser.add_argument("--tickets", type=int)
    options = parser.parse_args(argv)
    with Payments(options.payments_port) as payments:
        NaiveDesk(options.folder, payments, options.mail_port, options.seed).work(load_tickets()[: options.tickets])


if __name__ == "__main__":
    main()

"""Runs one demo: the outside world, a desk under the killer, and the count of what truly happened."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from milepost.cli.demo.desk import steps_of
from milepost.cli.demo.desk_record import DeskRecord
from milepost.cli.demo.desk_worker import arguments
from milepost.cli.demo.failure import NoDemoHere
from milepost.cli.demo.killer import Killer, Plan, Report
from milepost.cli.demo.ledgers import crm_notes
from milepost.cli.demo.naive import run_naive
from milepost.cli.demo.naive import steps_of as naive_steps_of
from milepost.cli.demo.outcome import Outcome
from milepost.cli.demo.outside import Outside
from milepost.cli.demo.tally import count
from milepost.cli.demo.tickets import load_tickets

OnLook = Callable[[Report], None]


class Setting(msgspec.Struct, frozen=True):
    """What is played: the first `tickets` of the shipped ones, by the Milepost desk or the `naive` one."""

    seed: int
    tickets: int
    kills: int = 20
    on_effect: int = 10
    naive: bool = False

    def plan(self, *, unkilled: bool = False) -> Plan:
        """How the worker is to be killed, paced over the steps of the tickets."""
        tickets = load_tickets()[: self.tickets]
        steps = naive_steps_of(tickets) if self.naive else sum(map(steps_of, tickets))
        kills, on_effect = (0, 0) if unkilled else (self.kills, self.on_effect)
        return Plan(self.seed, steps, kills=kills, on_effect=on_effect, most_kills=2 * kills)


def begin(folder: Path, setting: Setting) -> None:
    """Make the folder of a demo. Raises NoDemoHere when it holds something already."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise NoDemoHere(folder, "is not empty", "name a folder that does not exist yet")
    _setting_file(folder).write_bytes(msgspec.json.encode(setting))


def setting_of(folder: Path) -> Setting:
    """The setting of an earlier demo of the Milepost desk. Raises NoDemoHere when the folder holds none."""
    hint = "name the folder that an earlier demo printed"
    try:
        setting = msgspec.json.decode(_setting_file(folder).read_bytes(), type=Setting)
    except (OSError, msgspec.DecodeError) as error:
        raise NoDemoHere(folder, "holds no earlier demo", hint) from error
    if setting.naive:
        raise NoDemoHere(folder, "holds the naive desk, which has nothing to go on from", hint)
    return setting


def play(folder: Path, setting: Setting, plan: Plan, on_look: OnLook = lambda _: None) -> Outcome:
    """Run the desk to its end and count. Raises DemoFailed when a part of it does not start or does not end."""
    tickets = load_tickets()[: setting.tickets]
    with ExitStack() as running:
        outside = running.enter_context(Outside(folder, setting.seed))
        if setting.naive:
            report, record, notes = run_naive(outside, plan, len(tickets), on_look), None, None
        else:
            desk = running.enter_context(DeskRecord(folder / "desk.db"))
            report = _run_desk(outside, desk, plan, len(tickets), on_look)
            record, notes = desk.read(), crm_notes(folder / "desk.db")
        waiting = {held.ticket: held.kind for held in record.held} if record is not None else {}
        tally = count(tickets, outside.applied(), outside.mails(), notes, waiting=waiting)
        return Outcome(folder, len(tickets), plan, report, tally, outside.faults_met(), record)


def _run_desk(outside: Outside, desk: DeskRecord, plan: Plan, tickets: int, on_look: OnLook) -> Report:
    ports = (outside.payments_port, outside.mail_port)
    options = arguments(outside.folder / "desk.db", outside.seed, ports, tickets)
    return Killer(
        [sys.executable, "-m", "milepost.cli.demo.desk_worker", *options],
        plan,
        progress=desk.begun,
        in_flight=desk.in_flight,
        log=outside.folder / "desk-worker.log",
        worth=_moves_money,
        on_look=on_look,
    ).run()


def _moves_money(attempt: str) -> bool:
    # A mail that is hit costs a person: enough of them are hit by chance.
    return not attempt.startswith("send_mail ")


def _setting_file(folder: Path) -> Path:
    return folder / "demo.json"

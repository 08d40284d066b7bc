"""What the demo prints at its end. Pure but for rich: figures in, tables and lines out."""

from collections.abc import Iterator, Mapping

from rich.box import ROUNDED
from rich.table import Table

from milepost.cli.demo.desk_record import Held
from milepost.cli.demo.outcome import Outcome
from milepost.cli.demo.tally import Tally

_NAMES = {"refund": "refunds", "voucher": "vouchers", "note": "CRM notes", "mail": "mails"}
_ID_LENGTH = 8  # characters of a run's id; the command line takes any beginning that names one run


def outside_table(tally: Tally) -> Table:
    """What the outside ledgers say, one line for each kind of effect."""
    table = Table(title="Counted in the ledgers of the outside world", title_justify="left", box=ROUNDED)
    table.add_column("effect")
    for column in ("expected", "applied", "duplicates", "lost", "waiting", "wrong"):
        table.add_column(column, justify="right")
    for line in tally.lines:
        figures = (line.expected, line.applied, line.duplicates, line.lost, line.waiting, line.wrong)
        table.add_row(_NAMES[line.what], *map(str, figures))
    return table


def worker_table(outcome: Outcome) -> Table:
    """What the worker went through, and what the outside did to it."""
    report, record = outcome.report, outcome.record
    table = Table(show_header=False, box=ROUNDED)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("tickets", str(outcome.tickets))
    table.add_row("the worker was killed by SIGKILL", str(len(report.kills)))
    table.add_row("… while an effect was in flight", str(report.on_effect))
    table.add_row("restarts", str(report.restarts))
    if outcome.first_step is not None:
        longest = max(report.first_steps)
        table.add_row("restart to first new step, median (longest)", f"{outcome.first_step:.2f} s ({longest:.2f} s)")
    table.add_row("answers lost, or an error after the money moved", _sum(outcome.faults, "lost_answer", "error_after"))
    table.add_row("errors before the money moved", _sum(outcome.faults, "error_before", "busy"))
    if record is not None:
        table.add_row("outcomes that nobody knew for a while", str(record.unknown))
        table.add_row("… reconciled without a person", str(record.reconciled))
        mails = [outcome.arrived(held) for held in record.held if held.kind == "mail"]
        table.add_row("mails waiting for a person", f"{len(mails)} ({sum(mails)} arrived)" if mails else "0")
    table.add_row("seconds", f"{report.seconds:.1f}")
    return table


def decisions(outcome: Outcome) -> Iterator[str]:
    """What waits for a person, each with the commands to look at it and to settle it: lines that a shell can take."""
    if outcome.record is None or not outcome.record.held:
        return
    yield "# Nobody can ask a mail server what became of a mail: these wait for you. Its ledger is your mailbox here."
    yield f"export MILEPOST_STORE={outcome.store.resolve()}"
    for held in sorted(outcome.record.held, key=lambda held: held.ticket):
        run, arrived = held.run[:_ID_LENGTH], outcome.arrived(held)
        yield f"milepost show {run}  # {held.ticket}: the {held.kind} {'arrived' if arrived else 'never arrived'}"
        yield f"milepost resolve {run} {held.path} {_word(held, arrived=arrived)}"
    yield "# Then let the desk go on:"
    yield f"milepost demo --finish {outcome.folder}"


def _word(held: Held, *, arrived: bool) -> str:
    if not arrived:
        return f"--did-not-happen --why 'no such {held.kind}'"
    return f"--happened {'null' if held.kind == 'mail' else 'VALUE'} --why 'found it'"


def _sum(faults: Mapping[str, int], *names: str) -> str:
    return str(sum(faults.get(name, 0) for name in names))

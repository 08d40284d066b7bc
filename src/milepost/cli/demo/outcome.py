"""What came of one demo, and whether it showed what it was to show. Pure: figures in, sentences out."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from milepost.cli.demo.desk_record import Held, Record
from milepost.cli.demo.killer import Plan, Report
from milepost.cli.demo.tally import Tally


@dataclass(frozen=True)
class Outcome:
    """One demo at its end. `record` is None for the naive desk, which keeps none; `faults` are counted by name."""

    folder: Path
    tickets: int
    plan: Plan
    report: Report
    tally: Tally
    faults: Mapping[str, int]
    record: Record | None = None

    @property
    def store(self) -> Path:
        """The file of the desk's runs."""
        return self.folder / "desk.db"

    @property
    def first_step(self) -> float | None:
        """The median of the seconds from a restart to the first new step; None when no restart got so far."""
        return median(self.report.first_steps) if self.report.first_steps else None

    def arrived(self, held: Held) -> bool:
        """Whether the outside world has what waits for a person."""
        return held.ticket in self.tally.line(held.kind).seen

    def problems(self) -> list[str]:
        """All that contradicts what the demo claims: empty when it holds."""
        tally, report, plan, record = self.tally, self.report, self.plan, self.record
        short = [
            f"{made} {what} instead of {planned}"
            for what, made, planned in (
                ("kills", len(report.kills), plan.kills),
                ("kills on an effect in flight", report.on_effect, plan.on_effect),
            )
            if made < planned
        ]
        counted = [("duplicates", tally.duplicates), ("lost", tally.lost), ("wrong", tally.wrong)]
        if record is not None:
            counted += [
                ("runs that are neither done nor wait for a person", len(record.stuck)),
                ("effects besides mails that wait for a person", sum(held.kind != "mail" for held in record.held)),
                ("runs whose record does not verify", len(record.damaged)),
                ("effects of which the record and the ledgers tell different stories", self._disagreements(record)),
            ]
        return [*(f"{number} {what}" for what, number in counted if number), *short]

    def _disagreements(self, record: Record) -> int:
        """How many effects the record says happened and the ledgers do not know."""
        known = {line.what: line.seen for line in self.tally.lines}
        return sum(len(tickets - known[kind]) for kind, tickets in record.done.items())

    def as_data(self) -> dict[str, Any]:
        """The figures as JSON shows them. Times are in seconds."""
        report, record = self.report, self.record
        data: dict[str, Any] = {
            "seed": self.plan.seed,
            "folder": str(self.folder),
            "tickets": self.tickets,
            "effects": {line.what: _figures(asdict(line)) for line in self.tally.lines},
            "duplicates": self.tally.duplicates,
            "lost": self.tally.lost,
            "wrong": self.tally.wrong,
            "kills": len(report.kills),
            "kills_on_effect": report.on_effect,
            "restarts": report.restarts,
            "restart_to_first_step": {"median": self.first_step, "longest": max(report.first_steps, default=None)},
            "faults": dict(self.faults),
            "seconds": report.seconds,
            "problems": self.problems(),
        }
        if record is not None:
            data["unknown"] = {"met": record.unknown, "reconciled": record.reconciled}
            data["waiting_for_a_person"] = [asdict(held) | {"arrived": self.arrived(held)} for held in record.held]
        return data


def _figures(line: dict[str, Any]) -> dict[str, int]:
    return {name: value for name, value in line.items() if isinstance(value, int)}

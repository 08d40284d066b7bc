"""What the operations of a batch are going to ask, asked for all of them at once, behind the batch's locks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from milepost.stores.api import Append, Claim, Create, Deliver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milepost.stores.api import Operation
    from milepost.stores.postgres.batching import WireStatements
    from milepost.stores.postgres.wire import Wire


@dataclass(slots=True)
class Foreseen:
    """Questions that were sent, and whom they are about."""

    ids: list[str] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)
    keys: list[tuple[int, str]] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=dict)

    def ask(self, wire: Wire, operations: Sequence[Operation]) -> None:
        """Send what can be foreseen; nothing for a batch of plain appends."""
        for operation in operations:
            match operation:
                case Create(run=run) if "\0" in run.id + (run.key or ""):
                    pass  # its key is not stored as it is written
                case Append():
                    self.runs.append(operation.head.run)
                    self.ids.extend(post.run_id for post in operation.posts)  # who is cancelled tells its children
                case Claim(run_id=run_id):
                    self.ids.append(run_id)
                case Deliver(post=post):
                    self.ids.append(post.run_id)
                case Create(run=run):
                    self.fresh.append(run.id)
                    if run.key is not None:
                        self.keys.append((int(run.attached), run.key))
                    if run.parent is not None:
                        self.ids.append(run.parent)
                case _:
                    pass
        if not self.ids and not self.fresh:
            return
        about = [*dict.fromkeys([*self.ids, *self.fresh])]
        self.sent["foresee_runs"] = wire.send("foresee_runs", (self.runs, about))
        if self.fresh:
            attached, keys = [at for at, _ in self.keys], [key for _, key in self.keys]
            self.sent["foresee_keys"] = wire.send("foresee_keys", (attached, keys))
            self.sent["foresee_pruned"] = wire.send("foresee_pruned", (self.fresh, attached, keys))
            self.sent["foresee_numbers"] = wire.send("foresee_numbers", (len(self.fresh),))

    def tell(self, wire: Wire, sql: WireStatements) -> None:
        """Take the answers, and let the batch find them."""
        answers: dict[str, list[tuple[Any, ...]]] = {
            name: wire.rows(name, number) for name, number in self.sent.items()
        }
        if not answers:
            return
        known = sql.known
        for id_ in (*self.ids, *self.fresh):
            known["run_number", (id_,)] = []
        for id_, run, owner, status, *head in answers["foresee_runs"]:
            known["run_number", (id_,)] = [(run,)]
            known["owner_of", (run,)] = [(owner, status)]
            known["head_of", (run,)] = [tuple(head)]
        if self.fresh:
            for key in self.keys:
                known["run_by_key", key] = []
            for attached, key, *found in answers["foresee_keys"]:
                known["run_by_key", (attached, key)] = [tuple(found)]
            if not answers["foresee_pruned"]:
                known.update({("pruned_of", (id_,)): [] for id_ in self.fresh})
                known.update({("pruned_key", key): [] for key in self.keys})
            sql.numbers = [number for (number,) in reversed(answers["foresee_numbers"])]

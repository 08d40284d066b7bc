"""The workload of the power cuts: one effect of every class, two arms, an approval and a boundary between them.

The outside world keeps its ledger in memory: the power that goes is not its own.
"""

from collections.abc import Callable

import msgspec

import milepost as mp
from milepost.operations.inspection import Inspector
from milepost.operations.verbs import Operator
from milepost.runtime import starting
from milepost.testing.check import Applied
from tests.faults.simulated import MortalStore, Process, now

ENDED = frozenset({"done", "failed", "cancelled", "killed", "blocked"})
LOOKS = 60
LOOK_MS = 500


class Outside:
    """Everybody that Milepost talks to, with a ledger of what was applied. `on_applied` hears of each new line."""

    def __init__(
        self, ledger: list[Applied] | None = None, on_applied: Callable[[Applied], None] | None = None
    ) -> None:
        self.ledger = list(ledger or [])
        self._on_applied = on_applied

    def apply(self, tool: str, call: mp.Call, args: dict[str, object], *, known_by_key: bool = False) -> None:
        """Apply an effect; where it is `known_by_key`, the same key is applied once."""
        if known_by_key and any((line.tool, line.key) == (tool, call.key) for line in self.ledger):
            return
        line = Applied(tool, call.key, call.attempt, 0, args)
        self.ledger.append(line)
        if self._on_applied is not None:
            self._on_applied(line)

    def find(self, tool: str, args: dict[str, object]) -> list[Applied]:
        """Return what was applied by a tool with these arguments."""
        return [line for line in self.ledger if line.tool == tool and line.args == args]


@mp.tool(effect="read")
async def look(case: str) -> str:
    return f"{case} looks fine"


@mp.tool(effect="read", cost={"tokens": 10})
async def ask(call: mp.Call, text: str) -> str:
    call.resource(Outside).apply("ask", call, {"text": text})
    call.spent(tokens=7)
    return "yes " * 500


@mp.tool(effect="keyed", key_ttl="24h", cost={"usd": 5}, once="order")
async def charge(call: mp.Call, order: str) -> str:
    call.resource(Outside).apply("charge", call, {"order": order}, known_by_key=True)
    return f"receipt for {order}"


@mp.tool(effect="queryable", visible_within="1s")
async def ship(call: mp.Call, parcel: str) -> str:
    call.resource(Outside).apply("ship", call, {"parcel": parcel})
    return f"{parcel} is on its way"


@ship.reconcile
async def _shipped(call: mp.Call, parcel: str) -> mp.Finding[str]:
    found = call.resource(Outside).find("ship", {"parcel": parcel})
    if len(found) > 1:
        return mp.conflict(f"{len(found)} parcels")
    return mp.happened(f"{parcel} is on its way") if found else mp.did_not_happen()


@mp.tool(effect="absolute")
async def publish(call: mp.Call, page: str, if_version: int) -> str:
    outside = call.resource(Outside)
    version = len([line for line in outside.ledger if line.tool == "publish" and (line.args or {})["page"] == page])
    if version != if_version:
        raise mp.Rejected(f"the page has version {version}")
    outside.apply("publish", call, {"page": page, "if_version": if_version})
    return f"{page}@{if_version + 1}"


@publish.reconcile
async def _published(call: mp.Call, page: str, if_version: int) -> mp.Finding[str]:
    found = call.resource(Outside).find("publish", {"page": page, "if_version": if_version})
    return mp.happened(f"{page}@{if_version + 1}") if found else mp.did_not_happen()


@mp.tool(effect="transactional")
def enter(tx: mp.Tx, text: str) -> int:
    tx.execute("CREATE TABLE IF NOT EXISTS book (text TEXT)")
    tx.execute("INSERT INTO book VALUES (?)", (text,))
    return int(tx.execute("SELECT count(*) FROM book")[0][0])


@mp.tool(approval=True)
async def mail(call: mp.Call, to: str) -> None:
    call.resource(Outside).apply("mail", call, {"to": to})


errands = mp.Workflow(
    "errands", version="1", input=str, result=list, tools=[look, ask, charge, ship, publish, enter, mail]
)


@errands.segment
async def errand_out(run: mp.Run, case: str) -> mp.Next[list[str]]:
    answer = await ask(await look(case))
    receipt, sent = await run.gather(charge(case), ship(case))
    return mp.go(errand_back, [case, answer, receipt, sent])


@errands.segment
async def errand_back(run: mp.Run, so_far: list[str]) -> mp.Next[list[str]]:
    page = await publish(so_far[0], 0)
    await enter(so_far[0])
    await mail(so_far[0])
    return mp.done([*so_far, page])


def result_of(case: str) -> list[str]:
    return [case, "yes " * 500, f"receipt for {case}", f"{case} is on its way", f"{case}@1"]


def applied_by(case: str) -> list[tuple[str, dict[str, object]]]:
    """Return what must have been applied for a case, each once."""
    once: list[tuple[str, dict[str, object]]] = [
        ("charge", {"order": case}),
        ("enter", {"text": case}),
        ("mail", {"to": case}),
        ("publish", {"page": case, "if_version": 0}),
        ("ship", {"parcel": case}),
    ]
    return once


def entered(store: MortalStore) -> list[Applied]:
    """Return what the transactional tool left in the store: the ledger of an effect that has no outside."""
    reader = store._reader
    if not reader.execute("SELECT 1 FROM sqlite_schema WHERE name = 'book'").fetchall():
        return []
    return [Applied("enter", args={"text": text}) for (text,) in reader.execute("SELECT text FROM book").fetchall()]


def begin(process: Process, case: str) -> str:
    """Start the errands of a case, or find the run that was started."""
    return process.start(errands, case, key=case, budget={"usd": 10, "tokens": 20})


def drive(process: Process, run_id: str, outside: Outside, *, until: frozenset[str] = ENDED) -> str:
    """Let the process run until the run has a status that is wanted; play the operator meanwhile."""
    for _ in range(LOOKS):
        process.lasts(LOOK_MS)
        row = now(process.store.run(run_id))
        if row.status in until and row.owner is None:
            return row.status
        if row.status == "parked":
            _serve(process, run_id, outside)
    return now(process.store.run(run_id)).status


def _serve(process: Process, run_id: str, outside: Outside) -> None:
    operator = Operator(process.store, process.write, process.time.now)
    for approval in now(process.store.approvals("", "asked")):
        process.do(operator.approve(approval.id, by="bea"))
    for effect in now(Inspector(process.store).effects(run_id)):
        if effect.outcome == "unknown" and effect.person:
            found = outside.find(effect.tool, effect.args)
            finding: mp.Finding[None] = mp.happened(None) if found else mp.did_not_happen()
            process.do(operator.resolve(run_id, effect.path, finding, by="ann", why="looked into the ledger"))


def result(process: Process, run_id: str) -> object:
    """Return the recorded result of a run that is done."""
    return msgspec.json.decode(now(starting.ended(process.engine, run_id)))

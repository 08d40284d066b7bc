"""The workload of the crash tests: one effect of every class, arms, a sleep, a signal, a child and an approval.

`python -m tests.crash.desk` starts the run, or finds it, and drives it to its end, in the folder that CRASH_FOLDER
names. It also plays the operator, who approves, sends the signal, and settles what only a person can settle by looking
into the outside ledger. So each line that is ever appended to the run is appended by a process that a test kills. It
prints the run's result.
"""

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import milepost as mp
from milepost.stores.api import RunRow
from tests.crash.world import Refused, World, here, point

WORLD = World()
PAUSE_S = 0.01
ELSEWHERE = "store.url"


@mp.tool(effect="read")
async def look(case: str) -> str:
    point("look", "before")
    return f"case {case}"


@mp.tool(effect="read", cost={"tokens": 10})
async def ask(call: mp.Call, text: str) -> str:
    point("ask", "before", call.attempt)
    WORLD.apply("ask", call.key, call.attempt, {"text": text})
    point("ask", "applied", call.attempt)
    call.spent(tokens=7)
    point("ask", "return", call.attempt)
    return f"answer to {text}"


@mp.tool(effect="keyed", key_ttl="24h", scopes=["pay"], once="order", cost={"usd": 5})
async def charge(call: mp.Call, order: str, cents: int) -> str:
    point(f"charge {order}", "before", call.attempt)
    await asyncio.sleep(0)
    WORLD.apply("charge", call.key, call.attempt, {"order": order, "cents": cents}, known_by_key=True)
    point(f"charge {order}", "applied", call.attempt)
    call.note(f"ch-{order}")
    await asyncio.sleep(0)
    point(f"charge {order}", "return", call.attempt)
    return f"receipt for {order}"


@mp.tool(effect="absolute")
def publish(call: mp.Call, page: str, text: str, if_version: int) -> str:
    point("publish", "before", call.attempt)
    try:
        args = {"page": page, "text": text, "if_version": if_version}
        WORLD.put("publish", call.key, call.attempt, args, if_version=if_version)
    except Refused as refused:
        raise mp.Rejected(str(refused)) from refused
    point("publish", "applied", call.attempt)
    point("publish", "return", call.attempt)
    return f"{page}@{if_version + 1}"


@publish.reconcile
def _published(page: str, text: str, if_version: int) -> mp.Finding[str]:
    point("publish", "reconcile")
    found = WORLD.find("publish", page=page, text=text, if_version=if_version)
    point("publish", "reconciled")
    return mp.happened(f"{page}@{if_version + 1}") if found else mp.did_not_happen()


@mp.tool(effect="queryable", visible_within="0s")
def ship(call: mp.Call, parcel: str) -> str:
    point(f"ship {parcel}", "before", call.attempt)
    WORLD.apply("ship", call.key, call.attempt, {"parcel": parcel})
    point(f"ship {parcel}", "applied", call.attempt)
    point(f"ship {parcel}", "return", call.attempt)
    return f"{parcel} is on its way"


@ship.reconcile
async def _shipped(call: mp.Call, parcel: str) -> mp.Finding[str]:
    point(f"ship {parcel}", "reconcile", call.attempt)
    found = WORLD.find("ship", parcel=parcel)
    point(f"ship {parcel}", "reconciled", call.attempt)
    if len(found) > 1:
        return mp.conflict(found)
    return mp.happened(f"{parcel} is on its way") if found else mp.did_not_happen()


@mp.tool(effect="transactional")
def note(tx: mp.Tx, text: str) -> int:
    point("note", "before")
    tx.execute("CREATE TABLE IF NOT EXISTS notes (text TEXT)")
    tx.execute("INSERT INTO notes VALUES ($1)", (text,))
    point("note", "applied")
    point("note", "return")
    return int(tx.execute("SELECT count(*) FROM notes")[0][0])


@mp.tool(approval=True)
async def mail(call: mp.Call, to: str) -> None:
    point("mail", "before", call.attempt)
    WORLD.apply("mail", call.key, call.attempt, {"to": to})
    point("mail", "applied", call.attempt)
    await asyncio.sleep(0)
    point("mail", "return", call.attempt)


@mp.workflow(version="1", tools=[ship])
async def parcels(run: mp.Run, parcel: str) -> str:
    return await ship(parcel)


desk = mp.Workflow(
    "desk", version="1", input=str, result=dict[str, Any], tools=[look, ask, charge, publish, ship, note, mail]
)


@desk.segment
async def triage(run: mp.Run, case: str) -> mp.Next[dict[str, Any]]:
    text = await look(case)
    answer = await ask(text)
    first, second = await run.gather(ship("one"), charge("first", 500))
    return mp.go(act, [text, answer, first, second])


@desk.segment
async def act(run: mp.Run, so_far: list[str]) -> mp.Next[dict[str, Any]]:
    charged = await charge("second", 700)
    page = await publish("status", "in work", 0)
    await run.sleep("30ms")
    word = await run.receive("go", str)
    child = await run.start(parcels, "two")
    return mp.go(close, [*so_far, charged, page, word, await child.result()])


@desk.segment
async def close(run: mp.Run, so_far: list[str]) -> mp.Next[dict[str, Any]]:
    written = await note("closed")
    await mail("ann@example.test")
    return mp.done({"so_far": so_far, "notes": written})


EXPECTED = {
    "so_far": [
        "case 1",
        "answer to case 1",
        "one is on its way",
        "receipt for first",
        "receipt for second",
        "status@1",
        "yes",
        "two is on its way",
    ],
    "notes": 1,
}
APPLIED = [
    ("charge", {"order": "first", "cents": 500}),
    ("charge", {"order": "second", "cents": 700}),
    ("mail", {"to": "ann@example.test"}),
    ("publish", {"page": "status", "text": "in work", "if_version": 0}),
    ("ship", {"parcel": "one"}),
    ("ship", {"parcel": "two"}),
]


def store_of(folder: Path) -> str:
    """Return the URL of the store: the one that the folder names, else a file in it."""
    named = folder / ELSEWHERE
    return named.read_text() if named.exists() else f"sqlite:///{folder}/store.db"


def app_of(folder: Path, **options: object) -> mp.App:
    return mp.App(store_of(folder), workflows=[desk, parcels], **options)  # type: ignore[arg-type]


async def operate(app: mp.App, run_id: str) -> None:
    """Play the operator until the run ends: approve, send, and settle what only a person can, by the outside ledger."""
    while True:
        row = await app.inspect.detail(run_id)
        if row.row.status in {"done", "failed", "cancelled", "killed", "blocked"}:
            return
        await _serve(app, run_id, row.row)
        await asyncio.sleep(PAUSE_S)


async def _serve(app: mp.App, run_id: str, row: RunRow) -> None:
    if row.status != "parked" or row.owner is not None:
        return
    if row.reason == "signal":
        await app.send(run_id, "go", "yes", id="once")
    for approval in await app.inspect.approvals("asked"):
        with contextlib.suppress(mp.UnknownApproval):  # answered before, and not taken yet
            await app.approve(approval.id, by="ann")
    for effect in await app.inspect.open_effects(run_id):
        if effect.outcome == "unknown" and effect.person:
            happened = WORLD.find("mail", to="ann@example.test")
            finding = mp.happened(None) if happened else mp.did_not_happen()
            await app.resolve(run_id, effect.path, finding, by="ann", why="looked into the ledger")


async def main() -> None:
    async with app_of(here()) as app:
        authority = mp.Authority("desk", scopes={"pay"})
        handle = await app.start(desk, "1", key="case-1", authority=authority, budget={"usd": 10, "tokens": 30})
        operator = asyncio.create_task(operate(app, handle.id))
        ended = asyncio.create_task(handle.result(timeout="60s"))
        await asyncio.wait([operator, ended], return_when=asyncio.FIRST_COMPLETED)
        if operator.done():
            operator.result()
        sys.stdout.write(json.dumps(await ended))
        operator.cancel()


if __name__ == "__main__":
    asyncio.run(main())

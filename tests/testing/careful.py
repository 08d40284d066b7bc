"""A workflow declared as its world behaves: each class of effect, arms, a sleep, a signal, a child, an approval."""

import milepost as mp
from milepost.testing import Applied
from tests.testing.books import Refused, book, finding


@mp.tool(effect="read")
async def look(order: str) -> int:
    return len(order) * 100


@mp.tool(effect="read", cost={"tokens": 10})
async def ask(call: mp.Call, order: str) -> str:
    book(call).write("ask", call.key, order=order)
    return "refund it"


@mp.tool(effect="keyed", key_ttl="24h", once="order", scopes=["pay"], approval=True)
def charge(call: mp.Call, order: str, cents: int) -> str:
    book(call).once("charge", call.key, order=order, cents=cents)
    return f"{cents} for {order}"


@mp.tool(effect="absolute")
def publish(call: mp.Call, page: str, if_version: int) -> str:
    try:
        put(call, page, if_version)
    except Refused as refused:
        raise mp.Rejected(str(refused)) from refused
    return f"{page}@{if_version + 1}"


def put(call: mp.Call, page: str, if_version: int) -> None:
    if sum(line.tool == "publish" for line in book(call).applied()) != if_version:
        raise Refused(page)
    book(call).write("publish", call.key, page=page, if_version=if_version)


@publish.reconcile
def _published(call: mp.Call, page: str, if_version: int) -> mp.Finding[str]:
    found = book(call).find("publish", page=page, if_version=if_version)
    return finding(found, lambda: f"{page}@{if_version + 1}")


@mp.tool(effect="queryable", visible_within="30s")
async def ship(call: mp.Call, parcel: str) -> str:
    book(call).write("ship", call.key, parcel=parcel)
    return f"{parcel} is on its way"


@ship.reconcile
async def _shipped(call: mp.Call, parcel: str) -> mp.Finding[str]:
    found: list[Applied] = [line for line in book(call).applied() if line.key == call.key]
    return finding(found, lambda: f"{parcel} is on its way")


@mp.tool(effect="transactional")
def note(tx: mp.Tx, text: str) -> int:
    tx.execute("CREATE TABLE IF NOT EXISTS notes (text TEXT)")
    tx.execute("INSERT INTO notes VALUES (?)", (text,))
    return int(tx.execute("SELECT count(*) FROM notes")[0][0])


@mp.tool
async def mail(call: mp.Call, to: str) -> None:
    book(call).write("mail", call.key, to=to)


@mp.workflow(version="1", tools=[ship])
async def parcels(run: mp.Run, parcel: str) -> str:
    return await ship(parcel)


desk = mp.Workflow(
    "desk", version="1", input=str, result=list[str], tools=[look, ask, charge, publish, ship, note, mail]
)


@desk.segment
async def triage(run: mp.Run, order: str) -> mp.Next[list[str]]:
    cents = await look(order)
    answer = await ask(order)
    sent, charged = await run.gather(ship(order), charge(order, cents))
    return mp.go(tell, [answer, sent, charged])


@desk.segment
async def tell(run: mp.Run, so_far: list[str]) -> mp.Next[list[str]]:
    page = await publish("status", 0)
    await run.sleep("30d")
    word = await run.receive("word", str)
    child = await run.start(parcels, "second")
    noted = await note("closed")
    await mail("ann@example.test")
    return mp.done([*so_far, page, word, await child.result(), str(noted)])

"""A program with an App, for the tests of the command line. Each test has a copy of it in a folder of its own."""

import os
import threading
from decimal import Decimal
from pathlib import Path

import milepost as mp

LEDGER = Path("ledger.txt")  # the outside world
HANGS = threading.Event()  # never set: whoever waits for it hangs


def written(line: str) -> bool:
    return LEDGER.exists() and line in LEDGER.read_text().splitlines()


def mended() -> bool:
    return Path("mended").exists()


@mp.tool(effect="queryable", visible_within="0s")
def charge(order: str, cents: int) -> str:
    with LEDGER.open("a") as ledger:
        ledger.write(f"{order} {cents}\n")
    if order.startswith("hangs"):
        HANGS.wait(60)
    return f"receipt for {order}"


@charge.reconcile
def find_charge(order: str, cents: int) -> mp.Finding[str]:
    return mp.happened(f"receipt for {order}") if written(f"{order} {cents}") else mp.did_not_happen()


@mp.tool(effect="queryable", visible_within="0s")
def refund(receipt: str) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(f"refund {receipt}\n")


@refund.reconcile
def find_refund(receipt: str) -> mp.Finding[None]:
    return mp.happened(None) if written(f"refund {receipt}") else mp.did_not_happen()


charge.compensate(refund)


@mp.tool
def fax(to: str) -> str | None:
    with LEDGER.open("a") as ledger:
        ledger.write(f"fax {to}\n")
    raise RuntimeError("the line dropped \x1b[31m\x07")


@mp.tool(approval=True)
def mail(to: str) -> str:
    with LEDGER.open("a") as ledger:
        ledger.write(f"mail {to}\n")
    return "sent"


@mp.tool(effect="keyed", key_ttl="24h", scopes=["payments:charge"], cost={"usd": Decimal(3)})
async def pay(order: str) -> str:
    return f"paid {order}"


pay.compensate(mail)


@mp.tool(effect="keyed", key_ttl="24h", cost={"usd": 1})
async def splurge(call: mp.Call) -> str:
    call.spent(usd=5)
    return "gone"


@mp.tool(cost={"usd": 7})
async def gamble() -> str:
    raise RuntimeError("the line dropped")


@mp.workflow(version="1", tools=[gamble])
async def gambling(run: mp.Run) -> str:
    return await gamble()


@mp.workflow(version="1", tools=[splurge])
async def splurging(run: mp.Run) -> str:
    return await splurge()


@mp.workflow(version="1", tools=[charge])
async def buy(run: mp.Run, order: str) -> str:
    return await charge(order, 500)


@mp.workflow(version="1", tools=[fax])
async def faxing(run: mp.Run, to: str) -> str | None:
    return await fax(to)


@mp.workflow(version="1", tools=[mail])
async def mailing(run: mp.Run, to: str) -> str:
    try:
        return await mail(to)
    except mp.Denied as denied:
        return f"not sent: {denied.why}"


@mp.workflow(version="1", tools=[pay])
async def paying(run: mp.Run, order: str) -> str:
    return await pay(order)


@mp.workflow(version="1")
async def listening(run: mp.Run) -> list[int]:
    return [await run.receive("go", int), await run.receive("go", int)]


@mp.workflow(version="1")
async def sleeping(run: mp.Run) -> None:
    await run.sleep("1h")


@mp.workflow(version="1", tools=[charge])
async def failing(run: mp.Run) -> str:
    receipt = await charge("before the failure", 1)
    if not mended():
        raise ValueError("it is not mended yet")
    return receipt


@mp.workflow(version="1")
async def family(run: mp.Run) -> str:
    child = await run.start(mailing, "the child")
    return await child.result()


staged = mp.Workflow("staged", version="1", input=str, result=str, tools=[charge, mail])


@staged.segment
async def first(run: mp.Run, order: str) -> mp.Next[str]:
    await charge(order, 500)
    return mp.go(second, order)


@staged.segment
async def second(run: mp.Run, order: str) -> mp.Next[str]:
    await mail(order)
    return mp.done("both")


app = mp.App(
    "sqlite:///shop.db",
    workflows=[buy, faxing, mailing, paying, splurging, gambling, listening, sleeping, failing, family, staged],
    lease=os.environ.get("SHOP_LEASE", "30s"),
)

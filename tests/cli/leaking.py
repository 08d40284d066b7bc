"""A program whose tools know a secret and tell it wherever they can: for the test that it is found nowhere."""

import os
from urllib.parse import quote

import milepost as mp

USED: list[str] = []


def told(secret: str) -> str:
    """Return what an error of a careless library says."""
    return f"POST https://me:{secret}@bank.example/pay?token={quote(secret, safe='')} said 500 (Bearer {secret})"


@mp.tool(effect="keyed", key_ttl="24h")
async def pay(call: mp.Call, order: str) -> str:
    secret = call.secret("BANK_TOKEN")
    call.note(f"order {order}")
    if call.attempt == 1:
        raise mp.NotSent(told(secret))
    return f"paid {order}"


@mp.tool(effect="queryable", visible_within="0s", retry=mp.Retry(1))
async def ship(call: mp.Call, order: str) -> str:
    raise RuntimeError(told(call.secret("BANK_TOKEN")))


@ship.reconcile
async def find(call: mp.Call, order: str) -> mp.Finding[str]:
    secret = call.secret("BANK_TOKEN")
    USED.append(secret)
    if len(USED) == 1:
        raise ConnectionError(told(secret))
    return mp.rejected(told(secret))


@mp.tool(effect="read", retry=mp.Retry(1))
def look(call: mp.Call, order: str) -> str:
    raise ValueError(told(call.secret("BANK_TOKEN")))


@mp.tool
async def fax(call: mp.Call, order: str) -> None:
    raise KeyError(told(call.secret("BANK_TOKEN")))


@mp.workflow(version="1", tools=[pay, ship, look, fax])
async def confiding(run: mp.Run, order: str) -> str:
    await pay(order)
    said = []
    for tool in (look, ship):
        try:
            await tool(order)
        except mp.StepFailed as failed:
            said.append(failed.why)
            run.emit({"why": failed.why, "env": os.environ["BANK_TOKEN"]})
    if order == "fails":
        raise RuntimeError(f"{said} with {os.environ['BANK_TOKEN']}")
    await fax(order)
    return order


app = mp.App("sqlite:///leaking.db", workflows=[confiding])

"""Every form of the public surface, used rightly: both type checkers must be silent, and the types be exactly these."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, assert_type
from uuid import UUID

import milepost as mp


@dataclass(frozen=True)
class Case:
    text: str


@dataclass(frozen=True)
class Receipt:
    order: str
    cents: int


class Client: ...


@mp.tool
def bare(order: str) -> Receipt:
    return Receipt(order, 1)


@mp.tool
async def bare_async(order: str) -> Receipt:
    return Receipt(order, 1)


@mp.tool
def bare_with_call(call: mp.Call, order: str) -> Receipt:
    return Receipt(order, call.attempt)


@mp.tool
async def bare_async_with_call(call: mp.Call, order: str) -> Receipt:
    return Receipt(order, call.attempt)


@mp.tool(effect="keyed", key_ttl="24h", visible_within=timedelta(seconds=30), scopes={"pay"}, once="order")
async def charge(call: mp.Call, order: str, cents: int = 5) -> Receipt:
    assert_type(call.resource(Client), Client)
    assert_type(call.secret("stripe"), str)
    call.note("ch_1")
    call.spent(usd=Decimal("0.10"), calls=1)
    return Receipt(order, cents)


@charge.reconcile
async def find_charge(call: mp.Call, order: str, cents: int = 5) -> mp.Finding[Receipt]:
    if call.attempt > 3:
        return mp.conflict(["ch_1", "ch_2"])
    if call.attempt > 2:
        return mp.rejected("no such card")
    if call.attempt > 1:
        return mp.still_unknown(ask_again="10s")
    return mp.happened(Receipt(order, cents)) if cents else mp.did_not_happen()


@charge.cost
def cost_of_charge(order: str, cents: int = 5) -> dict[str, Decimal]:
    return {"usd": Decimal(cents) / 100}


@mp.tool(effect="absolute")
async def refund(receipt: Receipt) -> None: ...


charge.compensate(refund)


def asks(order: str, trace: str) -> bool:
    return order != trace


@mp.tool(effect="queryable", approval=asks, volatile=["trace"], retry=mp.Retry(5, first="2s"))
def find_me(order: str, trace: str) -> str:
    return order + trace


@find_me.reconcile
def find_it(order: str, trace: str) -> mp.Finding[str]:
    return mp.happened(order + trace)


@mp.tool(effect="transactional")
def book(tx: mp.Tx, order: str) -> int:
    return len(tx.execute("insert into bookings values (?) returning 1", (order,)))


@mp.tool(
    effect="read",
    cost={"usd": Decimal("0.05"), "calls": 1},
    timeout="120s",
    risk="low",
    name="ask",
    version="2",
    compatible_with=["1"],
)
async def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return messages[0]


desk = mp.Workflow(
    "desk",
    version="2",
    input=Case,
    result=str,
    tools=[bare, charge, find_me, book, ask],
    prompts=[mp.prompt("system", "Be kind."), mp.prompt("triage", "Be brief.", version="2")],
    compatible_with=["1"],
    models={"triage": "a-model"},
)


def paid_once(receipt: Receipt, following: mp.Next[str]) -> bool:
    return following.segment is None and receipt.cents > 0


@desk.segment
async def triage(run: mp.Run, case: Case) -> mp.Next[str]:
    one = await charge(case.text, cents=3)
    assert_type(one, Receipt)
    assert_type(await bare("o"), Receipt)
    assert_type(await bare_async("o"), Receipt)
    assert_type(await bare_with_call("o"), Receipt)
    assert_type(await bare_async_with_call(order="o"), Receipt)
    assert_type(await book("o"), int)
    assert_type(charge("o"), mp.Step[Receipt])
    assert_type(await charge.from_json('{"order": "o"}'), Receipt)
    assert_type(await charge.direct("o"), Receipt)
    assert_type(run.now(), datetime)
    assert_type(run.random(), float)
    assert_type(run.uuid(), UUID)
    await run.sleep("1h")
    await run.sleep(run.now() + timedelta(hours=1))
    assert_type(await run.receive("reply", Receipt), Receipt)
    assert_type(await run.receive("reply", Receipt, timeout="1h"), Receipt | None)
    assert_type(await run.gather(charge("o"), find_me("o", trace="t")), tuple[Receipt, str])
    assert_type(await run.gather(bare("o"), find_me("o", "t"), book("o")), tuple[Receipt, str, int])
    assert_type(await run.gather(*[book(order) for order in ("a", "b")]), list[int])
    assert_type(await run.map(book, ["a", "b"], limit=3), list[int])
    child = await run.start(buy, "order", key="k")
    assert_type(child, mp.Handle[int])
    assert_type(await child.result(timeout="5s"), int)
    await (await run.start(tick)).result()
    run.progress(1, 10, "halfway")
    run.emit({"any": "thing"})
    if one.cents > 4:
        return mp.fail("too much")
    return mp.go(pay, one) if one.cents else mp.done("nothing to pay")


@desk.segment(ensures=paid_once, requires=lambda receipt: receipt.cents > 0, retry=mp.Retry(2))
async def pay(run: mp.Run, receipt: Receipt) -> mp.Next[str]:
    return mp.done(receipt.order)


assert_type(pay, mp.Segment[Receipt, str])


@desk.migration(from_="0")
def onwards(segment: str, state: Any) -> mp.Next[str]:
    return mp.go(triage, Case(state["text"])) if segment == "triage" else mp.fail("cannot be carried over")


@desk.migration(from_="00", to="0")
def first_onwards(segment: str, state: Any) -> mp.Next[str]:
    return mp.Next(segment, {"text": state}, None)


@mp.workflow(version="1", tools=[charge])
async def buy(run: mp.Run, order: str) -> int:
    return (await charge(order)).cents


@mp.workflow(version="1")
async def tick(run: mp.Run) -> None:
    await run.sleep("1s")


assert_type(buy, mp.Workflow[str, int])
assert_type(tick, mp.Workflow[None, None])


def use(app: mp.App, resources: Mapping[type[Any], Callable[[], AbstractAsyncContextManager[Any]]]) -> None:
    assert_type(
        app.run(buy, "order-1", key="k", authority=mp.Authority("shop", scopes=["pay"]), budget={"usd": 5}), int
    )
    app.run(tick)
    assert_type(app.run(desk, Case("x"), deadline="1h", timeout="5m", tags={"team": "a"}), str)


async def serve(app: mp.App) -> str:
    async with app, app.client() as client:
        handle = await client.start(buy, "order-1", key="k")
        assert_type(handle, mp.Handle[int])
        assert_type(client.handle("run-1", buy), mp.Handle[int])
        view = await client.handle("run-1").status()
        async for event in handle.events():
            assert_type(event, Mapping[str, Any])
        return view.waiting.reason if view.waiting else view.status


async def attached(app: mp.App) -> str:
    async with app.attach(key="thread-7", budget={"usd": 1}) as run:
        assert_type(await run.call("call_1", charge, "o", cents=2), Receipt)
        await run.checkpoint({"turn": 1})
        await run.finish()
        match await run.attempt("call_2", charge, "o"):
            case mp.Confirmed(value=receipt):
                return assert_type(receipt, Receipt).order
            case mp.Failed(why=why):
                return why
            case mp.Waiting() as waiting:
                return waiting.ask


def proves(error: Exception) -> None:
    found = mp.http.classify(error)
    if found is not None:
        raise found from error


def any_tool_fits(tools: Mapping[str, mp.Tool[..., Any]]) -> Awaitable[Any]:
    return tools["charge"].from_json({"order": "o"})


any_tool_fits({tool.name: tool for tool in (bare, charge, ask)})

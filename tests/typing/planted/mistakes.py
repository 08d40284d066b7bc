"""One mistake a marked line. A type checker must complain there and nowhere else.

`# wrong` is for both checkers; `# wrong: mypy` and `# wrong: pyright` for one of them alone.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import milepost as mp


@dataclass(frozen=True)
class Case:
    text: str


@dataclass(frozen=True)
class Receipt:
    order: str
    cents: int


@mp.tool(effect="keyed", key_ttl="24h")
async def charge(call: mp.Call, order: str, cents: int) -> Receipt:
    call.spent(usd=0.1)  # wrong
    call.note(5)  # wrong
    return Receipt(order, cents)


@mp.tool(effect="queryable")
def look(order: str) -> str:
    return order


@mp.tool(effect="transactional")
def book(tx: mp.Tx, order: str) -> int:
    tx.execute(order, 5)  # wrong
    return 1


@mp.tool
async def undo(receipt: Receipt) -> None: ...


@mp.tool
async def undo_text(text: str) -> None: ...


def reconcile_other_arguments(order: int, cents: int) -> mp.Finding[Receipt]:
    return mp.happened(Receipt("o", cents + order))


def reconcile_other_result(order: str, cents: int) -> mp.Finding[str]:
    return mp.happened(order * cents)


def cost_in_floats(order: str, cents: int) -> dict[str, float]:
    return {order: cents / 100}


charge.reconcile(reconcile_other_arguments)  # wrong
charge.reconcile(reconcile_other_result)  # wrong
charge.cost(cost_in_floats)  # wrong
charge.compensate(undo)
charge.compensate(undo_text)  # wrong
mp.tool(effect="exactly_once")  # wrong
mp.tool(timeout=5)  # wrong
mp.tool(scopes=5)  # wrong
mp.tool(cost={"usd": 0.5})  # wrong
mp.tool(risk="tiny")  # wrong
mp.Retry(first=5)  # wrong
mp.still_unknown(ask_again=5)  # wrong


def finding() -> mp.Finding[str]:
    return mp.happened(5)  # wrong


desk = mp.Workflow("desk", version="1", input=Case, result=str, tools=[charge, look])
other = mp.Workflow("other", version="1", input=Case, result=int)
mp.Workflow("unversioned", input=Case, result=str)  # wrong
mp.Workflow("text", version="1", input=Case, result=str, prompts=["Be kind."])  # wrong
mp.Workflow("bare", version="1", input=Case, result=str, tools=[finding])  # wrong


@desk.segment
async def triage(run: mp.Run, case: Case) -> mp.Next[str]:
    await charge(5, 5)  # wrong
    await charge("o")  # wrong
    await charge("o", 5, 5)  # wrong
    await charge("o", amount=5)  # wrong
    await charge.from_json(5)  # wrong
    await charge.direct(5, 5)  # wrong
    await book(run, "o")  # wrong
    number: int = await charge("o", 5)  # wrong
    receipt: Receipt = charge("o", 5)  # wrong
    await run.sleep(5)  # wrong
    text: str = await run.receive("reply", str, timeout="1h")  # wrong
    both: tuple[Receipt, int] = await run.gather(charge("o", 5), look("o"))  # wrong
    await run.map(look, [1, 2])  # wrong
    await run.start(buy)  # wrong
    await run.start(buy, 5)  # wrong
    await run.start(tick, 5)  # wrong
    run.progress("half")  # wrong
    if number and receipt and text and both:
        return mp.go(pay, case)  # wrong
    if case.text:
        return mp.done(5)  # wrong
    return mp.go(elsewhere, case)  # wrong


@desk.segment
async def pay(run: mp.Run, receipt: Receipt) -> mp.Next[str]:
    return mp.done(receipt.order)


@other.segment
async def elsewhere(run: mp.Run, case: Case) -> mp.Next[int]:
    return mp.done(5)


async def no_run(case: Case, more: Case) -> mp.Next[str]:
    return mp.done(case.text + more.text)


async def no_next(run: mp.Run, case: Case) -> str:
    return case.text


def no_coroutine(run: mp.Run, case: Case) -> mp.Next[str]:
    return mp.done(case.text)


def about_another_state(case: Case, following: mp.Next[str]) -> bool:
    return case.text == following.result


desk.segment(no_run)  # wrong
desk.segment(no_next)  # wrong
desk.segment(no_coroutine)  # wrong
desk.segment(elsewhere)  # wrong
desk.segment(ensures=about_another_state)(pay.fn)
desk.segment(ensures=about_another_state, retry=3)  # wrong


@mp.workflow(version="1")
async def buy(run: mp.Run, order: str) -> int:
    return (await charge(order, 5)).cents


@mp.workflow(version="1")
async def tick(run: mp.Run) -> None: ...


mp.workflow(version="1")(no_coroutine)  # wrong


def use(app: mp.App) -> None:
    app.run(buy)  # wrong
    app.run(buy, 5)  # wrong
    app.run(tick, 5)  # wrong
    text: str = app.run(buy, "order")  # wrong
    app.run(buy, text, budget={"usd": 0.5})  # wrong
    app.run(buy, text, authority="shop")  # wrong


async def attached(app: mp.App) -> Any:
    async with app.attach(key="k") as run:
        await run.call("call_1", charge, 5, 5)  # wrong
        await run.call(charge, "o", 5)  # wrong
        outcome = await run.attempt("call_2", charge, "o", 5)
        return outcome.value  # wrong


def proves(error: Exception) -> None:
    raise mp.http.classify(error)  # wrong


def resolved(view: mp.RunView) -> Decimal:
    return view.waiting.until  # wrong

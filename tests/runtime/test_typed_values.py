"""What users hand over is validated on the way in and read back before it is written."""

import dataclasses
from datetime import date
from decimal import Decimal
from typing import Any, TypedDict, cast

import msgspec
import pydantic
import pytest

import milepost as mp
from tests.runtime.stage import Stage, names, parked


@dataclasses.dataclass
class Case:
    text: str
    due: date


class Paid(TypedDict):
    order: str
    cents: int


class Receipt(msgspec.Struct):
    id: str
    total: Decimal


class Customer(pydantic.BaseModel):
    name: str
    age: int


def of_types(name: str, first: type[Any], state: type[Any], result: type[Any]) -> mp.Workflow[Any, Any]:
    flow: mp.Workflow[Any, Any] = mp.Workflow(name, version="1", input=first, result=result)
    begun: Any
    held: Any

    async def begin(run: mp.Run, given: Any) -> mp.Next[Any]:
        assert isinstance(given, dict if first is Paid else first)
        return mp.go(held, CONVERT[first, state](given))

    async def hold(run: mp.Run, given: Any) -> mp.Next[Any]:
        assert isinstance(given, dict if state is Paid else state)
        return mp.done(CONVERT[state, result](given))

    begin.__annotations__["given"] = first
    hold.__annotations__["given"] = state
    begun = flow.segment(begin)
    held = flow.segment(hold)
    assert begun is not held
    return flow


CONVERT: dict[tuple[Any, Any], Any] = {
    (Case, Paid): lambda case: Paid(order=case.text, cents=case.due.year),
    (Paid, Receipt): lambda paid: Receipt(paid["order"], Decimal(paid["cents"]) / 100),
    (Customer, Receipt): lambda customer: Receipt(customer.name, Decimal(customer.age)),
    (Receipt, Customer): lambda receipt: Customer(name=receipt.id, age=int(receipt.total)),
    (str, Case): lambda text: Case(text, date(2026, 1, 2)),
    (Case, tuple[str, date]): lambda case: (case.text, case.due),
}


async def test_dataclasses_typed_dicts_and_structs_come_back_as_themselves(stage: Stage) -> None:
    flow = of_types("a", Case, Paid, Receipt)
    async with stage.app(flow) as app:
        handle = await app.start(flow, Case("o-1", date(2026, 5, 1)))

        assert await handle.result(timeout="30s") == Receipt("o-1", Decimal("20.26"))


async def test_pydantic_models_come_back_as_themselves(stage: Stage) -> None:
    flow = of_types("b", Customer, Receipt, Customer)
    async with stage.app(flow) as app:
        handle = await app.start(flow, Customer(name="Ann", age=41))

        assert await handle.result(timeout="30s") == Customer(name="Ann", age=41)


async def test_builtins_come_back_as_themselves(stage: Stage) -> None:
    flow = mp.Workflow("c", version="1", input=str, result=tuple[str, date])

    @flow.segment
    async def begin(run: mp.Run, text: str) -> mp.Next[tuple[str, date]]:
        return mp.done((text, date(2026, 1, 2)))

    async with stage.app(flow) as app:
        assert await (await app.start(flow, "x")).result(timeout="30s") == ("x", date(2026, 1, 2))


@pytest.mark.parametrize(
    "value",
    [float("nan"), {1: "one"}, {"s": {1, 2}}, {"a": object()}, "\ud800"],
    ids=["nan", "int key", "set", "object", "surrogate"],
)
async def test_an_input_that_cannot_be_read_back_is_refused_before_anything_is_recorded(
    stage: Stage, value: object
) -> None:
    flow = mp.Workflow("any", version="1", input=Any, result=str)

    @flow.segment
    async def begin(run: mp.Run, given: Any) -> mp.Next[str]:
        return mp.done("never")

    async with stage.app(flow) as app:
        with pytest.raises(mp.InvalidValue):
            await app.start(cast("mp.Workflow[Any, str]", flow), value)
        assert await app.inspect.counts() == {}


@pytest.mark.parametrize("value", [float("inf"), {1: "one"}, {1, 2}], ids=["inf", "int key", "set"])
async def test_a_state_that_cannot_be_read_back_fails_the_segment_and_writes_no_boundary(
    stage: Stage, value: object
) -> None:
    flow = mp.Workflow("any", version="1", input=int, result=str)

    @flow.segment
    async def begin(run: mp.Run, n: int) -> mp.Next[str]:
        return mp.go(after, value)

    @flow.segment
    async def after(run: mp.Run, given: Any) -> mp.Next[str]:
        return mp.done("never")

    async with stage.app(flow) as app:
        handle = await app.start(flow, 1)

        with pytest.raises(mp.RunFailed, match="state"):
            await handle.result(timeout="30s")
        assert "checkpointed" not in await names(app, handle.id)


async def test_a_result_of_another_type_fails_the_segment(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def wrong(run: mp.Run) -> int:
        return "seven"  # type: ignore[return-value]

    async with stage.app(wrong) as app:
        handle = await app.start(wrong)

        with pytest.raises(mp.RunFailed, match="result of wrong"):
            await handle.result(timeout="30s")
        assert "run_done" not in await names(app, handle.id)


async def test_an_effect_whose_result_cannot_be_stored_is_unknown_not_failed(stage: Stage) -> None:
    """Requirement 11. The result came, but the record cannot hold it: nobody may say that it failed."""
    ledger = []

    @mp.tool
    async def mail(to: str) -> int:
        ledger.append(to)
        return "sent"  # type: ignore[return-value]

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> int:
        return await mail("ann")

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        waiting = await parked(handle, "unknown")

        assert "--happened" in waiting.ask
        assert ledger == ["ann"]
        await app.resolve(handle.id, "flow/mail#1", mp.happened(7), by="bo", why="seen in the outbox")
        assert await handle.result(timeout="30s") == 7
        assert ledger == ["ann"]

"""A desk in several versions, and runs of it that rest where a test wants them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import milepost as mp
from milepost.runtime import driver
from tests.runtime.stage import Stage, parked, status_of

Desk = mp.Workflow[Any, str]
To = mp.Segment[Any, str]


@mp.tool(effect="keyed", key_ttl="24h")
async def charge(order: str) -> str:
    return f"receipt {order}"


def priced(version: str, *stands_in: str) -> mp.Tool[[str], str]:
    @mp.tool(name="charge", version=version, effect="keyed", key_ttl="24h", compatible_with=stands_in)
    async def newer(order: str) -> str:
        return f"receipt {version} {order}"

    tool: mp.Tool[[str], str] = newer
    return tool


def desk(version: str = "1", tool: mp.Tool[[str], str] = charge, **options: Any) -> mp.Workflow[str, str]:
    """Return a desk that triages, then waits inside `pay` with a receipt in hand."""
    flow = mp.Workflow("desk", version=version, input=str, result=str, tools=[tool], **options)

    @flow.segment
    async def triage(run: mp.Run, order: str) -> mp.Next[str]:
        return mp.go(pay, order)

    @flow.segment
    async def pay(run: mp.Run, order: str) -> mp.Next[str]:
        receipt = await tool(order)
        await run.receive("go", int)
        return mp.done(receipt)

    return flow


def changed_desk(version: str = "1", **options: Any) -> mp.Workflow[str, str]:
    """Return the desk with another text of `pay`, which makes the same calls."""
    flow = mp.Workflow("desk", version=version, input=str, result=str, tools=[charge], **options)

    @flow.segment
    async def triage(run: mp.Run, order: str) -> mp.Next[str]:
        return mp.go(pay, order)

    @flow.segment
    async def pay(run: mp.Run, order: str) -> mp.Next[str]:
        receipt = await charge(order)
        await run.receive("go", int)
        return mp.done(f"changed: {receipt}")

    return flow


async def at_the_boundary(stage: Stage, flow: mp.Workflow[str, str], given: str = "a") -> str:
    """Drive a new run over its first boundary and let go of it there."""
    app = stage.app(flow)
    await app._open(drives=True)
    try:
        handle = await app.start(flow, given)
        await driver.advance(app._need_engine(), handle.id, segments=1)
        return handle.id
    finally:
        await app._close()


async def inside(stage: Stage, flow: mp.Workflow[str, str]) -> str:
    """Drive a new run until it waits inside `pay`, with a receipt recorded."""
    async with stage.app(flow) as app:
        handle = await app.start(flow, "a")
        await parked(handle, "signal")
        return handle.id


async def blocked(app: mp.App, run_id: str) -> str:
    """Wait until a run is blocked; return why."""
    await status_of(app.handle(run_id), "blocked")
    return (await app._need_engine().store.run(run_id)).why or ""


async def entries(app: mp.App, run_id: str, name: str) -> list[dict[str, Any]]:
    return [line.fields for line in await app.inspect.journal(run_id) if line.name == name]


@dataclass(frozen=True)
class Order:
    name: str
    cents: int


def sized(version: str, *, declares: Callable[[Desk, To], None]) -> mp.Workflow[Any, str]:
    """Return a desk whose second segment takes an Order instead of a name."""
    flow = mp.Workflow("desk", version=version, input=str, result=str, tools=[charge])

    @flow.segment
    async def triage(run: mp.Run, order: str) -> mp.Next[str]:
        return mp.go(settle, Order(order, 100))

    @flow.segment
    async def settle(run: mp.Run, order: Order) -> mp.Next[str]:
        receipt = await charge(order.name)
        return mp.done(f"{receipt} for {order.cents}")

    declares(flow, settle)
    return flow


def migrates_from_1(flow: Desk, settle: To) -> None:
    @flow.migration(from_="1")
    def widen(segment: str, state: Any) -> mp.Next[str]:
        assert (segment, state) == ("pay", "a")
        return mp.go(settle, Order(state, 700))


def broken(flow: Desk, settle: To) -> None:
    @flow.migration(from_="1")
    def raises(segment: str, state: Any) -> mp.Next[str]:
        raise KeyError("cents")

"""The workflows of the soak, in two versions.

All but one are compatible in both directions, so that old and new workers may hold them side by side. `desk` is not:
version 2 has another state, and a migration leads the runs of version 1 over.
"""

from dataclasses import dataclass
from typing import Any

import milepost as mp
from soak.scene import DESK, NEW, OLD, SLOW
from soak.tools import Tools

CHILDREN = 12


class Flows:
    """The workflows over some tools, as code of one version has them."""

    def __init__(self, tools: Tools, version: str) -> None:
        self.tools = tools
        self.declared: dict[str, Any] = {
            "version": version, "compatible_with": [NEW if version == OLD else OLD], "tools": tools.all,
        }  # fmt: skip
        self.parcel = self._parcel()
        self.quick, self.sleeper, self.listener = self._quick(), self._sleeper(), self._listener()
        self.asked, self.pressed, self.stocked = self._asked(), self._pressed(), self._stocked()
        self.family, self.slow, self.tick, self.undone = self._family(), self._slow(), self._tick(), self._undone()
        self.desk = desk_before(tools) if version == OLD else desk_after(tools)
        self.all: tuple[mp.Workflow[Any, Any], ...] = (
            self.parcel, self.quick, self.sleeper, self.listener, self.asked, self.pressed, self.stocked, self.family,
            self.slow, self.tick, self.undone, self.desk,
        )  # fmt: skip

    def _parcel(self) -> mp.Workflow[str, str]:
        tools = self.tools

        @mp.workflow(name="parcel", **self.declared)
        async def parcel(_run: mp.Run, name: str) -> str:
            return await tools.ship(name)

        return parcel

    def _quick(self) -> mp.Workflow[str, list[str]]:
        tools = self.tools

        @mp.workflow(name="quick", **self.declared)
        async def quick(run: mp.Run, name: str) -> list[str]:
            first = await tools.charge(f"{name}-a", 100)
            both = await run.gather(tools.ship(f"{name}-b"), tools.refund(f"{name}-c", 50))
            noted = await tools.note(name)
            return [first, *both, str(noted), await tools.charge(f"{name}-d", 200)]

        return quick

    def _sleeper(self) -> mp.Workflow[str, str]:
        tools = self.tools
        flow: mp.Workflow[str, str] = mp.Workflow("sleeper", input=str, result=str, **self.declared)

        @flow.segment
        async def before(run: mp.Run, name: str) -> mp.Next[str]:
            await tools.charge(f"{name}-a", 100)
            await run.sleep(f"{500 + int(run.random() * 4_000)}ms")
            return mp.go(after, name)

        @flow.segment
        async def after(_run: mp.Run, name: str) -> mp.Next[str]:
            return mp.done(await tools.charge(f"{name}-b", 100))

        return flow

    def _listener(self) -> mp.Workflow[str, str]:
        tools = self.tools

        @mp.workflow(name="listener", **self.declared)
        async def listener(run: mp.Run, name: str) -> str:
            how_many = await run.receive("go", int, timeout="15s")
            return "nobody spoke" if how_many is None else await tools.refund(name, how_many)

        return listener

    def _asked(self) -> mp.Workflow[str, str]:
        tools = self.tools

        @mp.workflow(name="asked", **self.declared)
        async def asked(_run: mp.Run, name: str) -> str:
            try:
                return await tools.pay_out(name, 1_000)
            except mp.Denied:
                return "denied"

        return asked

    def _pressed(self) -> mp.Workflow[str, str]:
        tools = self.tools

        @mp.workflow(name="pressed", **self.declared)
        async def pressed(_run: mp.Run, name: str) -> str:
            try:
                return await tools.press(name)
            except mp.StepFailed as error:
                return error.code

        return pressed

    def _stocked(self) -> mp.Workflow[str, str]:
        tools = self.tools

        @mp.workflow(name="stocked", **self.declared)
        async def stocked(_run: mp.Run, name: str) -> str:
            return await tools.order(name)  # it fails for good where the provider is away too long: a person retries

        return stocked

    def _family(self) -> mp.Workflow[str, list[str]]:
        child = self.parcel

        @mp.workflow(name="family", **self.declared)
        async def family(run: mp.Run, name: str) -> list[str]:
            async def one(number: int) -> str:
                started = await run.start(child, f"{name}-{number}")
                try:
                    return await started.result()
                except mp.StepFailed as error:
                    return error.code

            return await run.map(one, range(CHILDREN), limit=50)

        return family

    def _slow(self) -> mp.Workflow[str, str]:
        tools = self.tools

        @mp.workflow(name="slow", queue=SLOW, **self.declared)
        async def slow(_run: mp.Run, name: str) -> str:
            await tools.refund(f"{name}-a", 10)
            return await tools.refund(f"{name}-b", 10)

        return slow

    def _tick(self) -> mp.Workflow[str, str]:
        tools = self.tools

        @mp.workflow(name="tick", **self.declared)
        async def tick(_run: mp.Run, name: str) -> str:
            return await tools.refund(name, 1)

        return tick

    def _undone(self) -> mp.Workflow[str, str]:
        tools = self.tools
        flow: mp.Workflow[str, str] = mp.Workflow("undone", input=str, result=str, **self.declared)

        @flow.segment
        async def choose(run: mp.Run, name: str) -> mp.Next[str]:
            run.now()
            return mp.go(take, name)

        @flow.segment
        async def take(run: mp.Run, name: str) -> mp.Next[str]:
            await run.gather(tools.book(f"{name}-a"), tools.book(f"{name}-b"))
            return mp.go(wait, name)

        @flow.segment
        async def wait(run: mp.Run, name: str) -> mp.Next[str]:
            await run.receive("go", int)
            return mp.done(name)

        return flow


def desk_before(tools: Tools) -> mp.Workflow[str, str]:
    """Return version 1 of the desk."""
    flow: mp.Workflow[str, str] = mp.Workflow(
        "desk", version=OLD, input=str, result=str, tools=tools.all, queue=DESK
    )  # fmt: skip

    @flow.segment
    async def take(run: mp.Run, name: str) -> mp.Next[str]:
        run.now()
        return mp.go(wait, name)

    @flow.segment
    async def wait(run: mp.Run, name: str) -> mp.Next[str]:
        await run.receive("go", int)
        return mp.go(pay, name)

    @flow.segment
    async def pay(_run: mp.Run, name: str) -> mp.Next[str]:
        return mp.done(await tools.charge(name, 300))

    return flow


@dataclass(frozen=True)
class Order:
    """What version 2 of the desk knows of an order."""

    name: str
    cents: int


def desk_after(tools: Tools) -> mp.Workflow[str, str]:
    """Return version 2 of the desk: another state, other segments, and the way there."""
    flow: mp.Workflow[str, str] = mp.Workflow(
        "desk", version=NEW, input=str, result=str, tools=tools.all, queue=DESK
    )  # fmt: skip

    @flow.segment
    async def take(run: mp.Run, name: str) -> mp.Next[str]:
        run.now()
        return mp.go(listen, Order(name, 300))

    @flow.segment
    async def listen(run: mp.Run, order: Order) -> mp.Next[str]:
        await run.receive("go", int)
        return mp.go(charge, order)

    @flow.segment
    async def charge(_run: mp.Run, order: Order) -> mp.Next[str]:
        return mp.done(await tools.charge(order.name, order.cents))

    @flow.migration(from_=OLD)
    def with_cents(segment: str, state: Any) -> mp.Next[str]:
        if segment == "take":
            return mp.go(take, state)
        return mp.go(listen if segment == "wait" else charge, Order(state, 300))

    return flow

"""The workflows that are put through the faults, over the tools of one setup."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

import milepost as mp
from faults.tools import LONE, Door, Order, Setup, Tools
from milepost.runtime.clock import SystemClock
from milepost.testing.world import AccountClock

TLS = ssl.create_default_context()  # made once: a client would load every certificate again, for a world without any


class Desk:
    """The workflows over the tools of one setup."""

    def __init__(self, setup: Setup, skew_ms: int = 0) -> None:
        self.setup = setup
        self.skew_ms = skew_ms
        self.tools = Tools(setup)
        self.one = one_call(self.tools)
        self.twenty = twenty_steps(self.tools)

    def app(self, store: str, kind: type[mp.App] = mp.App) -> mp.App:
        """Return an app over a store's URL, on the clock of the account."""
        setup = self.setup

        @asynccontextmanager
        async def door() -> AsyncIterator[Door]:
            limits = httpx.Limits(max_keepalive_connections=0)
            client = httpx.AsyncClient(timeout=setup.hears_s, limits=limits, trust_env=False, verify=TLS)
            async with client:
                yield Door(setup.outside, client, setup.hears_s, setup.dawdles_s)

        flows: list[mp.Workflow[Any, Any]] = [self.one, self.twenty]
        clock = None if setup.machine_clock else SkewedClock(setup.wall, self.skew_ms)
        return kind(
            store,
            workflows=flows,
            resources={Door: door},
            clock=clock,
            lease=setup.lease,
            policy=setup.policy or None,
            seal=setup.seal or None,
            trust=setup.trust or None,
        )


class SkewedClock(SystemClock):
    """The clock that workers have, over a wall clock that a try may set, and some milliseconds off it."""

    def __init__(self, wall: AccountClock, skew_ms: int) -> None:
        super().__init__(lambda: wall.now() + skew_ms)


def one_call(tools: Tools) -> mp.Workflow[Order, str]:
    """Return the workflow that makes one call."""

    @mp.workflow(name="one", version="1", tools=tools.all)
    async def one(_run: mp.Run, order: Order) -> str:
        match order.tool:
            case "charge":
                return await tools.charge(order.name, 500)
            case "refund":
                return await tools.refund(order.name, 500)
            case "publish":
                return await tools.publish(order.name, 0)
            case "ship":
                return await tools.ship(order.name)
            case "deliver":
                return await tools.deliver(order.name)
            case "press":
                return await tools.press(order.name)
            case "swallow":
                return str(await tools.swallow("much", "x" * int(order.name)))
            case "confide":
                return await tools.confide(order.name)
            case "babble":
                return await tools.babble("babbled", order.name)
            case "murmur":
                return await tools.charge(LONE, 1)
            case _:
                return await tools.mail(order.name)

    return one


def twenty_steps(tools: Tools) -> mp.Workflow[Order, list[str]]:
    """Return the workflow of twenty steps: each class of effect, two arms at once, three segments."""
    flow: mp.Workflow[Order, list[str]] = mp.Workflow(
        "twenty", version="1", input=Order, result=list[str], tools=tools.all
    )

    @flow.segment
    async def first(run: mp.Run, order: Order) -> mp.Next[list[str]]:
        name = order.name
        version = await tools.look(name)
        said = await tools.ask(name)
        both = await run.gather(tools.ship(f"{name}-a"), tools.charge(f"{name}-a", 100))
        noted = await tools.note(f"{name}-a")
        paid = await tools.charge(f"{name}-b", 200)
        return mp.go(second, [name, str(version), said, *map(kind, both), str(noted), kind(paid)])

    @flow.segment
    async def second(run: mp.Run, so_far: list[str]) -> mp.Next[list[str]]:
        name = so_far[0]
        page = await tools.publish(name, 0)
        again = await tools.publish(name, await tools.look(name))
        both = await run.gather(tools.deliver(f"{name}-a"), tools.ship(f"{name}-b"))
        back = await tools.refund(f"{name}-c", 300)
        pressed = await tools.press(f"{name}-a")
        return mp.go(third, [*so_far, *map(kind, (page, again, *both, back, pressed))])

    @flow.segment
    async def third(_run: mp.Run, so_far: list[str]) -> mp.Next[list[str]]:
        name = so_far[0]
        paid = await tools.charge(f"{name}-d", 400)
        sent = await tools.ship(f"{name}-c")
        given = await tools.deliver(f"{name}-b")
        noted = await tools.note(f"{name}-b")
        pressed = await tools.press(f"{name}-b")
        last = await tools.charge(f"{name}-e", 500)
        await tools.mail(f"{name}@desk.example")
        return mp.done([*so_far, *map(kind, (paid, sent, given, pressed, last)), str(noted)])

    return flow


def kind(receipt: str) -> str:
    """Return what stays the same of a receipt: not its number."""
    return receipt.rpartition("-")[0] or receipt

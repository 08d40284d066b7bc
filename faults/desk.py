"""What is put through the faults: one tool for each class of effect, and two workflows that call them.

The tools speak to the outside world of `milepost.testing.world`, through its proxy. They are written as a careful user
writes
them: no retries of their own, no redirects, each class declared as the service truly behaves.
"""

import json
import smtplib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import httpx
import msgspec

import milepost as mp
from milepost.runtime.clock import SystemClock
from milepost.testing.world import Account, AccountClock


class Setup(msgspec.Struct, frozen=True):
    """How one desk is declared, and where its world is. Spans are as in the tools' options."""

    world: str
    account: str
    http_port: int
    mail_port: int
    hears_s: float = 0.5
    timeout: str = "2s"
    visible_within: str = "200ms"
    key_ttl: str = "24h"
    lease: str = "30s"
    tries: int = 3
    clock: str = ""

    @property
    def outside(self) -> Account:
        """The account that it speaks to."""
        return Account(Path(self.world), self.account, self.http_port, self.mail_port)

    @property
    def wall(self) -> AccountClock:
        """The wall clock of the workers' machine: that of their account, or of the one that `clock` names."""
        return AccountClock(Path(self.world), self.clock or self.account)


TLS = ssl.create_default_context()  # made once: a client would load every certificate again, for a world without any


@dataclass(frozen=True)
class Order:
    """One call of one tool."""

    tool: str
    name: str


@dataclass(frozen=True)
class Door:
    """How tools reach the outside."""

    outside: Account
    client: httpx.AsyncClient
    hears_s: float

    async def change(self, call: mp.Call, kind: str, tool: str, args: dict[str, Any], **headers: str) -> str:
        """Ask for a change; return the receipt."""
        told = {"Effect-Key": call.key, "Effect-Attempt": str(call.attempt), **headers}
        url = self.outside.url(kind, tool, args["name"])
        method = "PUT" if kind == "absolute" else "POST"
        answer = await self.client.request(method, url, json=args, headers=told)
        answer.raise_for_status()
        return str(answer.json()["receipt"])

    async def found(self, kind: str, tool: str, name: str) -> list[dict[str, Any]]:
        """Ask what was applied under a name."""
        answer = await self.client.get(self.outside.url(kind, tool, name))
        answer.raise_for_status()
        listed: list[dict[str, Any]] = answer.json()["found"]
        return listed

    def mail(self, call: mp.Call, args: dict[str, Any]) -> None:
        """Send a mail. Raises NotSent where the server cannot be reached, Rejected where it refuses the recipient."""
        message = EmailMessage()
        message["From"], message["To"] = "desk@desk.example", args["name"]
        message["X-Account"], message["X-Tool"] = self.outside.name, "mail"
        message["X-Args"] = json.dumps(args)
        message["X-Effect-Key"], message["X-Effect-Attempt"] = call.key, str(call.attempt)
        message.set_content("Hello.")
        try:
            smtp = smtplib.SMTP(
                "127.0.0.1", self.outside.mail_port, local_hostname="desk.example", timeout=self.hears_s
            )
        except OSError as error:
            raise mp.NotSent(str(error)) from error
        with smtp:
            try:
                smtp.send_message(message)
            except smtplib.SMTPRecipientsRefused as error:
                raise mp.Rejected(str(error)) from error


def one_of(found: list[dict[str, Any]]) -> mp.Finding[str]:
    """Return what a list of what was applied says of one effect."""
    if len(found) > 1:
        return mp.conflict([one["receipt"] for one in found])
    return mp.happened(str(found[0]["receipt"])) if found else mp.did_not_happen()


class Tools:
    """The tools, as one setup declares them."""

    def __init__(self, setup: Setup) -> None:
        retry = mp.Retry(setup.tries, first="10ms", most="50ms")
        asked: dict[str, Any] = {
            "effect": "queryable", "visible_within": setup.visible_within, "timeout": setup.timeout, "retry": retry,
        }  # fmt: skip
        keyed: dict[str, Any] = {
            "effect": "keyed", "key_ttl": setup.key_ttl, "timeout": setup.timeout, "retry": retry,
        }  # fmt: skip

        @mp.tool(effect="read", timeout=setup.timeout, retry=retry)
        async def look(call: mp.Call, name: str) -> int:
            return len(await call.resource(Door).found("absolute", "publish", name))

        @mp.tool(effect="read", cost={"tokens": 10}, timeout=setup.timeout, retry=retry)
        async def ask(call: mp.Call, name: str) -> str:
            receipt = await call.resource(Door).change(call, "queryable", "ask", {"name": name})
            call.spent(tokens=7)
            return receipt.partition("-")[0]

        @mp.tool(**keyed, cost={"usd": 1})
        async def charge(call: mp.Call, name: str, cents: int) -> str:
            args = {"name": name, "cents": cents}
            return await call.resource(Door).change(call, "keyed", "charge", args, **{"Idempotency-Key": call.key})

        @mp.tool(**keyed, visible_within=setup.visible_within)
        async def refund(call: mp.Call, name: str, cents: int) -> str:
            args = {"name": name, "cents": cents}
            return await call.resource(Door).change(call, "keyed", "refund", args, **{"Idempotency-Key": call.key})

        @refund.reconcile
        async def refunded(call: mp.Call, name: str, cents: int) -> mp.Finding[str]:  # noqa: ARG001  the tool's own
            return one_of(await call.resource(Door).found("keyed", "refund", name))

        @mp.tool(**asked)
        async def ship(call: mp.Call, name: str) -> str:
            return await call.resource(Door).change(call, "queryable", "ship", {"name": name})

        @ship.reconcile
        async def shipped(call: mp.Call, name: str) -> mp.Finding[str]:
            return one_of(await call.resource(Door).found("queryable", "ship", name))

        @mp.tool(effect="absolute", timeout=setup.timeout, retry=retry)
        async def publish(call: mp.Call, name: str, if_version: int) -> str:
            args = {"name": name, "if_version": if_version}
            try:
                return await call.resource(Door).change(
                    call, "absolute", "publish", args, **{"If-Match": str(if_version)}
                )
            except httpx.HTTPStatusError as error:
                if error.response.status_code == httpx.codes.PRECONDITION_FAILED:
                    raise mp.Rejected(error.response.text) from error
                raise

        @publish.reconcile
        async def published(call: mp.Call, name: str, if_version: int) -> mp.Finding[str]:
            found = await call.resource(Door).found("absolute", "publish", name)
            mine = [one for one in found if one["args"] == {"name": name, "if_version": if_version}]
            return one_of(mine)

        @mp.tool(**asked)
        async def deliver(call: mp.Call, name: str) -> str:
            outside = call.resource(Door).outside
            outside.files.put(outside.name, "deliver", name, call.key, call.attempt, {"name": name})
            return f"{name} delivered"

        @deliver.reconcile
        async def delivered(call: mp.Call, name: str) -> mp.Finding[str]:
            outside = call.resource(Door).outside
            sent = outside.files.find(outside.name, "deliver", name)
            return mp.happened(f"{name} delivered") if sent else mp.did_not_happen()

        @mp.tool(effect="transactional")
        def note(tx: mp.Tx, name: str) -> int:
            tx.execute("CREATE TABLE IF NOT EXISTS notes (name TEXT)")
            tx.execute("INSERT INTO notes VALUES (?)", (name,))
            return int(tx.execute("SELECT count(*) FROM notes")[0][0])

        @mp.tool(timeout=setup.timeout)
        async def press(call: mp.Call, name: str) -> str:
            return await call.resource(Door).change(call, "irreversible", "press", {"name": name})

        @mp.tool(timeout=setup.timeout)
        def mail(call: mp.Call, name: str) -> str:
            call.resource(Door).mail(call, {"name": name})
            return f"mail to {name}"

        self.look, self.ask, self.charge, self.refund, self.ship = look, ask, charge, refund, ship
        self.publish, self.deliver, self.note, self.press, self.mail = publish, deliver, note, press, mail
        self.all: tuple[mp.Tool[..., Any], ...] = (
            look, ask, charge, refund, ship, publish, deliver, note, press, mail,
        )  # fmt: skip


class Desk:
    """The workflows over the tools of one setup."""

    def __init__(self, setup: Setup, skew_ms: int = 0) -> None:
        self.setup = setup
        self.skew_ms = skew_ms
        self.tools = Tools(setup)
        self.one = one_call(self.tools)
        self.twenty = twenty_steps(self.tools)

    def app(self, store: str) -> mp.App:
        """Return an app over a store's URL, on the clock of the account."""
        setup = self.setup

        @asynccontextmanager
        async def door() -> AsyncIterator[Door]:
            limits = httpx.Limits(max_keepalive_connections=0)
            client = httpx.AsyncClient(timeout=setup.hears_s, limits=limits, trust_env=False, verify=TLS)
            async with client:
                yield Door(setup.outside, client, setup.hears_s)

        flows: list[mp.Workflow[Any, Any]] = [self.one, self.twenty]
        clock = SkewedClock(setup.wall, self.skew_ms)
        return mp.App(store, workflows=flows, resources={Door: door}, clock=clock, lease=setup.lease)


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

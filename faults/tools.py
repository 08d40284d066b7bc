"""One tool for each class of effect, over the outside world of `milepost.testing.world`, and three that are hostile.

They are written as a careful user writes them: no retries of their own, no redirects, each class declared as the
service truly behaves.
"""

import asyncio
import json
import smtplib
import time
from dataclasses import dataclass
from email.message import EmailMessage
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import msgspec

import milepost as mp
from milepost.testing.world import Account, AccountClock

TOKEN = "FAULTS_TOKEN"  # noqa: S105  the name of a secret, and of the variable that holds it
HEARS_S = 2.0  # a slow answer is not what is tried, on a machine that is slow
UNHEARD_S = 1.0  # where an answer is lost, which takes so long to be told from one that is slow
PATIENT = {"timeout": "5s", "hears_s": 4.0}  # where many processes are at work, and a slow answer is not what is tried
LONE = "half of \ud83d"  # a lone surrogate is no text


class Setup(msgspec.Struct, frozen=True):
    """How one desk is declared, and where its world is. Spans are as in the tools' options."""

    world: str
    account: str
    http_port: int
    mail_port: int
    hears_s: float = HEARS_S
    timeout: str = "5s"
    visible_within: str = "200ms"
    key_ttl: str = "24h"
    lease: str = "30s"
    tries: int = 3
    clock: str = ""
    policy: str = ""
    seal: str = ""
    trust: str = ""
    store: str = ""  # the URL of a database; else the store is a file in the folder
    temporal: str = ""  # the address of Temporal's server, which drives; else workers look for what is due
    dawdles_s: float = 0.0  # how long a tool is busy before its first byte leaves
    machine_clock: bool = False  # the app takes the clock that it takes by itself, on a machine whose clock is `clock`

    @property
    def outside(self) -> Account:
        """The account that it speaks to."""
        return Account(Path(self.world), self.account, self.http_port, self.mail_port)

    @property
    def wall(self) -> AccountClock:
        """The wall clock of the workers' machine: that of their account, or of the one that `clock` names."""
        return AccountClock(Path(self.world), self.clock or self.account)


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
    dawdles_s: float = 0.0

    async def change(self, call: mp.Call, kind: str, tool: str, args: dict[str, Any], **headers: str) -> str:
        """Ask for a change; return the receipt."""
        await asyncio.sleep(self.dawdles_s)
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
        time.sleep(self.dawdles_s)
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
        self.look, self.ask = reads(setup)
        self.charge, self.refund = payments(setup)
        self.ship, self.deliver = parcels(setup)
        self.publish, self.note = pages(setup)
        self.press, self.mail = irreversible(setup)
        self.swallow, self.confide, self.babble = hostile(setup)
        self.all: tuple[mp.Tool[..., Any], ...] = (
            self.look, self.ask, self.charge, self.refund, self.ship, self.deliver, self.publish, self.note, self.press,
            self.mail, self.swallow, self.confide, self.babble,
        )  # fmt: skip


def retry(setup: Setup) -> mp.Retry:
    """Return how what failed for certain is tried again: soon, for a machine that waits."""
    return mp.Retry(setup.tries, first="10ms", most="50ms")


def keyed(setup: Setup) -> dict[str, Any]:
    """Return the options of a tool whose provider knows keys."""
    return {"effect": "keyed", "key_ttl": setup.key_ttl, "timeout": setup.timeout, "retry": retry(setup)}


def asked(setup: Setup) -> dict[str, Any]:
    """Return the options of a tool whose provider can be asked."""
    return {
        "effect": "queryable", "visible_within": setup.visible_within, "timeout": setup.timeout, "retry": retry(setup),
    }  # fmt: skip


def reads(setup: Setup) -> tuple[mp.Tool[[str], int], mp.Tool[[str], str]]:
    """Return a free read, and one that costs."""

    @mp.tool(effect="read", timeout=setup.timeout, retry=retry(setup))
    async def look(call: mp.Call, name: str) -> int:
        return len(await call.resource(Door).found("absolute", "publish", name))

    @mp.tool(effect="read", cost={"tokens": 10}, timeout=setup.timeout, retry=retry(setup))
    async def ask(call: mp.Call, name: str) -> str:
        receipt = await call.resource(Door).change(call, "queryable", "ask", {"name": name})
        call.spent(tokens=7)
        return receipt.partition("-")[0]

    return look, ask


def payments(setup: Setup) -> tuple[mp.Tool[[str, int], str], mp.Tool[[str, int], str]]:
    """Return two keyed tools: one that costs, and one whose provider can be asked as well."""

    @mp.tool(**keyed(setup), cost={"usd": 1})
    async def charge(call: mp.Call, name: str, cents: int) -> str:
        args = {"name": name, "cents": cents}
        return await call.resource(Door).change(call, "keyed", "charge", args, **{"Idempotency-Key": call.key})

    @mp.tool(**keyed(setup), visible_within=setup.visible_within)
    async def refund(call: mp.Call, name: str, cents: int) -> str:
        args = {"name": name, "cents": cents}
        return await call.resource(Door).change(call, "keyed", "refund", args, **{"Idempotency-Key": call.key})

    @refund.reconcile
    async def refunded(call: mp.Call, name: str, cents: int) -> mp.Finding[str]:  # noqa: ARG001  the tool's own
        return one_of(await call.resource(Door).found("keyed", "refund", name))

    return charge, refund


def parcels(setup: Setup) -> tuple[mp.Tool[[str], str], mp.Tool[[str], str]]:
    """Return two queryable tools: one over HTTP, and one that sends files."""

    @mp.tool(**asked(setup))
    async def ship(call: mp.Call, name: str) -> str:
        return await call.resource(Door).change(call, "queryable", "ship", {"name": name})

    @ship.reconcile
    async def shipped(call: mp.Call, name: str) -> mp.Finding[str]:
        return one_of(await call.resource(Door).found("queryable", "ship", name))

    @mp.tool(**asked(setup))
    async def deliver(call: mp.Call, name: str) -> str:
        outside = call.resource(Door).outside
        outside.files.put(outside.name, "deliver", name, call.key, call.attempt, {"name": name})
        return f"{name} delivered"

    @deliver.reconcile
    async def delivered(call: mp.Call, name: str) -> mp.Finding[str]:
        outside = call.resource(Door).outside
        sent = outside.files.find(outside.name, "deliver", name)
        return mp.happened(f"{name} delivered") if sent else mp.did_not_happen()

    return ship, deliver


def pages(setup: Setup) -> tuple[mp.Tool[[str, int], str], mp.Tool[[str], int]]:
    """Return an absolute tool, and one in the store's own transaction."""

    @mp.tool(effect="absolute", timeout=setup.timeout, retry=retry(setup))
    async def publish(call: mp.Call, name: str, if_version: int) -> str:
        args = {"name": name, "if_version": if_version}
        version = {"If-Match": str(if_version)}
        try:
            return await call.resource(Door).change(call, "absolute", "publish", args, **version)
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.PRECONDITION_FAILED:
                raise mp.Rejected(error.response.text) from error
            raise

    @publish.reconcile
    async def published(call: mp.Call, name: str, if_version: int) -> mp.Finding[str]:
        found = await call.resource(Door).found("absolute", "publish", name)
        return one_of([one for one in found if one["args"] == {"name": name, "if_version": if_version}])

    @mp.tool(effect="transactional")
    def note(tx: mp.Tx, name: str) -> int:
        tx.execute("CREATE TABLE IF NOT EXISTS notes (name TEXT)")
        tx.execute("INSERT INTO notes VALUES ($1)" if setup.store else "INSERT INTO notes VALUES (?)", (name,))
        return int(tx.execute("SELECT count(*) FROM notes")[0][0])

    return publish, note


def irreversible(setup: Setup) -> tuple[mp.Tool[[str], str], mp.Tool[[str], str]]:
    """Return two irreversible tools, over HTTP and by mail."""

    @mp.tool(timeout=setup.timeout)
    async def press(call: mp.Call, name: str) -> str:
        return await call.resource(Door).change(call, "irreversible", "press", {"name": name})

    @mp.tool(timeout=setup.timeout)
    def mail(call: mp.Call, name: str) -> str:
        call.resource(Door).mail(call, {"name": name})
        return f"mail to {name}"

    return press, mail


def hostile(setup: Setup) -> tuple[mp.Tool[[str, str], int], mp.Tool[[str], str], mp.Tool[[str, str], str]]:
    """Return a tool that takes much, one that uses a secret, and one that returns and raises what is no text."""

    @mp.tool(**{**keyed(setup), "timeout": "30s"})
    async def swallow(call: mp.Call, name: str, text: str) -> int:
        args = {"name": name, "text": text}
        await call.resource(Door).change(call, "keyed", "swallow", args, **{"Idempotency-Key": call.key})
        return len(text)

    @mp.tool(**keyed(setup))
    async def confide(call: mp.Call, name: str) -> str:
        secret = call.secret(TOKEN)
        told = {"Idempotency-Key": call.key, "Authorization": f"Bearer {secret}"}
        await call.resource(Door).change(call, "keyed", "confide", {"name": name}, **told)
        return sha256(secret.encode()).hexdigest()

    @mp.tool(**keyed(setup), visible_within=setup.visible_within)
    async def babble(call: mp.Call, name: str, how: str) -> str:
        await call.resource(Door).change(
            call, "keyed", "babble", {"name": name, "how": how}, **{"Idempotency-Key": call.key}
        )
        if how == "raises":
            raise ValueError(LONE)
        return LONE

    @babble.reconcile
    async def babbled(call: mp.Call, name: str, how: str) -> mp.Finding[str]:  # noqa: ARG001  the tool's own
        return one_of(await call.resource(Door).found("keyed", "babble", name))

    return swallow, confide, babble

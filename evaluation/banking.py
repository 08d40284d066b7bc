"""The banking functions as tools, and the workflow that makes a task's calls one segment at a time.

The classes say what the bank (`evaluation/bank.py`) honestly offers, no more:

* reads change nothing: `read`. The bank charges for each look (`LOOKS`), so that also a read is recorded as started
  before it is asked, and a kill during it lands between `started` and outcome. `record_version` is free.
* `send_money` is `queryable`: the bank can be asked about a reference, but it would execute a second request.
* `schedule_transaction` is `keyed`: the bank answers the second request with the first one's answer.
* the updates are `absolute`: they set fields, and carry the version of the record they were based on, so that a resend
  after success is refused; the reference then tells whose success it was.

A request that the bank has in hand may reach its books a little after the caller died; `VISIBLE` bounds that.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypedDict

import httpx

import milepost as mp
from evaluation.task import canonical

VISIBLE = "2s"
"""How long a request of a dead worker may still take to show in the bank's books (no proxy here holds one longer)."""

WRITE = "bank:write"
"""The scope that every consequential tool needs."""

LOOKS = "looks"
"""The unit in which the bank counts what it is asked."""

ONE_LOOK: mp.Cost = {LOOKS: 1}


class Transaction(TypedDict):
    """One line of a bank statement, or one standing order."""

    id: int
    sender: str
    recipient: str
    amount: float
    subject: str
    date: str
    recurring: bool


@dataclass(frozen=True)
class Bank:
    """One customer's access to the bank: `account` is the customer's, `client` speaks to the counter."""

    account: str
    client: httpx.AsyncClient

    async def call(self, function: str, reference: str = "", based_on: int | None = None, **args: Any) -> Any:
        """Run one of the bank's functions. Raises `mp.Rejected` or `mp.NotSent` where nothing ran for certain."""
        headers = {"Reference": reference} | ({} if based_on is None else {"If-Match": str(based_on)})
        body = {"function": function, "args": {name: value for name, value in args.items() if value is not None}}
        answer = await self._ask("POST", "calls", json=body, headers=headers)
        return answer["answer"]

    async def version(self) -> int:
        """The version of the customer's record; it rises with each change."""
        return int((await self._ask("GET", "version"))["version"])

    async def find(self, reference: str) -> mp.Finding[Any]:
        """What the bank's books say about a reference."""
        found = (await self._ask("GET", f"references/{reference}"))["found"]
        match found:
            case []:
                return mp.did_not_happen()
            case [answer]:
                return mp.happened(answer)
            case _:
                return mp.conflict(found)

    async def _ask(self, method: str, path: str, **parts: Any) -> Any:
        try:
            response = await self.client.request(method, f"/{self.account}/{path}", **parts)
        except httpx.HTTPError as error:
            known = mp.http.classify(error)
            if known is None:
                raise
            raise known from error
        if response.status_code in {412, 422}:  # the bank checks before it executes, and says so
            raise mp.Rejected(response.json()["why"])
        response.raise_for_status()
        return response.json()


def bank_at(url: str, account: str) -> Callable[[], AbstractAsyncContextManager[Bank]]:
    """How the app opens the bank, once a process: its address and the account are of the process, not of the record."""

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Bank]:
        async with httpx.AsyncClient(base_url=url, timeout=10, trust_env=False) as client:
            yield Bank(account, client)

    return opened


@mp.tool(effect="read", cost=ONE_LOOK)
async def get_iban(call: mp.Call) -> str:
    """The IBAN of the account."""
    return str(await call.resource(Bank).call("get_iban"))


@mp.tool(effect="read", cost=ONE_LOOK)
async def get_balance(call: mp.Call) -> float:
    """The balance of the account."""
    return float(await call.resource(Bank).call("get_balance"))


@mp.tool(effect="read", cost=ONE_LOOK)
async def get_most_recent_transactions(call: mp.Call, n: int = 100) -> list[Transaction]:
    """The last `n` transactions."""
    found: list[Transaction] = await call.resource(Bank).call("get_most_recent_transactions", n=n)
    return found


@mp.tool(effect="read", cost=ONE_LOOK)
async def get_scheduled_transactions(call: mp.Call) -> list[Transaction]:
    """The standing orders."""
    found: list[Transaction] = await call.resource(Bank).call("get_scheduled_transactions")
    return found


@mp.tool(effect="read", cost=ONE_LOOK)
async def read_file(call: mp.Call, file_path: str) -> str:
    """The text of a file of the customer."""
    return str(await call.resource(Bank).call("read_file", file_path=file_path))


@mp.tool(effect="read", cost=ONE_LOOK)
async def get_user_info(call: mp.Call) -> dict[str, str]:
    """Name and address of the customer."""
    found: dict[str, str] = await call.resource(Bank).call("get_user_info")
    return found


@mp.tool(effect="read")
async def record_version(call: mp.Call) -> int:
    """The version of the customer's record, which an update is then based on. Not a function of the suite."""
    return await call.resource(Bank).version()


@mp.tool(effect="queryable", visible_within=VISIBLE, timeout="15s", scopes=[WRITE])
async def send_money(call: mp.Call, recipient: str, amount: float, subject: str, date: str) -> dict[str, str]:
    """Pay somebody."""
    sent: dict[str, str] = await call.resource(Bank).call(
        "send_money", call.key, recipient=recipient, amount=amount, subject=subject, date=date
    )
    return sent


@send_money.reconcile
async def _sent(call: mp.Call, recipient: str, amount: float, subject: str, date: str) -> mp.Finding[dict[str, str]]:
    del recipient, amount, subject, date  # the reference names the payment
    return await call.resource(Bank).find(call.key)


@mp.tool(effect="keyed", key_ttl="24h", visible_within=VISIBLE, timeout="15s", scopes=[WRITE])
async def schedule_transaction(
    call: mp.Call,
    recipient: str,
    amount: float,
    subject: str,
    date: str,
    recurring: bool,  # noqa: FBT001 - the suite's
) -> dict[str, str]:
    """Set up a standing order."""
    set_up: dict[str, str] = await call.resource(Bank).call(
        "schedule_transaction",
        call.key,
        recipient=recipient,
        amount=amount,
        subject=subject,
        date=date,
        recurring=recurring,
    )
    return set_up


@mp.tool(effect="absolute", visible_within=VISIBLE, timeout="15s", scopes=[WRITE])
async def update_scheduled_transaction(
    call: mp.Call,
    id: int,
    based_on: int,
    recipient: str | None = None,
    amount: float | None = None,
    subject: str | None = None,
    date: str | None = None,
    recurring: bool | None = None,  # noqa: FBT001 - the suite's signature
) -> dict[str, str]:
    """Change a standing order, if the record is still at version `based_on`."""
    changed: dict[str, str] = await call.resource(Bank).call(
        "update_scheduled_transaction",
        call.key,
        based_on,
        id=id,
        recipient=recipient,
        amount=amount,
        subject=subject,
        date=date,
        recurring=recurring,
    )
    return changed


@update_scheduled_transaction.reconcile
async def _standing_order_changed(
    call: mp.Call,
    id: int,
    based_on: int,
    recipient: str | None = None,
    amount: float | None = None,
    subject: str | None = None,
    date: str | None = None,
    recurring: bool | None = None,  # noqa: FBT001 - the suite's signature
) -> mp.Finding[dict[str, str]]:
    del id, based_on, recipient, amount, subject, date, recurring  # the reference names the update
    return await call.resource(Bank).find(call.key)


@mp.tool(effect="absolute", visible_within=VISIBLE, timeout="15s", scopes=[WRITE])
async def update_user_info(
    call: mp.Call,
    based_on: int,
    first_name: str | None = None,
    last_name: str | None = None,
    street: str | None = None,
    city: str | None = None,
) -> dict[str, str]:
    """Change name or address, if the record is still at version `based_on`."""
    changed: dict[str, str] = await call.resource(Bank).call(
        "update_user_info",
        call.key,
        based_on,
        first_name=first_name,
        last_name=last_name,
        street=street,
        city=city,
    )
    return changed


@update_user_info.reconcile
async def _user_info_changed(
    call: mp.Call,
    based_on: int,
    first_name: str | None = None,
    last_name: str | None = None,
    street: str | None = None,
    city: str | None = None,
) -> mp.Finding[dict[str, str]]:
    del based_on, first_name, last_name, street, city  # the reference names the update
    return await call.resource(Bank).find(call.key)


@mp.tool(effect="absolute", visible_within=VISIBLE, timeout="15s", scopes=[WRITE])
async def update_password(call: mp.Call, password: str, based_on: int) -> dict[str, str]:
    """Set the password, if the record is still at version `based_on`."""
    changed: dict[str, str] = await call.resource(Bank).call("update_password", call.key, based_on, password=password)
    return changed


@update_password.reconcile
async def _password_changed(call: mp.Call, password: str, based_on: int) -> mp.Finding[dict[str, str]]:
    del password, based_on  # the reference names the update
    return await call.resource(Bank).find(call.key)


READS: tuple[mp.Tool[..., Any], ...] = (
    get_iban,
    get_balance,
    get_most_recent_transactions,
    get_scheduled_transactions,
    read_file,
    get_user_info,
)
UPDATES: tuple[mp.Tool[..., Any], ...] = (update_scheduled_transaction, update_user_info, update_password)
TOOLS: Mapping[str, mp.Tool[..., Any]] = {
    tool.name: tool for tool in (*READS, send_money, schedule_transaction, *UPDATES)
}
BASED_ON_A_VERSION = frozenset(tool.name for tool in UPDATES)


@dataclass(frozen=True)
class Planned:
    """One call that remains to be made, as the suite's authors wrote it down."""

    function: str
    args: dict[str, Any]


@dataclass(frozen=True)
class Progress:
    """What remains, and what each finished call answered (as JSON text, which is what an agent would be shown)."""

    remaining: list[Planned]
    answers: list[str] = field(default_factory=list)


banking = mp.Workflow("banking", version="1", input=Progress, result=list[str], tools=[*TOOLS.values(), record_version])


@banking.segment
async def act(run: mp.Run, progress: Progress) -> mp.Next[list[str]]:
    """Make one call; the checkpoint behind it says that it is done."""
    planned, *remaining = progress.remaining
    args = planned.args
    if planned.function in BASED_ON_A_VERSION:
        args = {**args, "based_on": await record_version()}
    answer = await TOOLS[planned.function].from_json(args)
    answers = [*progress.answers, canonical(answer)]
    run.progress(len(answers), len(answers) + len(remaining), planned.function)
    return mp.go(act, Progress(remaining, answers)) if remaining else mp.done(answers)

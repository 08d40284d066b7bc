import asyncio
import threading
from collections.abc import Callable, Generator, Iterable
from contextvars import copy_context
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from milepost.core.retry import Retry
from milepost.definitions.arguments import Bound
from milepost.definitions.call import CURRENT, Call, CallScope, Finding, Step, Tx, did_not_happen, happened
from milepost.definitions.secrets import SecretMissing
from milepost.definitions.tools import Tool, tool
from milepost.errors import InvalidArguments, InvalidDeclaration, InvalidValue, NestedStep, NoRun


@dataclass(frozen=True)
class Receipt:
    order: str
    cents: int


class Noted(Step[None]):
    """A step that has no result to wait for."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


class Branch:
    """A caller that only notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes]] = []

    def call(self, tool: Tool[..., Any], bound: Bound, /) -> Step[Any]:
        self.asked.append((tool.name, bound.data))
        return Noted()


def inside(caller: Any, act: Callable[[], Any]) -> Any:
    """Call with `caller` as the current one, in a context of its own."""

    def enter() -> Any:
        CURRENT.set(caller)
        return act()

    return copy_context().run(enter)


@tool(
    effect="keyed", key_ttl="24h", visible_within="30s", timeout="20s", scopes=["payments:charge"], once="order",
    version="3", risk="high", retry=Retry(5), repeatable=True, volatile=["trace"],
)  # fmt: skip
async def charge(call: Call, order: str, cents: int, trace: str = "") -> Receipt:
    """Charge the customer."""
    call.spent(usd=1)
    return Receipt(order, cents)


@tool
def mail(to: str, body: str) -> None:
    """Send a mail."""


def test_a_tool_carries_what_was_declared() -> None:
    """Requirement 14."""
    assert (charge.name, charge.version, charge.effect, charge.risk) == ("charge", "3", "keyed", "high")
    assert (charge.key_ttl_ms, charge.visible_ms, charge.timeout_ms) == (86_400_000, 30_000, 20_000)
    assert (charge.scopes, charge.once, charge.volatile) == (
        frozenset({"payments:charge"}),
        ("order",),
        frozenset({"trace"}),
    )
    assert (charge.takes, charge.is_async, charge.repeatable, charge.retry) == ("call", True, True, Retry(5))
    assert charge.description == charge.__doc__ == "Charge the customer."
    assert list(charge.parameters["properties"]) == ["order", "cents", "trace"]
    assert charge.result.write(Receipt("o", 1)) == b'{"order":"o","cents":1}'
    assert (charge.facts.effect, charge.facts.reconcilable, charge.facts.tries) == ("keyed", False, 5)


def test_a_bare_tool_is_irreversible_and_gets_the_defaults() -> None:
    assert (mail.name, mail.version, mail.effect, mail.risk) == ("mail", "1", "irreversible", "low")
    assert (mail.key_ttl_ms, mail.visible_ms, mail.timeout_ms, mail.retry) == (None, None, 60_000, Retry())
    assert (mail.takes, mail.is_async, mail.costed, mail.approval) == (None, False, False, False)
    assert vars(mail)["__name__"] == "mail"
    assert repr(mail) == "<tool mail version 1, irreversible>"


def test_outside_a_run_a_tool_refuses_and_names_the_way_out() -> None:
    with pytest.raises(NoRun, match=r"mail\.direct"):
        _ = mail("a", "b")
    with pytest.raises(NoRun):
        _ = mail.from_json("{}")


def test_inside_a_run_a_call_goes_to_the_branch() -> None:
    branch = Branch()

    inside(branch, lambda: (mail("a", body="b"), mail.from_json('{"body": "d", "to": "c"}')))

    assert branch.asked == [("mail", b'{"to":"a","body":"b"}'), ("mail", b'{"to":"c","body":"d"}')]


def test_arguments_that_do_not_fit_never_reach_the_branch() -> None:
    branch = Branch()

    with pytest.raises(InvalidArguments):
        inside(branch, lambda: mail("a", 5))  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments):
        inside(branch, lambda: mail.from_json({"to": "a"}))

    assert branch.asked == []


def test_a_tool_called_inside_a_tool_is_refused() -> None:
    with pytest.raises(NestedStep, match="mail was called inside charge"):
        inside(CallScope("charge"), lambda: mail("a", "b"))


def test_direct_calls_the_bare_function_and_a_def_runs_in_a_thread() -> None:
    @tool
    def where(to: str) -> int:
        return threading.get_ident()

    async def both() -> tuple[int, Receipt]:
        return await where.direct("a"), await charge.direct("o", cents=2)

    thread, receipt = asyncio.run(both())

    assert thread != threading.get_ident()
    assert receipt == Receipt("o", 2)


def test_direct_gives_a_call_with_secrets_of_the_environment_and_no_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRIPE_KEY", "s3")
    seen: list[Call] = []

    @tool(timeout="30s")
    async def look(call: Call) -> str:
        seen.append(call)
        return call.secret("STRIPE_KEY")

    @tool
    def reach(call: Call) -> None:
        call.resource(Receipt)

    @tool
    def missing(call: Call) -> None:
        call.secret("NO_SUCH_KEY")

    assert asyncio.run(_await(look.direct())) == "s3"
    assert (seen[0].key, seen[0].attempt) == ("direct", 1)
    assert 0 < (seen[0].deadline - datetime.now(UTC)).total_seconds() <= 30
    with pytest.raises(InvalidDeclaration, match="resource Receipt"):
        asyncio.run(_await(reach.direct()))
    with pytest.raises(SecretMissing):
        asyncio.run(_await(missing.direct()))


async def _await(step: Any) -> Any:
    return await step


def test_a_transactional_tool_takes_the_transaction_and_cannot_be_called_directly() -> None:
    @tool(effect="transactional")
    def book(tx: Tx, order: str) -> int:
        return len(tx.execute("…", (order,)))

    assert (book.takes, book.is_async, list(book.parameters["properties"])) == ("tx", False, ["order"])
    with pytest.raises(InvalidDeclaration, match="Call it in a run"):
        _ = book.direct("o")


def test_a_reconciler_may_take_the_call_or_not_and_wait_or_not() -> None:
    """Requirement 14."""

    def plain() -> Tool[..., str]:
        @tool(effect="queryable")
        def pay(order: str, cents: int) -> str:
            return ""

        return pay

    first, second = plain(), plain()

    @first.reconcile
    def look(order: str, cents: int) -> Finding[str]:
        return did_not_happen()

    @second.reconcile
    async def ask(call: Call, order: str, cents: int) -> Finding[str]:
        return happened(call.key)

    assert first.reconciler is not None
    assert second.reconciler is not None
    assert (first.reconciler.fn, first.reconciler.is_async, first.reconciler.takes_call) == (look, False, False)
    assert (second.reconciler.fn, second.reconciler.is_async, second.reconciler.takes_call) == (ask, True, True)
    assert first.facts.reconcilable
    bound = first.arguments.bind(("o", 1), {})
    assert bound.call(first.reconciler.fn) == did_not_happen()
    with pytest.raises(InvalidDeclaration, match="two reconcilers"):
        first.reconcile(look)


def wrong_count(order: str) -> Any: ...
def wrong_order(cents: int, order: str) -> Any: ...
def wrong_extra(order: str, cents: int, more: int) -> Any: ...
def wrong_keyword(order: str, *, cents: int) -> Any: ...


@pytest.mark.parametrize("fn", [wrong_count, wrong_order, wrong_extra, wrong_keyword])
def test_a_reconciler_or_cost_that_cannot_be_called_like_the_tool_is_refused(fn: Any) -> None:
    @tool(effect="queryable")
    def pay(order: str, cents: int) -> str:
        return ""

    for declare in (pay.reconcile, pay.cost):
        with pytest.raises(InvalidDeclaration, match=r"\(order, cents\)"):
            declare(fn)


@pytest.mark.parametrize("effect", ["read", "transactional"])
def test_a_tool_whose_outcome_is_never_unknown_takes_no_reconciler(effect: Any) -> None:
    fn: Any = look_up if effect == "read" else write_row
    declared = tool(effect=effect)(fn)

    with pytest.raises(InvalidDeclaration, match="never unknown"):
        declared.reconcile(ask_for)


def look_up(order: str) -> str:
    return order


def ask_for(order: str) -> Finding[str]:
    return happened(order)


def write_row(tx: Tx, order: str) -> str:
    return order


def test_what_undoes_a_tool_takes_its_result() -> None:
    @tool
    async def pay(order: str) -> Receipt:
        return Receipt(order, 1)

    @tool
    async def refund(receipt: Receipt, why: str = "rewound") -> None: ...

    @tool
    async def two(receipt: Receipt, why: str) -> None: ...

    @tool
    async def named(receipt: Receipt, *, why: str) -> None: ...

    assert pay.compensate(refund) is refund
    assert pay.compensation is refund
    for wrong in (two, named, two.fn, None):
        with pytest.raises(InvalidDeclaration, match="one parameter"):
            pay.compensate(wrong)  # type: ignore[arg-type]


def test_a_cost_is_fixed_or_computed_from_the_arguments() -> None:
    @tool(effect="read", cost={"usd": Decimal("0.05"), "calls": 1})
    async def ask(text: str) -> str:
        return text

    @tool(effect="keyed")
    async def pay(call: Call, order: str, cents: int) -> None: ...

    @pay.cost
    def _(order: str, cents: int) -> dict[str, Decimal]:
        return {"usd": Decimal(cents) / 100}

    assert ask.costed
    assert ask.cost_of(ask.arguments.bind(("x",), {})) == {"usd": Decimal("0.05"), "calls": Decimal(1)}
    assert pay.costed
    assert pay.cost_of(pay.arguments.bind(("o", 250), {})) == {"usd": Decimal("2.5")}
    assert mail.cost_of(mail.arguments.bind(("a", "b"), {})) == {}
    with pytest.raises(InvalidDeclaration, match="one cost"):
        ask.cost(lambda text: {})  # noqa: ARG005


def test_a_computed_cost_that_is_no_amount_is_refused() -> None:
    @tool
    def pay(cents: int) -> None: ...

    @pay.cost
    def _(cents: int) -> Any:
        return {"usd": cents / 100}

    with pytest.raises(InvalidValue, match="cost of pay"):
        pay.cost_of(pay.arguments.bind((5,), {}))


@pytest.mark.parametrize(("approval", "needed"), [(False, False), (True, True)])
def test_an_approval_is_always_or_never_needed(approval: bool, needed: bool) -> None:  # noqa: FBT001
    @tool(approval=approval)
    def pay(cents: int) -> None: ...

    assert pay.needs_approval(pay.arguments.bind((5,), {})) is needed


def no_answer(cents: int) -> Any:
    return None


def test_an_approval_rule_sees_the_arguments_and_asks_when_it_errs() -> None:
    @tool(approval=lambda cents: 100 // (cents - 5) < 2)
    def pay(cents: int) -> None: ...

    @tool(approval=no_answer)
    def vague(cents: int) -> None: ...

    assert pay.needs_approval(pay.arguments.bind((1_000,), {}))
    assert not pay.needs_approval(pay.arguments.bind((6,), {}))
    assert pay.needs_approval(pay.arguments.bind((5,), {}))
    assert vague.needs_approval(vague.arguments.bind((6,), {}))


def test_a_business_identity_is_the_same_text_for_the_same_values() -> None:
    @tool(once=("to", "day"))
    def send(to: str, day: int, body: str) -> None: ...

    one = send.once_of(send.arguments.bind(("a", 1, "x"), {}))

    assert one == send.once_of(send.arguments.from_json({"body": "y", "day": 1, "to": "a"})) == '["a",1]'
    assert mail.once_of(mail.arguments.bind(("a", "b"), {})) is None


def test_the_fingerprint_changes_with_the_source() -> None:
    def before() -> Tool[[int], int]:
        @tool
        def pay(cents: int) -> int:
            return cents

        return pay

    def after() -> Tool[[int], int]:
        @tool
        def pay(cents: int) -> int:
            return cents + 1

        return pay

    assert len(before().fingerprint) == 64
    assert before().fingerprint == before().fingerprint != after().fingerprint


def names(*args: str) -> Iterable[str]:
    return args


WRONG: list[tuple[dict[str, Any], Any, str]] = [
    ({"effect": "exactly_once"}, look_up, "'exactly_once' is none of read, keyed"),
    ({"risk": "tiny"}, look_up, "'tiny' is none of low"),
    ({"name": "a/b"}, look_up, "tool name 'a/b'"),
    ({"name": "x" * 65}, look_up, "up to 64 letters"),
    ({"version": ""}, look_up, "write it as text"),
    ({"version": 1}, look_up, "write it as text"),
    ({"timeout": "fast"}, look_up, "timeout of tool look_up: 'fast' is no span"),
    ({"timeout": "0s"}, look_up, "timeout of zero"),
    ({"timeout": 5}, look_up, "timeout of tool look_up"),
    ({"key_ttl": "1h"}, look_up, 'only effect="keyed"'),
    ({"effect": "keyed", "key_ttl": "-1h"}, look_up, "key_ttl of tool look_up"),
    ({"scopes": "payments"}, look_up, "'payments' is no list of names"),
    ({"scopes": [5]}, look_up, "no list of names"),
    ({"volatile": "order"}, look_up, "no list of names"),
    ({"volatile": ["trace"]}, look_up, "trace, which is no parameter"),
    ({"once": "invoice"}, look_up, "invoice, which is no parameter"),
    ({"once": "order", "volatile": ["order"]}, look_up, "an identity cannot vary"),
    ({"effect": "read", "once": "order"}, look_up, "once= is for effects"),
    ({"effect": "read", "visible_within": "1s"}, look_up, "visible_within= is for effects"),
    ({"cost": {"usd": 0.5}}, look_up, "cost of tool look_up['usd']"),
    ({"cost": {"usd": -1}}, look_up, "zero or more"),
    ({"cost": 5}, look_up, "int"),
    ({"effect": "transactional"}, look_up, "first parameter must be a Tx"),
    ({}, write_row, 'declare it effect="transactional"'),
]


@pytest.mark.parametrize(("options", "fn", "why"), WRONG)
def test_a_promise_that_cannot_be_kept_is_refused_when_it_is_declared(
    options: dict[str, Any], fn: Any, why: str
) -> None:
    declare: Any = tool

    with pytest.raises(InvalidDeclaration) as refused:
        declare(**options)(fn)

    assert why in str(refused.value)


def test_a_transactional_tool_cannot_wait() -> None:
    async def book(tx: Tx, order: str) -> None: ...

    with pytest.raises(InvalidDeclaration, match="plain def"):
        tool(effect="transactional")(book)


def test_an_async_cost_is_refused() -> None:
    @tool
    def pay(cents: int) -> None: ...

    async def cost(cents: int) -> Any: ...

    with pytest.raises(InvalidDeclaration, match="plain def"):
        pay.cost(cost)  # type: ignore[arg-type]

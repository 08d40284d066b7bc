"""Tools that a JSON schema declares: their arguments, their digest, who sends them, what the manifest says of them."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost.adapters.foreign import foreign, through
from tests.runtime.stage import Stage

PAY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "order": {"type": "string"},
        "cents": {"type": "integer"},
        "note": {"type": ["string", "null"]},
        "user-id": {"type": "string"},
        "class": {"type": "string"},
        "call": {"type": "string"},
    },
    "required": ["order", "cents"],
}


class Handler:
    """A framework's own handler."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.keys: list[str] = []

    async def __call__(self, call: mp.Call, arguments: dict[str, Any]) -> Any:
        self.sent.append(arguments)
        self.keys.append(call.key)
        return {"did": arguments}


def digest(schema: Mapping[str, Any], **arguments: Any) -> str:
    """Return what identifies a call."""
    return foreign("pay", schema).arguments.bind((), arguments).digest


# ---------------------------------------------------------------- arguments


async def test_arguments_are_sent_as_given_and_what_is_absent_stays_absent(stage: Stage) -> None:
    pay, handler = foreign("pay", PAY), Handler()
    given = {"order": "o-1", "cents": 5, "user-id": "u", "class": "c", "call": "x"}
    app = mp.App(stage.url, tools=[pay])

    async with app.attach(key="k") as run:
        with through(pay, handler, given):
            outcome = await run.attempt("c1", pay, **given)
        with through(pay, handler, {"order": "o-2", "cents": 5, "note": None}):
            await run.attempt("c2", pay, order="o-2", cents=5, note=None)

    assert outcome == mp.Confirmed({"did": given})
    assert handler.sent == [given, {"order": "o-2", "cents": 5, "note": None}]


async def test_each_argument_is_a_name_of_its_own_to_policy_approval_and_cost(stage: Stage, tmp_path: Path) -> None:
    """Requirement 71. A rule says args.cents, whatever declared the tool."""
    (tmp_path / "policy.toml").write_text(
        'version = "1"\n'
        '[[rule]]\nname = "small"\nwhen = "args.cents <= 100"\nverdict = "allow"\n'
        '[[rule]]\nname = "large"\nwhen = "args.cents > 100"\nverdict = "deny"\n'
    )

    def is_large(cents: int, **rest: Any) -> bool:
        return cents > 50

    pay = foreign("pay", PAY, approval=is_large)

    @pay.cost
    def _(*, cents: int, **rest: Any) -> dict[str, int]:
        return {"cents": cents}

    handler = Handler()
    app = mp.App(stage.url, tools=[pay], policy=str(tmp_path / "policy.toml"))

    async def attempt(run: mp.AttachedRun, id_: str, cents: int) -> mp.Outcome[Any]:
        given = {"order": id_, "cents": cents}
        with through(pay, handler, given):
            return await run.attempt(id_, pay, **given)

    async with app.attach(key="k", budget={"cents": 60}) as run:
        assert isinstance(await attempt(run, "c1", 40), mp.Confirmed)
        denied = await attempt(run, "c2", 400)
        assert isinstance(denied, mp.Failed)
        assert "large" in denied.why
        asked = await attempt(run, "c3", 60)
        assert isinstance(asked, mp.Waiting)
        assert asked.reason == "approval"
        short = await attempt(run, "c4", 30)
        assert isinstance(short, mp.Waiting)
        assert short.reason == "budget"
    assert [sent["cents"] for sent in handler.sent] == [40]


def test_a_missing_or_made_up_argument_is_refused_in_words_for_the_model() -> None:
    pay = foreign("pay", PAY)

    with pytest.raises(mp.InvalidArguments, match="it needs cents") as missing:
        pay.arguments.from_json('{"order": "o-1"}')
    with pytest.raises(mp.InvalidArguments, match="no argument amount; it takes call, cents, class"):
        pay.arguments.from_json({"order": "o-1", "cents": 1, "amount": 5})
    with pytest.raises(mp.InvalidArguments, match="by name"):
        pay.arguments.bind(("o-1", 5), {})
    assert "Nothing was done" in missing.value.for_model()


@pytest.mark.parametrize(
    ("schema", "is_open"),
    [
        ({"type": "object"}, True),
        ({}, True),
        ({"type": "object", "properties": {}}, False),
        ({"type": "object", "additionalProperties": False}, False),
        ({"properties": {"a": {}}, "additionalProperties": True}, True),
        ({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}, True),
        ({"properties": {"a": {}}, "patternProperties": {"^x-": {}}}, True),
        ({"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}]}, True),
        ({"$ref": "#/$defs/In", "$defs": {"In": {"type": "object", "properties": {"a": {}}}}}, False),
    ],
)
def test_names_that_a_schema_does_not_list_are_allowed_where_it_says_so(
    schema: dict[str, Any], *, is_open: bool
) -> None:
    arguments = foreign("pay", schema).arguments

    if is_open:
        assert arguments.bind((), {"anything at all": 1}).named() == {"anything at all": 1}
    else:
        with pytest.raises(mp.InvalidArguments, match="anything at all"):
            arguments.bind((), {"anything at all": 1})


@pytest.mark.parametrize("schema", [{"type": "array"}, {"type": "object", "properties": [1]}, {"x": object()}])
def test_what_is_no_schema_of_an_object_is_refused_at_declaration(schema: dict[str, Any]) -> None:
    with pytest.raises(mp.InvalidDeclaration, match="tool pay"):
        foreign("pay", schema)


def test_what_is_declared_about_arguments_must_be_there_to_hold() -> None:
    with pytest.raises(mp.InvalidDeclaration, match="no parameter"):
        foreign("pay", PAY, once="ordr")
    with pytest.raises(mp.InvalidDeclaration, match="note, which a call may leave out"):
        foreign("pay", PAY, once=["order", "note"])
    with pytest.raises(mp.InvalidDeclaration, match="effekt"):
        foreign("pay", PAY, effekt="read")


def misspelt(ordr: str, **rest: Any) -> mp.Finding[Any]:
    return mp.did_not_happen()


def needing_what_may_be_absent(note: str, **rest: Any) -> mp.Finding[Any]:
    return mp.did_not_happen()


def taking_few(order: str, cents: int) -> mp.Finding[Any]:
    return mp.did_not_happen()


def taking_nothing() -> mp.Finding[Any]:
    return mp.did_not_happen()


@pytest.mark.parametrize(
    ("schema", "reconciler", "why"),
    [
        (PAY, misspelt, "takes ordr, which the schema does not name"),
        (PAY, needing_what_may_be_absent, "default to note, which a call may leave out"),
        (PAY, taking_few, "must take call, class, note, user-id"),
        ({"type": "object"}, taking_nothing, "the schema allows more than it lists"),
    ],
)
def test_a_reconciler_that_could_not_be_called_is_refused_at_declaration(
    schema: dict[str, Any], reconciler: Any, why: str
) -> None:
    tool: mp.Tool[..., Any] = foreign("pay", schema, effect="queryable")

    with pytest.raises(mp.InvalidDeclaration, match=why):
        tool.reconcile(reconciler)


def test_nothing_that_is_not_declared_is_taken_for_harmless() -> None:
    pay = foreign("pay", PAY)

    assert pay.effect == "irreversible"
    assert pay.needs_approval(pay.arguments.bind((), {"order": "o", "cents": 1})) is False


# ---------------------------------------------------------------- identity


def test_a_digest_depends_on_neither_the_order_of_schema_nor_of_arguments() -> None:
    turned = {**PAY, "properties": dict(reversed(PAY["properties"].items())), "required": ["cents", "order"]}

    assert digest(PAY, order="o", cents=1) == digest(turned, cents=1, order="o")
    assert digest(PAY, order="o", cents=1) != digest(PAY, order="o", cents=1, note=None)


def test_a_digest_is_the_same_in_every_process() -> None:
    program = (
        "import json, sys; from milepost.adapters.foreign import foreign; schema, given = json.load(sys.stdin); "
        "tool = foreign('pay', schema); print(tool.arguments.bind((), given).digest, tool.fingerprint)"
    )
    given = {"order": "o", "cents": 1, "user-id": "ü"}
    told = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        asked = json.dumps([PAY, given]).encode()
        ended = subprocess.run(
            [sys.executable, "-c", program], input=asked, env=environment, check=True, capture_output=True
        )
        told.add(ended.stdout.decode().strip())
    pay = foreign("pay", PAY)
    assert told == {f"{pay.arguments.bind((), given).digest} {pay.fingerprint}"}


def test_volatile_arguments_are_sent_and_identify_nothing() -> None:
    pay = foreign("pay", PAY, volatile=["note"])
    one = pay.arguments.bind((), {"order": "o", "cents": 1, "note": "a"})
    two = pay.arguments.bind((), {"order": "o", "cents": 1, "note": "b"})

    assert one.digest == two.digest
    assert one.named()["note"] == "a"


async def test_a_changed_schema_shows_in_the_manifest_as_changed_code_does(stage: Stage) -> None:
    """Requirement 44. What a tool is, is a part of its version."""
    changed = {**PAY, "properties": {**PAY["properties"], "cents": {"type": "number"}}}

    assert foreign("pay", PAY).fingerprint == foreign("pay", PAY).fingerprint
    assert foreign("pay", PAY).fingerprint != foreign("pay", changed).fingerprint
    assert foreign("pay", PAY).fingerprint != foreign("pay", PAY, description="Pays.").fingerprint
    assert foreign("pay", PAY).parameters == PAY
    assert list(foreign("pay", PAY).parameters["properties"]) == list(PAY["properties"])


# ---------------------------------------------------------------- who sends


async def test_without_a_host_nothing_is_sent_and_that_is_certain(stage: Stage) -> None:
    pay, handler = foreign("pay", PAY, retry=mp.Retry(1)), Handler()
    app = mp.App(stage.url, tools=[pay])

    async with app.attach(key="k") as run:
        outcome = await run.attempt("c1", pay, order="o", cents=1)
        with through(pay, handler, {"order": "o", "cents": 2}):
            other = await run.attempt("c2", pay, order="o", cents=1)

    assert isinstance(outcome, mp.Failed)
    assert "nobody is here to send pay" in outcome.why
    assert isinstance(other, mp.Failed)
    assert handler.sent == []


async def test_a_host_that_has_left_sends_nothing_any_more(stage: Stage) -> None:
    pay, handler = foreign("pay", PAY, retry=mp.Retry(1)), Handler()
    app = mp.App(stage.url, tools=[pay])
    go = asyncio.Event()

    async def later(run: mp.AttachedRun) -> mp.Outcome[Any]:
        await go.wait()
        return await run.attempt("c1", pay, order="o", cents=1)

    async with app.attach(key="k") as run:
        with through(pay, handler, {"order": "o", "cents": 1}):
            task = asyncio.ensure_future(later(run))
            await asyncio.sleep(0)
        go.set()
        assert isinstance(await task, mp.Failed)
    assert handler.sent == []


async def test_calls_at_once_are_each_sent_by_their_own_host(stage: Stage) -> None:
    pay = foreign("pay", PAY)
    app = mp.App(stage.url, tools=[pay])

    async def attempt(run: mp.AttachedRun, cents: int) -> mp.Outcome[Any]:
        async def mine(call: mp.Call, arguments: dict[str, Any]) -> Any:
            await asyncio.sleep(0)
            return [cents, arguments["cents"]]

        with through(pay, mine, {"order": "o", "cents": cents}):
            return await run.attempt(f"c{cents}", pay, order="o", cents=cents)

    async with app.attach(key="k") as run:
        outcomes = await asyncio.gather(*(attempt(run, cents) for cents in range(5)))
    assert outcomes == [mp.Confirmed([cents, cents]) for cents in range(5)]


async def test_a_resend_of_one_call_is_never_sent_by_the_host_of_another(stage: Stage) -> None:
    """Requirement 51. The host of the second call would send the second call again."""
    pay = foreign("pay", PAY, effect="keyed", key_ttl="1h")
    app = mp.App(stage.url, tools=[pay], clock=stage.clock)
    sent: list[tuple[str, int]] = []

    async def breaks(call: mp.Call, arguments: dict[str, Any]) -> Any:
        sent.append(("first", arguments["cents"]))
        raise RuntimeError("line broke")

    async def second(call: mp.Call, arguments: dict[str, Any]) -> Any:
        sent.append(("second", arguments["cents"]))
        return "ok"

    first = {"order": "o", "cents": 1}
    other = {"order": "o", "cents": 2}
    async with app.attach(key="k") as run:
        with through(pay, breaks, first):
            waiting = await run.attempt("c1", pay, **first)
        assert isinstance(waiting, mp.Waiting)
        stage.clock.advance("1m")  # the first is due to be sent again: whoever looks next makes it so
        with through(pay, second, other):
            again = await run.attempt("c1", pay, **first)
            assert await run.attempt("c2", pay, **other) == mp.Confirmed("ok")
        assert isinstance(again, mp.Waiting)
        stage.clock.advance("10m")
        with through(pay, second, first):
            assert await run.attempt("c1", pay, **first) == mp.Confirmed("ok")
    assert sent == [("first", 1), ("second", 2), ("second", 1)]


async def test_a_def_is_sent_in_a_thread_and_a_send_that_is_declared_needs_no_host(stage: Stage) -> None:
    def where(call: mp.Call, arguments: dict[str, Any]) -> str:
        return threading.current_thread().name

    pay, mail = foreign("pay", PAY), foreign("mail", {"type": "object"}, where)
    app = mp.App(stage.url, tools=[pay, mail])

    async with app.attach(key="k") as run:
        with through(pay, where, {"order": "o", "cents": 1}):
            in_thread = await run.attempt("c1", pay, order="o", cents=1)
        declared = await run.attempt("c2", mail, to="ann")

    for outcome in (in_thread, declared):
        assert isinstance(outcome, mp.Confirmed)
        assert outcome.value.startswith("milepost-tool")


async def test_a_def_that_returns_a_coroutine_has_sent_nothing(stage: Stage) -> None:
    pay, handler = foreign("pay", PAY, retry=mp.Retry(1)), Handler()
    app = mp.App(stage.url, tools=[pay])
    given = {"order": "o", "cents": 1}

    def hands_on(call: mp.Call, arguments: dict[str, Any]) -> Any:
        return handler(call, arguments)

    async with app.attach(key="k") as run:
        with through(pay, hands_on, given):
            outcome = await run.attempt("c1", pay, **given)

    assert isinstance(outcome, mp.Failed)
    assert "declare it async def" in outcome.why
    assert handler.sent == []


async def test_a_foreign_tool_is_reconciled_by_what_was_given(stage: Stage) -> None:
    pay = foreign("pay", PAY, effect="queryable", visible_within="0s")
    asked: list[dict[str, Any]] = []

    @pay.reconcile
    async def _(call: mp.Call, **arguments: Any) -> mp.Finding[Any]:
        asked.append(arguments)
        return mp.happened("found")

    async def breaks(call: mp.Call, arguments: dict[str, Any]) -> Any:
        raise RuntimeError("line broke")

    app = mp.App(stage.url, tools=[pay])
    given = {"order": "o", "cents": 1, "user-id": "u"}
    async with app.attach(key="k") as run:
        with through(pay, breaks, given):
            assert await run.attempt("c1", pay, **given) == mp.Confirmed("found")
    assert asked == [given]

"""With a trust file a grant and a resolution count only with the signature of an operator who may give them."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost.core import codec, words
from milepost.core import entries as e
from milepost.core import messages as m
from milepost.operations import keys, vouching
from milepost.stores.api import Append, Claim, Deliver, Post
from tests.runtime.bank import Bank, paying, tool_of
from tests.runtime.policies import Outside, fields, mailing, one_call
from tests.runtime.stage import Stage, has_entry, parked, status_of, until
from tests.runtime.test_approvals import asked, refusals
from tests.runtime.test_signed_approvals import Desk

PATH = "flow/charge#1"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path)
    made.trusts(ann=["grant", "resolve"], bob=["approve"])
    return made


async def deliver(app: mp.App, run_id: str, name: str, message: m.Message) -> None:
    """Put a message into the inbox by hand, as anybody with the store could."""
    engine = app._need_engine()
    await engine.writer.durable(Deliver(Post(run_id, name, m.encode(message), 1)))
    engine.woken.set()


async def vouched(app: mp.App, run_id: str, desk: Desk) -> vouching.Vouched:
    """Look at every signature of a run again."""
    store, trust = app._need_engine().store, keys.load(desk.trust)
    return await vouching.vouch(store, run_id, trust, 1)


def costly(outside: Outside) -> mp.Workflow[str, str]:
    return one_call(mailing(outside, effect="keyed", key_ttl="24h", cost={"usd": 5}, scopes=["mail"]))


# ---------------------------------------------------------------- grants


async def test_a_grant_counts_with_the_signature_of_an_operator_who_may_grant(stage: Stage, desk: Desk) -> None:
    """Requirement 20. Requirement 25. It stays in the record, in front of what it gave."""
    outside = Outside()
    flow = costly(outside)
    async with stage.app(flow, trust=desk.trust) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "authority")
        await app.grant(handle.id, scopes=["mail"], budget={"usd": 5}, why="asked for", key=desk.key("ann"))
        assert await handle.result(timeout="30s") == "sent ann"
        lines = [line.name for line in await app.inspect.journal(handle.id)]
        found = await vouched(app, handle.id, desk)
    assert lines[lines.index("widened") - 1] == "word_signed"
    assert (found.held, found.doubts) == (1, [])


@pytest.mark.parametrize(("who", "code"), [("", "unsigned"), ("mallory", "unknown_signer"), ("bob", "not_permitted")])
async def test_a_grant_of_nobody_of_a_stranger_or_of_one_who_may_not_gives_nothing(
    stage: Stage, desk: Desk, who: str, code: str
) -> None:
    """Requirement 25. Requirement 72."""
    outside = Outside()
    flow = costly(outside)
    async with stage.app(flow, trust=desk.trust) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "authority")
        await app.grant(handle.id, by="ann", scopes=["mail"], budget={"usd": 5}, key=desk.key(who) if who else None)
        await has_entry(app, handle.id, "message_refused")
        await parked(handle, "authority")
        (refused,) = await fields(app, handle.id, "message_refused")
        detail = await app.inspect.detail(handle.id)
    assert (refused["kind"], refused["code"], refused["about"]) == ("grant", code, "mail, usd=5")
    assert (detail.scopes, detail.granted, outside.sent) == ((), {}, [])


async def test_a_signed_grant_that_is_delivered_again_gives_nothing_more_also_over_a_boundary_and_a_rewind(
    stage: Stage, desk: Desk
) -> None:
    """Requirement 25. Requirement 83. Whoever can write to the store has seen the bytes."""
    flow: mp.Workflow[str, str] = mp.Workflow("flow", version="1", input=str, result=str)

    @flow.segment
    async def one(run: mp.Run, name: str) -> mp.Next[str]:
        await run.receive("go", int)
        return mp.go(two, name)

    @flow.segment
    async def two(run: mp.Run, name: str) -> mp.Next[str]:
        await run.receive("go", int)
        return mp.done(name)

    async with stage.app(flow, trust=desk.trust) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "signal")
        signed = m.Grant(at=7, by="ann", budget={"usd": Decimal(5)}, id="w-1")
        store = app._need_engine().store
        said = words.granted(store.id, handle.id, signed)
        signature = keys.sign(keys.read_private(desk.key("ann")), said)
        signed = m.Grant(at=7, by="ann", budget={"usd": Decimal(5)}, id="w-1", signature=signature)
        await deliver(app, handle.id, "first", signed)
        await deliver(app, handle.id, "again", signed)
        await has_entry(app, handle.id, "message_refused")
        await app.send(handle.id, "go", 1)
        await has_entry(app, handle.id, "checkpointed")
        await parked(handle, "signal")
        await deliver(app, handle.id, "over the boundary", signed)
        await has_entry(app, handle.id, "message_refused", 2)
    async with stage.app(flow, trust=desk.trust) as app:
        await app.rewind(handle.id, to="one", by="bob", why="once more")
        await has_entry(app, handle.id, "rewound")
        await deliver(app, handle.id, "after a restart and a rewind", signed)
        await has_entry(app, handle.id, "message_refused", 3)
        assert await refusals(app, handle.id) == ["replayed"] * 3
        assert (await app.inspect.detail(handle.id)).granted == {"usd": "5"}
        assert (await vouched(app, handle.id, desk)).doubts == []


@pytest.mark.parametrize("what", ["store", "run", "by", "at", "why", "id", "scopes", "budget"])
async def test_a_signature_over_another_grant_is_no_signature(stage: Stage, desk: Desk, what: str) -> None:
    outside = Outside()
    flow = costly(outside)
    desk.trusts(ann=["grant"], bob=["grant"])
    async with stage.app(flow, trust=desk.trust) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "authority")
        facts: dict[str, Any] = {"at": 7, "by": "ann", "scopes": ("mail",), "budget": {"usd": Decimal(5)}, "id": "w"}
        others: dict[str, Any] = {
            "by": "bob", "at": 8, "why": "other", "id": "v", "scopes": (), "budget": {"usd": Decimal(4)},
        }  # fmt: skip
        there = {**facts, **({what: others[what]} if what in others else {})}
        store = "another" if what == "store" else app._need_engine().store.id
        run = "another" if what == "run" else handle.id
        signature = keys.sign(keys.read_private(desk.key("ann")), words.granted(store, run, m.Grant(**there)))
        await deliver(app, handle.id, "forged", m.Grant(**facts, signature=signature))
        await has_entry(app, handle.id, "message_refused")
        assert await refusals(app, handle.id) == ["bad_signature"]


# ---------------------------------------------------------------- resolutions


def lost(bank: Bank) -> mp.Workflow[str, str]:
    return paying(tool_of(bank, lambda: 0, asks=False))


@pytest.mark.parametrize(
    ("finding", "ended"),
    [(mp.happened("seen"), "done"), (mp.rejected("they refused"), "failed"), (mp.did_not_happen(), "done")],
)
async def test_a_resolution_counts_with_the_signature_of_an_operator_who_may_resolve(
    stage: Stage, desk: Desk, finding: mp.Finding[str], ended: str
) -> None:
    """Requirement 20. Requirement 46."""
    flow = lost(Bank("loses the answer", "answers"))
    async with stage.app(flow, trust=desk.trust) as app:
        handle = await app.start(flow, "o-1")
        await parked(handle, "unknown")
        await app.resolve(handle.id, PATH, finding, why="looked", key=desk.key("ann"))
        await status_of(handle, ended)
        found = await vouched(app, handle.id, desk)
    assert (found.held, found.doubts) == (1, [])


@pytest.mark.parametrize(("who", "code"), [("", "unsigned"), ("mallory", "unknown_signer"), ("bob", "not_permitted")])
async def test_a_resolution_of_nobody_of_a_stranger_or_of_one_who_may_not_settles_nothing(
    stage: Stage, desk: Desk, who: str, code: str
) -> None:
    """Requirement 32. Requirement 39."""
    bank = Bank("loses the answer", "answers")
    flow = lost(bank)
    async with stage.app(flow, trust=desk.trust) as app:
        handle = await app.start(flow, "o-1")
        await parked(handle, "unknown")
        key = desk.key(who) if who else None
        await app.resolve(handle.id, PATH, mp.did_not_happen(), by="ann", why="so I say", key=key)
        await has_entry(app, handle.id, "message_refused")
        await parked(handle, "unknown")
        (refused,) = await fields(app, handle.id, "message_refused")
    assert (refused["kind"], refused["code"], refused["about"]) == ("resolve", code, PATH)
    assert len(bank.applied) == 1


@pytest.mark.parametrize("what", ["key", "attempt", "answer", "value", "path", "run"])
async def test_a_signature_over_another_resolution_is_no_signature(stage: Stage, desk: Desk, what: str) -> None:
    flow = lost(Bank("loses the answer", "answers"))
    async with stage.app(flow, trust=desk.trust) as app:
        handle = await app.start(flow, "o-1")
        await parked(handle, "unknown")
        (view,) = await app.inspect.effects(handle.id)
        facts: dict[str, Any] = {"at": 7, "by": "ann", "path": PATH, "answer": "did_not_happen", "why": "", "id": "w"}
        others: dict[str, Any] = {"answer": "rejected", "value": b'"other"', "path": "flow/charge#2"}
        there = {**facts, **({what: others[what]} if what in others else {})}
        key, attempt = "another" if what == "key" else view.key, 2 if what == "attempt" else 1
        run = "another" if what == "run" else handle.id
        said = words.resolved(app._need_engine().store.id, run, m.Resolve(**there), key=key, attempt=attempt)
        signature = keys.sign(keys.read_private(desk.key("ann")), said)
        await deliver(app, handle.id, "forged", m.Resolve(**facts, signature=signature))
        await has_entry(app, handle.id, "message_refused")
        assert await refusals(app, handle.id) == ["bad_signature"]


async def test_a_signed_resolution_settles_one_doubt_and_not_the_next(stage: Stage, desk: Desk) -> None:
    """Requirement 32. Who can write to the store repeats "it did not happen" until everybody is charged twice."""
    bank = Bank("loses the answer")
    flow = lost(bank)
    async with stage.app(flow, trust=desk.trust) as app:
        handle = await app.start(flow, "o-1")
        await parked(handle, "unknown")
        await app.resolve(handle.id, PATH, mp.did_not_happen(), why="looked", key=desk.key("ann"))
        await has_entry(app, handle.id, "effect_unknown", 2)
        (word,) = await fields(app, handle.id, "word_signed")
        said = word["said"]
        replayed = m.Resolve(
            at=said["at"], by="ann", path=PATH, answer="did_not_happen", why="looked", id=word["id"],
            signature=word["signature"],
        )  # fmt: skip
        await deliver(app, handle.id, "again", replayed)
        await has_entry(app, handle.id, "message_refused")
        assert await refusals(app, handle.id) == ["replayed"]
        assert len(bank.applied) == 2


async def test_a_large_value_that_a_person_found_is_bound_to_the_signature_too(stage: Stage, desk: Desk) -> None:
    flow = lost(Bank("loses the answer"))
    async with stage.app(flow, trust=desk.trust) as app:
        handle = await app.start(flow, "o-1")
        await parked(handle, "unknown")
        await app.resolve(handle.id, PATH, mp.happened("x" * 300_000), why="looked", key=desk.key("ann"))
        await status_of(handle, "done")
        found = await vouched(app, handle.id, desk)
    assert (found.held, found.doubts) == (1, [])


async def test_a_refused_resolution_lifts_no_hold(stage: Stage, desk: Desk) -> None:
    """What a contradiction holds is set free by who may say what is true of it, and by nobody else."""
    bank = Bank("loses the answer")
    bank.applied += [("other", "o", 1)]
    tool = tool_of(bank, lambda: 0, asks=False, effect="queryable", visible_within="0s")

    @tool.reconcile
    async def find(call: mp.Call, order: str, cents: int) -> mp.Finding[str]:
        return mp.conflict(["one", "two"])

    flow = paying(tool)
    async with stage.app(flow, trust=desk.trust) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "person_needed")
        await parked(handle, "unknown")
        assert [one.switch.scope for one in await app.switches()] == ["tool:charge"]
        await app.resolve(handle.id, PATH, mp.happened("so I say"), by="mallory", why="trust me")
        await has_entry(app, handle.id, "message_refused")
        assert [one.switch.scope for one in await app.switches()] == ["tool:charge"]
        await app.resolve(handle.id, PATH, mp.happened("one"), why="refunded the other", key=desk.key("ann"))
        await status_of(handle, "done")
        assert await app.switches() == []


# ---------------------------------------------------------------- looked at again


async def test_what_a_worker_wrote_into_the_record_by_itself_is_found_by_looking_at_the_signatures_again(
    stage: Stage, desk: Desk
) -> None:
    """Requirement 48. Entries in a chain that verifies: an approval with a made-up signature, and money."""
    outside = Outside()
    tool = mailing(outside, approval=True, cost={"usd": 5})
    flow = one_call(tool)
    desk.trusts(ann=["approve", "grant", "resolve"])
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        row = await asked(app)
        await parked(handle, "approval")
    async with stage.app(flow).client() as app:
        engine = app._need_engine()
        claimed = codec.encode(e.Claimed(at=1, epoch=2, owner="rogue"))
        head = await engine.writer.durable(Claim(handle.id, "rogue", None, 1, lambda _: claimed))
        forged: list[e.Entry] = [
            e.ApprovalAnswered(at=1, id=row.id, approved=True, by="ann", said_at=1, signature="Zm9yZ2Vk"),
            e.Widened(at=1, by="ann", budget={"usd": Decimal(5)}),
        ]
        await engine.writer.durable(Append(head, [codec.encode(one) for one in forged], 1, release=(1, 1)))
    async with stage.app(flow) as app:
        assert await app.handle(handle.id, flow).result(timeout="30s") == "sent ann"
        assert (await app.inspect.verify(handle.id)).damage is None
        found = await vouched(app, handle.id, desk)
    assert [doubt.code for doubt in found.doubts] == ["bad_signature", "unsigned"]
    assert found.held == 0


async def test_a_denial_is_looked_at_as_an_approval_is(stage: Stage, desk: Desk) -> None:
    """Who cannot sign cannot stop the business either; and what no answer stands in front of, nobody has denied."""
    flow = one_call(mailing(Outside(), approval=True))
    desk.trusts(ann=["approve"])
    async with stage.app(flow, trust=desk.trust) as app:
        signed, forged = await app.start(flow, "ann"), await app.start(flow, "bob")
        await until_two_are_asked(app)
        rows = {row.run_id: row for row in await app.inspect.approvals("asked")}
        await app.deny(rows[signed.id].id, why="no", key=desk.key("ann"))
        await status_of(signed, "done")
        await parked(forged, "approval")
        found = await vouched(app, signed.id, desk)
        assert (found.held, found.doubts) == (1, [])
    async with stage.app(flow).client() as app:
        engine = app._need_engine()
        claimed = codec.encode(e.Claimed(at=1, epoch=2, owner="rogue"))
        head = await engine.writer.durable(Claim(forged.id, "rogue", None, 1, lambda _: claimed))
        denied = e.EffectFailed(
            at=1, step=rows[forged.id].step, attempt=0, why="no", reason="denied", final=True, by="person ann"
        )
        await engine.writer.durable(Append(head, [codec.encode(denied)], 1, release=(1, None)))
        assert [doubt.code for doubt in (await vouched(app, forged.id, desk)).doubts] == ["unsigned"]


async def until_two_are_asked(app: mp.App) -> None:
    async def asked_twice() -> bool:
        return len(await app.inspect.approvals("asked")) == 2

    await until(asked_twice)


async def test_a_boundary_that_holds_more_than_was_given_is_found(stage: Stage, desk: Desk) -> None:
    """Requirement 48. Money needs no grant where the boundary just says that it is there."""

    @mp.workflow(version="1", name="flow")
    async def flow(run: mp.Run, name: str) -> str:
        await run.receive("go", int)
        return name

    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "signal")
        (created,) = [line for line in await app.inspect.journal(handle.id) if line.name == "run_created"]
    async with stage.app(flow).client() as app:
        engine = app._need_engine()
        claimed = codec.encode(e.Claimed(at=1, epoch=2, owner="rogue"))
        head = await engine.writer.durable(Claim(handle.id, "rogue", None, 1, lambda _: claimed))
        was = created.fields["boundary"]
        forged = e.Checkpointed(
            at=1,
            boundary=e.Boundary(
                about=was["about"], manifest=was["manifest"], visit=1, segment=was["segment"],
                granted={"usd": Decimal(1_000)}, words=("w",), spent={"usd": Decimal(1)},
            ),
        )  # fmt: skip
        await engine.writer.durable(Append(head, [codec.encode(forged)], 1, boundary=0, release=(1, None)))
        found = await vouched(app, handle.id, desk)
    assert [doubt.code for doubt in found.doubts] == ["not_given"] * 3


async def test_a_signature_by_a_key_that_was_revoked_since_is_counted_and_is_no_doubt(stage: Stage, desk: Desk) -> None:
    flow = lost(Bank("loses the answer"))
    async with stage.app(flow, trust=desk.trust) as app:
        handle = await app.start(flow, "o-1")
        await parked(handle, "unknown")
        await app.resolve(handle.id, PATH, mp.happened("seen"), why="looked", key=desk.key("ann"))
        await status_of(handle, "done")
        desk.trusts(revoked="ann", ann=["resolve"])
        found = await vouched(app, handle.id, desk)
    assert (found.held, found.lapsed, found.doubts) == (1, 1, [])

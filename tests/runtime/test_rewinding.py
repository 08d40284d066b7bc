"""Back to an earlier boundary: what was done since is undone by effects, newest first; then it stands there again."""

import asyncio
from typing import Any

import pytest

import milepost as mp
from milepost.core import messages as m
from milepost.errors import NotReversible, UnknownBoundary
from milepost.stores.api import Deliver, Post
from tests.runtime.refunds import Outside, at_closing, desk_of, rewound
from tests.runtime.stage import Stage, has_entry, names, parked, status_of, until

WHY: Any = {"by": "ann", "why": "the wrong customer"}


@pytest.fixture
def outside() -> Outside:
    return Outside()


async def refusal(app: mp.App, run_id: str) -> str:
    await has_entry(app, run_id, "message_refused")
    lines = await app.inspect.journal(run_id)
    return str(next(line.fields["why"] for line in reversed(lines) if line.name == "message_refused"))


async def test_what_was_done_since_is_undone_newest_first_and_the_boundary_stands_again(
    stage: Stage, outside: Outside
) -> None:
    """Requirement 21."""
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        handle = await at_closing(app, desk)
        await app.rewind(handle.id, to="charging", **WHY)
        await rewound(app, handle.id)
        await parked(handle, "signal")  # it went on by itself from there

        did = ["charge o-1", "charge o-2", "ship receipt o-1"]
        undone = ["unship receipt o-1", "refund receipt o-2", "refund receipt o-1"]
        assert outside.done == [*did, *undone, *did]
        assert len(set(outside.keys)) == len(outside.keys), "what is done again is another effect"
        await app.send(handle.id, "word", "bye")
        assert await handle.result(timeout="30s") == "2 bye"
        told = await names(app, handle.id)
        assert told.count("rewind_asked") == told.count("rewound") == 1
        assert (await app.inspect.verify(handle.id)).damage is None


async def test_who_and_why_stand_in_the_record_and_nothing_is_deleted(stage: Stage, outside: Outside) -> None:
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        handle = await at_closing(app, desk)
        before = await app.inspect.journal(handle.id)
        await app.rewind(handle.id, to="shipping", **WHY)
        await rewound(app, handle.id)

        after = await app.inspect.journal(handle.id)
        assert [line.hash for line in after[: len(before)]] == [line.hash for line in before]
        for name in ("rewind_asked", "rewound"):
            line = next(line for line in after if line.name == name)
            assert (line.fields["by"], line.fields["why"], line.fields["to"]) == ("ann", "the wrong customer", 1)
        paths = [view.path for view in await app.inspect.effects(handle.id)]
        assert "undo/shipping/ship#1/unship#1" in paths
        assert len(set(paths)) == len(paths)


@pytest.mark.parametrize("named", ["shipping", "1"])
async def test_a_boundary_has_the_name_of_its_segment_and_a_number(stage: Stage, outside: Outside, named: str) -> None:
    """Requirement 21."""
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        handle = await at_closing(app, desk)
        await app.rewind(handle.id, to=named, **WHY)
        await rewound(app, handle.id)
        await parked(handle, "signal")
        assert outside.done[3:] == ["unship receipt o-1", "ship receipt o-1"]
        with pytest.raises(UnknownBoundary, match="shipping@2"):
            await app.rewind(handle.id, to="nowhere", **WHY)
        assert outside.done[5:] == []


async def test_a_second_rewind_undoes_what_the_first_did_again_and_nothing_twice(
    stage: Stage, outside: Outside
) -> None:
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        handle = await at_closing(app, desk)
        await app.rewind(handle.id, to="shipping", **WHY)
        await rewound(app, handle.id)
        await parked(handle, "signal")
        outside.done.clear()
        with pytest.raises(NotReversible, match="a rewind has undone it"):
            await app.rewind(handle.id, to="closing", **WHY)
        await app.rewind(handle.id, to="charging", **WHY)
        await rewound(app, handle.id, 2)
        assert outside.done[:3] == ["unship receipt o-1", "refund receipt o-2", "refund receipt o-1"]


@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
async def test_a_run_that_ended_goes_back_and_on(stage: Stage, outside: Outside, end: str) -> None:
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        handle = await at_closing(app, desk)
        if end == "cancelled":
            await app.cancel(handle.id, why="no")
        else:
            await app.send(handle.id, "word", "fail" if end == "failed" else "bye")
        await status_of(handle, end)
        await app.rewind(handle.id, to="shipping", **WHY)
        await rewound(app, handle.id)
        await parked(handle, "signal")
        await app.send(handle.id, "word", "again")
        assert await handle.result(timeout="30s") == "2 again"
        assert outside.done[2:] == ["ship receipt o-1", "unship receipt o-1", "ship receipt o-1"]


async def test_a_killed_run_stays_killed(stage: Stage, outside: Outside) -> None:
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        handle = await at_closing(app, desk)
        await app.kill(handle.id, why="no")
        with pytest.raises(NotReversible, match="fork it"):
            await app.rewind(handle.id, to="shipping", **WHY)


async def test_it_is_refused_before_anything_is_done_and_each_effect_in_the_way_is_named(
    stage: Stage, outside: Outside
) -> None:
    """Requirement 21. An irreversible effect without a compensation, among others that could be undone."""
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        handle = await at_closing(app, desk)
        await app.send(handle.id, "word", "mail")
        await parked(handle, "approval")
        [asked] = await app.inspect.approvals("asked")
        await app.approve(asked.id, by="bob")
        assert await handle.result(timeout="30s") == "2 mail"
        before = await names(app, handle.id)
        with pytest.raises(NotReversible) as refused:
            await app.rewind(handle.id, to="charging", **WHY)
        [reason] = refused.value.reasons
        assert reason.startswith("closing/mail#1 (irreversible) cannot be undone: declare what undoes it")
        assert await names(app, handle.id) == before
        assert outside.done[3:] == ["mail ann"]


async def test_a_worker_refuses_by_an_entry_what_was_asked_for_without_its_code(stage: Stage, outside: Outside) -> None:
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        handle = await at_closing(app, desk)
        await app.send(handle.id, "word", "mail")
        await parked(handle, "approval")
        [asked] = await app.inspect.approvals("asked")
        await app.approve(asked.id, by="bob")
        await handle.result(timeout="30s")
        await app._operator().rewind(handle.id, to="charging", **WHY)
        assert "closing/mail#1 (irreversible) cannot be undone" in await refusal(app, handle.id)
        assert "rewind_asked" not in await names(app, handle.id)
        assert outside.done[3:] == ["mail ann"]
        assert (await handle.status()).status == "done"


async def test_it_is_refused_while_an_effect_is_unknown_and_possible_once_that_is_resolved(
    stage: Stage, outside: Outside
) -> None:
    """Requirement 21."""
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        handle = await at_closing(app, desk)
        outside.next["mail"] = [RuntimeError("the line broke")]
        await app.send(handle.id, "word", "mail")
        await parked(handle, "approval")
        [asked] = await app.inspect.approvals("asked")
        await app.approve(asked.id, by="bob")
        await parked(handle, "unknown")
        with pytest.raises(NotReversible, match="closing/mail#1 is unknown: milepost resolve"):
            await app.rewind(handle.id, to="shipping", **WHY)
        await app.resolve(handle.id, "closing/mail#1", mp.rejected("phoned"), by="ann", why="phoned")
        await status_of(handle, "failed")
        await app.rewind(handle.id, to="shipping", **WHY)
        await rewound(app, handle.id)


async def test_what_is_in_flight_ends_first_and_is_undone_as_well(stage: Stage, outside: Outside) -> None:
    desk = desk_of(outside)
    sent, go = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        sent.set()
        await go.wait()

    outside.next["ship"] = [hang]
    async with stage.app(desk) as app:
        handle = await app.start(desk, "o")
        await sent.wait()
        await app.rewind(handle.id, to="charging", **WHY)
        await until(lambda: _returning(app, handle.id), "the run comes to rest for it")
        assert "rewind_asked" not in await names(app, handle.id)
        go.set()
        await rewound(app, handle.id)
        assert outside.done[2:6] == [
            "ship receipt o-1",
            "unship receipt o-1",
            "refund receipt o-2",
            "refund receipt o-1",
        ]


async def _returning(app: mp.App, run_id: str) -> bool:
    return app._need_engine().sessions[run_id].returning


async def test_a_compensation_that_must_be_approved_parks_the_rewind(stage: Stage, outside: Outside) -> None:
    """Requirement 21. Under all gates, each approval for exactly one effect."""
    desk = desk_of(outside, approval=True)
    async with stage.app(desk) as app:
        handle = await at_closing(app, desk)
        await app.rewind(handle.id, to="charging", **WHY)
        await parked(handle, "approval")
        [asked] = await app.inspect.approvals("asked")
        assert (asked.path, asked.args) == ("undo/charging/charge#2/refund#1", b'{"receipt":"receipt o-2"}')
        assert outside.done[3:] == ["unship receipt o-1"]
        await app.approve(asked.id, by="bob")
        await until(lambda: _asked(app, 1), "the next one is asked")
        assert outside.done[4:] == ["refund receipt o-2"]
        [asked] = await app.inspect.approvals("asked")
        await app.approve(asked.id, by="bob")
        await rewound(app, handle.id)
        assert outside.done[5:6] == ["refund receipt o-1"]


async def _asked(app: mp.App, count: int) -> bool:
    asked = await app.inspect.approvals("asked")
    return len(asked) == count and asked[0].path == "undo/charging/charge#1/refund#1"


async def test_one_that_cannot_be_undone_blocks_and_a_person_tries_it_anew_under_a_new_key(
    stage: Stage, outside: Outside
) -> None:
    desk = desk_of(outside)
    outside.next["refund"] = [mp.Rejected("the account is closed")]
    async with stage.app(desk) as app:
        handle = await at_closing(app, desk)
        await app.rewind(handle.id, to="charging", **WHY)
        await status_of(handle, "blocked")
        row = (await app.inspect.detail(handle.id)).row
        assert row.why is not None
        assert row.why.startswith("not_undone: undo/charging/charge#2/refund#1: the account is closed")
        assert outside.done[3:] == ["unship receipt o-1"]
        with pytest.raises(NotReversible, match="being taken back to boundary 0 already"):
            await app.rewind(handle.id, to="shipping", **WHY)
        await app.retry(handle.id, by="ann", why="it is open again")
        await rewound(app, handle.id)
        assert outside.done[3:6] == ["unship receipt o-1", "refund receipt o-2", "refund receipt o-1"]


async def test_a_lost_answer_of_a_compensation_is_sent_again_under_its_key(stage: Stage, outside: Outside) -> None:
    desk = desk_of(outside)
    outside.next["unship"] = [RuntimeError("connection reset")]
    async with stage.app(desk) as app:
        handle = await at_closing(app, desk)
        await app.rewind(handle.id, to="shipping", **WHY)
        await rewound(app, handle.id)
        sent = [key for key, what in zip(outside.keys, outside.done, strict=True) if what.startswith("unship")]
        assert len(sent) == 2
        assert len(set(sent)) == 1


async def test_cancelled_half_way_it_ends_and_the_next_rewind_goes_on_where_it_was(
    stage: Stage, outside: Outside
) -> None:
    desk = desk_of(outside, approval=True)
    async with stage.app(desk) as app:
        handle = await at_closing(app, desk)
        await app.rewind(handle.id, to="charging", **WHY)
        await parked(handle, "approval")
        [first] = await app.inspect.approvals("asked")
        await app.cancel(handle.id, why="not like this")
        await status_of(handle, "cancelled")
        with pytest.raises(NotReversible, match=r"tells of shipping/ship#1, which was undone"):
            await app.rewind(handle.id, to="closing", **WHY)
        await app.rewind(handle.id, to="shipping", **WHY)
        await rewound(app, handle.id)
        await parked(handle, "signal")
        assert outside.done[3:] == ["unship receipt o-1", "ship receipt o-1"]
        with pytest.raises(mp.UnknownApproval):
            await app.approve("ap-nothing", by="bob")
        assert (await app.inspect.approvals("approved")) == []
        assert first.id in {row.id for row in await app.inspect.approvals()}


async def test_an_identity_is_set_free_by_the_compensation_and_by_nothing_before_it(
    stage: Stage, outside: Outside
) -> None:
    """Requirement 47. An identity stays claimed until what it names was undone, and that is confirmed."""
    desk = desk_of(outside, approval=True)
    async with stage.app(desk) as app:
        handle = await at_closing(app, desk)
        await app.rewind(handle.id, to="charging", **WHY)
        await parked(handle, "approval")
        store = app._need_engine().store
        assert await store.once("", "charge", '["o-2"]') is not None
        [asked] = await app.inspect.approvals("asked")
        await app.approve(asked.id, by="bob")
        await until(lambda: _asked(app, 1), "the next one is asked")
        assert await store.once("", "charge", '["o-2"]') is None
        held = await store.once("", "charge", '["o-1"]')
        assert held is not None
        assert held.outcome == "confirmed"


async def test_an_effect_that_was_anothers_by_its_identity_is_left_to_it(stage: Stage, outside: Outside) -> None:
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        await at_closing(app, desk)
        second = await at_closing(app, desk)
        assert outside.done.count("charge o-1") == 1
        way = await app.find_way(second.id, "charging")
        assert [undo.path for undo in way.undo] == ["shipping/ship#1"]
        assert [line.split()[0] for line in way.left] == ["charging/charge#2", "charging/charge#1"]
        await app.rewind(second.id, to="charging", **WHY)
        await rewound(app, second.id)
        assert [what for what in outside.done if what.startswith("refund")] == []


async def test_a_signal_that_was_taken_is_not_there_again_and_one_that_waits_still_waits(
    stage: Stage, outside: Outside
) -> None:
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        handle = await at_closing(app, desk)
        await app.send(handle.id, "later", 1)
        await app.send(handle.id, "word", "bye")
        await status_of(handle, "done")
        await app.rewind(handle.id, to="closing", **WHY)
        await parked(handle, "signal")
        line = next(line for line in await app.inspect.journal(handle.id) if line.name == "rewound")
        assert [signal["name"] for signal in line.fields["boundary"]["signals"]] == ["later"]


async def test_a_child_that_runs_stands_in_the_way_and_one_that_ended_is_told_of(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def child(run: mp.Run) -> str:
        return await run.receive("go", str)

    parent = mp.Workflow("parent", version="1", input=type(None), result=str)

    @parent.segment
    async def first(run: mp.Run, _: None) -> mp.Next[str]:
        return mp.go(second, None)

    @parent.segment
    async def second(run: mp.Run, _: None) -> mp.Next[str]:
        return mp.done(await (await run.start(child)).result())

    async with stage.app(parent, child) as app:
        handle = await app.start(parent)
        await parked(handle, "child")
        [born] = (await app.inspect.detail(handle.id)).children
        with pytest.raises(NotReversible, match=f"child {born} was started since then and runs"):
            await app.rewind(handle.id, to="first", **WHY)
        await app.send(born, "go", "went")
        assert await handle.result(timeout="30s") == "went"
        assert (await app.find_way(handle.id, "first")).left == [f"child {born} is done: what it did stays done"]
        with pytest.raises(NotReversible, match=f"its parent {handle.id} was told how it ended"):
            await app.rewind(born, to="0", **WHY)
        await app.rewind(handle.id, to="first", **WHY)
        await rewound(app, handle.id)
        await parked(handle, "child")
        assert len((await app.inspect.detail(handle.id)).children) == 2


async def test_nothing_is_undone_by_code_that_cannot_undo_it_or_go_on(stage: Stage, outside: Outside) -> None:
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        handle = await at_closing(app, desk)
    other = desk_of(outside, version="2")
    async with stage.app(other) as app:
        with pytest.raises(NotReversible, match="the run was made with version '1'"):
            await app.rewind(handle.id, to="charging", **WHY)

    @mp.tool(effect="keyed", key_ttl="24h", version="2")
    async def ship(parcel: str) -> int:
        return 1

    bare = mp.Workflow("desk", version="1", input=str, result=str, tools=[ship])

    @bare.segment
    async def charging(run: mp.Run, order: str) -> mp.Next[str]:
        return mp.done("")

    @bare.segment
    async def closing(run: mp.Run, receipts: int) -> mp.Next[str]:
        return mp.done("")

    async with stage.app(bare) as app:
        way = await app.find_way(handle.id, "charging")
        gone = "segment 'shipping', which the run enters next, is no longer declared"
        assert gone in (await app.find_way(handle.id, "shipping")).refused
        unread = (await app.find_way(handle.id, "closing")).refused
    assert [why for why in unread if why.startswith("the state of closing no longer fits")]
    async with stage.app() as app:
        assert (await app.find_way(handle.id, "charging")).refused == [
            "workflow 'desk' is not registered by the code that runs now"
        ]
    assert any("'desk' does not list charge any more" in why for why in way.refused)
    assert any("was done by version '1' of its tool, the code has '2'" in why for why in way.refused)
    assert outside.done[3:] == []


async def test_a_run_that_is_out_of_time_or_whose_authority_expired_is_forked_instead(
    stage: Stage, outside: Outside
) -> None:
    desk = desk_of(outside)
    async with stage.app(desk, still=True) as app:
        authority = mp.Authority("bot", expires="1h")
        handle = await app.start(desk, "o", authority=authority, deadline="1h")
        await parked(handle, "signal")
        stage.clock.advance("2h")
        await status_of(handle, "failed")
        way = await app.find_way(handle.id, "charging")
    assert way.refused == ["its deadline has passed: fork it", "the authority of 'bot' has expired: fork it"]


async def test_an_attached_run_goes_back_in_its_host(stage: Stage) -> None:
    @mp.tool
    async def act(word: str) -> str:
        return word

    async with stage.app(tools=[act]) as app, app.attach(key="thread") as run:
        await run.call("one", act, "a")
        with pytest.raises(NotReversible, match="its host holds its control flow"):
            await app.rewind(run.id, to="0", **WHY)
        message = m.Rewind(at=1, by="ann", to=0)
        engine = app._need_engine()
        await engine.writer.durable(Deliver(Post(run.id, "by hand", m.encode(message), 1)))
        assert "its host holds its control flow" in await refusal(app, run.id)
        assert await run.call("two", act, "b") == "b"

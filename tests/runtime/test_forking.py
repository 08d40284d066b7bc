"""A fork goes on from a boundary of another run: with what had happened there, and with nothing that permits."""

from decimal import Decimal
from typing import Any

import pytest

import milepost as mp
from milepost.errors import Damaged, NotReversible, StartConflict, UnknownBoundary
from tests.runtime.refunds import Money, Outside, at_closing, desk_of, spending_of
from tests.runtime.stage import Stage, has_entry, names, parked, status_of

WHY: Any = {"by": "ann", "why": "what if"}


@pytest.fixture
def outside() -> Outside:
    return Outside()


async def test_a_fork_goes_on_from_a_boundary_and_its_effects_are_its_own(stage: Stage, outside: Outside) -> None:
    """Requirement 24."""
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        origin = await at_closing(app, desk)
        before = await names(app, origin.id)
        fork = await app.fork(origin.id, at="shipping", **WHY)
        await parked(fork, "signal")
        assert outside.done == ["charge o-1", "charge o-2", "ship receipt o-1", "ship receipt o-1"]
        assert len(set(outside.keys)) == 4
        for handle, word in ((fork, "there"), (origin, "here")):
            await app.send(handle.id, "word", word)
            assert await handle.result(timeout="30s") == f"2 {word}"
        assert (await names(app, origin.id))[: len(before)] == before
        assert (await app.inspect.verify(fork.id)).damage is None


async def test_the_record_of_a_fork_says_where_it_comes_from_who_made_it_and_why(
    stage: Stage, outside: Outside
) -> None:
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        origin = await at_closing(app, desk, tags={"team": "refunds"})
        fork = await app.fork(origin.id, **WHY)
        await parked(fork, "signal")
        detail = await app.inspect.detail(fork.id)
        assert (detail.about.forked_from, detail.about.forked_at) == (origin.id, 2)
        assert (detail.about.parent, detail.about.tags) == (None, {"team": "refunds"})
        created = (await app.inspect.journal(fork.id))[0]
        assert (created.name, created.fields["by"], created.fields["why"]) == ("run_created", "ann", "what if")
        assert [path for path, _ in detail.finished] == ["shipping/ship#1"]


async def test_an_identity_that_the_origin_claimed_stays_claimed_and_the_fork_gets_its_outcome(
    stage: Stage, outside: Outside
) -> None:
    """Requirement 24. Requirement 47. Also where the fork names another tenant: identities count in the origin's."""
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        origin = await at_closing(app, desk, authority=mp.Authority("bot", tenant="acme"))
        fork = await app.fork(origin.id, at="charging", authority=mp.Authority("ann", tenant="globex"), **WHY)
        await parked(fork, "signal")
        assert [what for what in outside.done if what.startswith("charge")] == ["charge o-1", "charge o-2"]
        assert (await app.inspect.detail(fork.id)).about.authority == mp.Authority("ann", tenant="acme").granted(0)
        told = [line.fields for line in await app.inspect.journal(fork.id) if line.name == "effect_confirmed"]
        assert [fields.get("by") for fields in told] == ["once", "once", None]


async def test_neither_money_nor_scopes_nor_approvals_come_along(stage: Stage, outside: Outside) -> None:
    """Requirement 24. Authority is given anew by whoever forks: first the scope, then the approval, then the money."""
    desk = spending_of(outside, Money())
    async with stage.app(desk) as app:
        authority = mp.Authority("bot", scopes={"charge"})
        origin = await app.start(desk, "o", authority=authority, budget={"usd": 20})
        await parked(origin, "approval")
        [asked] = await app.inspect.approvals("asked")
        await app.approve(asked.id, by="bob")
        await parked(origin, "signal")

        fork = await app.fork(origin.id, at="paying", **WHY)
        await parked(fork, "authority")
        await app.grant(fork.id, by="ann", scopes=["charge"])
        await parked(fork, "approval")
        [mine] = await app.inspect.approvals("asked")
        assert mine.id != asked.id
        with pytest.raises(mp.UnknownApproval, match="used already"):
            await app.approve(asked.id, by="mallory")
        await app.approve(mine.id, by="bob")
        await parked(fork, "budget")
        assert outside.done == ["charge o"]
        await app.grant(fork.id, by="ann", budget={"usd": 5})
        await parked(fork, "signal")
        assert outside.done == ["charge o", "charge o"]
        detail = await app.inspect.detail(fork.id)
        assert (detail.granted, detail.spent) == ({"usd": "5"}, {"usd": "5"})


async def test_what_is_given_to_the_fork_is_what_it_has(stage: Stage, outside: Outside) -> None:
    desk = spending_of(outside, Money())
    async with stage.app(desk) as app:
        origin = await app.start(desk, "o")
        await parked(origin, "authority")
        given = {"authority": mp.Authority("ann", scopes={"charge"}), "budget": {"usd": Decimal("7.5")}}
        fork = await app.fork(origin.id, key="f", deadline="1h", **given, **WHY)  # type: ignore[arg-type]
        await parked(fork, "approval")
        detail = await app.inspect.detail(fork.id)
        assert (detail.about.authority.principal, detail.scopes) == ("ann", ("charge",))
        assert detail.granted == {"usd": "7.5"}
        assert detail.about.deadline is not None
        assert (detail.row.key, detail.row.principal) == ("f", "ann")


async def test_the_same_key_twice_is_one_fork_and_another_fork_is_a_conflict(stage: Stage, outside: Outside) -> None:
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        origin = await at_closing(app, desk, key="taken")
        forks = [await app.fork(origin.id, at="closing", key="f", **WHY) for _ in range(2)]
        assert forks[0].id == forks[1].id
        with pytest.raises(StartConflict):
            await app.fork(origin.id, at="shipping", key="f", **WHY)
        with pytest.raises(StartConflict):
            await app.fork(origin.id, at="closing", key="taken", **WHY)


async def test_a_signal_that_waits_and_a_cancel_stay_with_the_origin(stage: Stage, outside: Outside) -> None:
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        origin = await at_closing(app, desk)
        await app.send(origin.id, "later", 1)
        await app.send(origin.id, "word", "bye")
        await origin.result(timeout="30s")
        fork = await app.fork(origin.id, at="closing", **WHY)
        await parked(fork, "signal")
        created = (await app.inspect.journal(fork.id))[0]
        assert "signals" not in created.fields["boundary"]


async def test_a_killed_run_is_forked_and_its_fork_is_alive(stage: Stage, outside: Outside) -> None:
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        origin = await at_closing(app, desk)
        await app.kill(origin.id, why="no")
        fork = await app.fork(origin.id, **WHY)
        await app.send(fork.id, "word", "bye")
        assert await fork.result(timeout="30s") == "2 bye"
        await app.fork(fork.id, at="closing", **WHY)


async def test_a_boundary_that_was_undone_or_is_the_end_is_refused(stage: Stage, outside: Outside) -> None:
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        origin = await at_closing(app, desk)
        await app.rewind(origin.id, to="charging", **WHY)
        await has_entry(app, origin.id, "rewound")
        await parked(origin, "signal")
        with pytest.raises(NotReversible, match="a rewind has undone it"):
            await app.fork(origin.id, at="1", **WHY)
        await app.send(origin.id, "word", "bye")
        await origin.result(timeout="30s")
        with pytest.raises(NotReversible, match="the run ended there"):
            await app.fork(origin.id, at="end", **WHY)
        with pytest.raises(UnknownBoundary, match=r"charging@2, shipping@2, closing@2, end"):
            await app.fork(origin.id, at="nowhere", **WHY)
        with pytest.raises(mp.InvalidValue):
            await app.fork(origin.id, budget={"usd": -1}, **WHY)


@pytest.mark.sqlite("it changes the file behind its back")
@pytest.mark.parametrize("what", ["an entry before it", "its state", "its head"])
async def test_a_boundary_that_does_not_verify_is_refused(stage: Stage, outside: Outside, what: str) -> None:
    """Requirement 24. Nothing goes on from what cannot be read or verified."""
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        origin = await app.start(desk, "o" * 2_000)
        await parked(origin, "signal")
    if what == "an entry before it":
        stage.write("DROP TRIGGER mp_journal_no_update")
        stage.write("UPDATE mp_journal SET body = CAST(replace(body, '200', '900') AS BLOB) WHERE seq = 5")
    elif what == "its state":
        stage.write("DROP TRIGGER mp_chunks_no_update")
        stage.write("UPDATE mp_chunks SET body = CAST(body || ' ' AS BLOB) WHERE length(body) > 1500")
    else:
        stage.write("UPDATE mp_heads SET hash = zeroblob(32) WHERE run > 0")
    async with stage.app(desk).client() as app:
        with pytest.raises(Damaged):
            await app.fork(origin.id, **WHY)
        assert stage.rows("SELECT count(*) FROM mp_runs WHERE run > 0") == [(1,)]


async def test_a_large_state_and_its_input_come_along_whole(stage: Stage) -> None:
    flow = mp.Workflow("large", version="1", input=list[str], result=int)

    @flow.segment
    async def first(run: mp.Run, lines: list[str]) -> mp.Next[int]:
        return mp.go(second, lines * 2)

    @flow.segment
    async def second(run: mp.Run, lines: list[str]) -> mp.Next[int]:
        return mp.done(len(lines) + await run.receive("more", int))

    async with stage.app(flow) as app:
        origin = await app.start(flow, [f"line {number} " + "x" * 200 for number in range(100)])
        await parked(origin, "signal")
        fork = await app.fork(origin.id, **WHY)
        await parked(fork, "signal")
        assert (await app.inspect.verify(fork.id)).damage is None
        await app.send(fork.id, "more", 1)
        assert await fork.result(timeout="30s") == 201


async def test_an_attached_run_is_forked_under_a_key_and_remembers_its_calls(stage: Stage) -> None:
    calls: list[str] = []

    @mp.tool
    async def act(word: str) -> str:
        calls.append(word)
        return word

    async with stage.app(tools=[act]) as app:
        async with app.attach(key="thread") as run:
            await run.call("one", act, "a")
            await run.checkpoint({"at": 1})
            await run.call("two", act, "b")
            with pytest.raises(NotReversible, match="under which one it goes on"):
                await app.fork(run.id, **WHY)
            await app.fork(run.id, at="1", key="other", **WHY)
        async with app.attach(key="other") as fork:
            assert await fork.call("one", act, "a") == "a"
            assert await fork.call("two", act, "c") == "c"
            await fork.finish("bye")
        assert calls == ["a", "b", "c"]


async def test_a_fork_is_driven_by_code_that_may_go_on_with_it_or_blocked(stage: Stage, outside: Outside) -> None:
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        origin = await at_closing(app, desk)
    async with stage.app(desk_of(outside, version="2")) as app:
        fork = await app.fork(origin.id, **WHY)
        await status_of(fork, "blocked")
        assert "the run was made with version '1'" in ((await app.inspect.detail(fork.id)).row.why or "")

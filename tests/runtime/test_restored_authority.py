"""What was used up or taken away does not come back with an earlier state: not by a rewind, and not by a fork."""

from typing import Any

import pytest

import milepost as mp
from milepost.errors import UnknownApproval
from tests.runtime.refunds import Money, Outside, desk_of, spending_of
from tests.runtime.stage import Stage, has_entry, parked, until

WHY: Any = {"by": "mallory", "why": "once more, with another request"}


@pytest.fixture
def outside() -> Outside:
    return Outside()


async def approve(app: mp.App) -> str:
    """Approve the one effect that is asked about, and return the approval's id."""
    await until(lambda: app.inspect.approvals("asked"), "something is asked")
    [asked] = await app.inspect.approvals("asked")
    await app.approve(asked.id, by="bob")
    return asked.id


async def test_a_used_approval_does_not_let_the_effect_happen_again_after_a_rewind(
    stage: Stage, outside: Outside
) -> None:
    """Requirement 25. Authority resurrection: the state goes back, the consumed approval does not."""
    desk = spending_of(outside, Money())
    async with stage.app(desk) as app:
        authority = mp.Authority("bot", scopes={"charge", "refund"})
        handle = await app.start(desk, "o", authority=authority, budget={"usd": 100})
        used = {await approve(app)}
        await parked(handle, "signal")
        await app.rewind(handle.id, to="paying", **WHY)
        used.add(await approve(app))
        await has_entry(app, handle.id, "rewound")
        await parked(handle, "approval")

        assert outside.done == ["charge o", "refund o"]
        [asked] = await app.inspect.approvals("asked")
        assert asked.id not in used
        for id_ in used:
            with pytest.raises(UnknownApproval):
                await app.approve(id_, by="mallory")
        await app.deny(asked.id, by="bob", why="not again")
        await has_entry(app, handle.id, "run_stopped")
        assert outside.done == ["charge o", "refund o"]


async def test_an_approval_that_was_given_and_not_used_is_withdrawn_by_a_rewind(stage: Stage, outside: Outside) -> None:
    """Requirement 25."""
    desk = spending_of(outside, Money())
    async with stage.app(desk) as app:
        handle = await app.start(desk, "o", authority=mp.Authority("bot", scopes={"charge"}))
        given = await approve(app)
        await parked(handle, "budget")
        await app.rewind(handle.id, to="paying", **WHY)
        await has_entry(app, handle.id, "rewound")
        await app.grant(handle.id, by="ann", budget={"usd": 100})
        await parked(handle, "approval")

        rows = {row.id: row.verdict for row in await app.inspect.approvals()}
        assert rows.pop(given) == "withdrawn"
        assert list(rows.values()) == ["asked"]
        assert outside.done == []


async def test_money_that_was_spent_stays_spent_and_undoing_costs_too(stage: Stage, outside: Outside) -> None:
    desk = spending_of(outside, Money())
    async with stage.app(desk) as app:
        authority = mp.Authority("bot", scopes={"charge", "refund"})
        handle = await app.start(desk, "o", authority=authority, budget={"usd": 5})
        await approve(app)
        await parked(handle, "signal")
        await app.rewind(handle.id, to="paying", **WHY)
        await approve(app)
        await parked(handle, "budget")  # of the compensation: nothing is undone for nothing
        await app.grant(handle.id, by="ann", budget={"usd": 1})
        await has_entry(app, handle.id, "rewound")
        await approve(app)
        await parked(handle, "budget")

        detail = await app.inspect.detail(handle.id)
        assert (detail.granted, detail.spent) == ({"usd": "6"}, {"usd": "6"})
        assert outside.done == ["charge o", "refund o"]


async def test_a_compensation_needs_its_scope_and_a_grant_made_since_the_boundary_is_no_part_of_it(
    stage: Stage, outside: Outside
) -> None:
    desk = spending_of(outside, Money())
    async with stage.app(desk) as app:
        handle = await app.start(desk, "o", authority=mp.Authority("bot", scopes={"charge"}), budget={"usd": 50})
        await approve(app)
        await parked(handle, "signal")
        await app.rewind(handle.id, to="paying", **WHY)
        waiting = await parked(handle, "authority")
        assert waiting.ask == f"milepost grant {handle.id} refund"
        assert outside.done == ["charge o"]
        await app.grant(handle.id, by="ann", scopes=["refund"])
        await approve(app)
        await has_entry(app, handle.id, "rewound")
        assert (await app.inspect.detail(handle.id)).scopes == ("charge", "refund")


async def test_a_signal_that_was_taken_permits_nothing_a_second_time(stage: Stage, outside: Outside) -> None:
    desk = desk_of(outside)
    async with stage.app(desk) as app:
        handle = await app.start(desk, "o")
        await parked(handle, "signal")
        await app.send(handle.id, "word", "go on", id="once")
        await handle.result(timeout="10s")
        await app.rewind(handle.id, to="closing", **WHY)
        await parked(handle, "signal")
        await app.send(handle.id, "word", "go on", id="once")  # the same message is no second one
        await parked(handle, "signal")
        fork = await app.fork(handle.id, at="closing@2", **WHY)
        await parked(fork, "signal")

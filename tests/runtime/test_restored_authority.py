"""What was used up or taken away does not come back with an earlier state: not by a rewind, and not by a fork."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost.errors import UnknownApproval
from milepost.operations import keys
from milepost.operations.sealing import RolledBack
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
        await handle.result(timeout="30s")
        await app.rewind(handle.id, to="closing", **WHY)
        await parked(handle, "signal")
        await app.send(handle.id, "word", "go on", id="once")  # the same message is no second one
        await parked(handle, "signal")
        fork = await app.fork(handle.id, at="closing@2", **WHY)
        await parked(fork, "signal")


WAYS = ("restart", "rewind", "restart and rewind", "import", "fork")


def at_the_till(outside: Outside) -> mp.Workflow[str, str]:
    """Return a desk that waits for a word in each of its two segments, then charges."""

    @mp.tool(effect="keyed", key_ttl="24h", scopes=["charge"], cost={"usd": 5})
    async def charge(call: mp.Call, order: str) -> str:
        await outside.do("charge", call, order)
        return order

    desk = mp.Workflow("till", version="1", input=str, result=str, tools=[charge])

    @desk.segment
    async def opening(run: mp.Run, order: str) -> mp.Next[str]:
        return mp.go(closing, order)

    @desk.segment
    async def closing(run: mp.Run, order: str) -> mp.Next[str]:
        await run.receive("word", str)
        return mp.done(await charge(order))

    return desk


@pytest.mark.parametrize("way", WAYS)
async def test_what_was_revoked_stays_revoked_whichever_way_the_run_comes_back(
    stage: Stage, outside: Outside, tmp_path: Path, way: str
) -> None:
    """Requirement 25. Requirement 49. Scope and money, that the run was started with."""
    desk = at_the_till(outside)
    app = stage.app(desk)
    async with app:
        authority = mp.Authority("bot", scopes={"charge"})
        handle: mp.Handle[Any] = await app.start(desk, "o", authority=authority, budget={"usd": 100})
        await parked(handle, "signal")
        await app.revoke(handle.id, scopes=["charge"], ceilings={"usd": 1}, **WHY)
        await has_entry(app, handle.id, "narrowed")
        if way == "rewind":
            await app.rewind(handle.id, to="opening", **WHY)
            await has_entry(app, handle.id, "rewound")
        if way == "fork":
            handle = await app.fork(handle.id, **WHY)
        if way == "import":
            app = await taken_in(app, handle.id, tmp_path)
    async with stage.app(desk) if way != "import" else app as app:
        handle = app.handle(handle.id)
        if way == "restart and rewind":
            await app.rewind(handle.id, to="opening", **WHY)
            await has_entry(app, handle.id, "rewound")
        if way == "import":
            await app.resume(handle.id, **WHY)
        await parked(handle, "signal")
        await app.send(handle.id, "word", "go on")
        await parked(handle, "authority")
        await app.grant(handle.id, by="ann", scopes=["charge"])
        await parked(handle, "budget")
    assert outside.done == []


async def taken_in(app: mp.App, run_id: str, folder: Path) -> mp.App:
    """Take a run into a store of its own; return an app on that."""
    keys.create("ada", folder)
    (ada,) = keys.load(folder / "ada.pub").operators.values()
    keys.add(folder / "trust", ada, ["export"], None)
    await app.export([run_id], folder / "bundle", key=folder / "ada.key")
    other = mp.App(f"sqlite:///{folder / 'other.db'}", workflows=list(app.workflows.values()))
    async with other.client():
        await other.take_in(folder / "bundle", trust=folder / "trust", by="ann")
    return other


@pytest.mark.sqlite("its copy is a copy of a file")
async def test_an_older_copy_in_which_nothing_was_revoked_is_refused_with_a_seal(
    stage: Stage, outside: Outside, tmp_path: Path
) -> None:
    """Requirement 48. Requirement 25."""
    desk = at_the_till(outside)
    keys.create("ada", tmp_path)
    async with stage.app(desk) as app:
        authority = mp.Authority("bot", scopes={"charge"})
        handle = await app.start(desk, "o", authority=authority, budget={"usd": 100})
        await parked(handle, "signal")
    shutil.copy(stage.path, tmp_path / "older.db")
    async with stage.app(desk) as app:
        await app.revoke(handle.id, scopes=["charge"], **WHY)
        await has_entry(app, handle.id, "narrowed")
        await app.make_seal(tmp_path / "seal", key=tmp_path / "ada.key")
    for beside in stage.folder.glob("store.db-*"):
        beside.unlink()
    shutil.copy(tmp_path / "older.db", stage.path)

    with pytest.raises(RolledBack):
        async with stage.app(desk, seal=tmp_path / "seal"):
            pass
    assert outside.done == []

"""A run that was taken in from another store meets what was done here meanwhile."""

from pathlib import Path

import pytest

import milepost as mp
from milepost.core import entries as e
from milepost.core.code_entries import Resumed
from milepost.operations import keys, transfer
from tests.runtime.bank import Bank, paying, tool_of
from tests.runtime.policies import fields
from tests.runtime.stage import Stage, has_entry, parked, status_of
from tests.runtime.test_restored_authority import taken_in
from tests.runtime.test_vouching import forge


class Payments:
    """A tool with a business identity; while `away`, nothing is sent."""

    def __init__(self) -> None:
        self.away = True
        self.done: list[str] = []

        @mp.tool(effect="keyed", key_ttl="24h", once="order", retry=mp.Retry(3, first="1h"))
        async def pay(order: str) -> str:
            if self.away:
                raise mp.NotSent("no route")
            self.done.append(order)
            return f"paid {order}"

        @mp.workflow(version="1", tools=[pay])
        async def paying(run: mp.Run, order: str) -> str:
            return await pay(order)

        self.paying = paying


@pytest.mark.parametrize("here", [True, False])
async def test_what_another_run_has_done_here_is_not_tried_again_by_one_that_was_taken_in(
    stage: Stage, tmp_path: Path, *, here: bool
) -> None:
    """Requirement 24. It claimed its identity where it comes from, with its first attempt; here it is another run's."""
    bank = Payments()
    bundle, folder = tmp_path / "runs.bundle", tmp_path / "keys"
    keys.create("ada", folder)
    ada = keys.read_private(folder / "ada.key")
    trust = keys.Trust({"ada": keys.Operator("ada", ada.public, frozenset({"export"}))})
    async with stage.app(bank.paying, still=True) as app:
        given = await app.start(bank.paying, "o-1")
        await has_entry(app, given.id, "effect_failed")
        await status_of(given, "parked")
        await transfer.export(app._need_engine().store, [given.id], ada, bundle, 1)

    bank.away = False
    other = mp.App(f"sqlite:///{tmp_path / 'other.db'}", workflows=[bank.paying], clock=stage.clock)
    async with other:
        engine = other._need_engine()
        if here:
            assert await (await other.start(bank.paying, "o-1")).result(timeout="30s") == "paid o-1"

        async def commit(operation: object) -> object:
            return await engine.writer.durable(operation)  # type: ignore[arg-type]

        await transfer.take_in(engine.store, commit, transfer.read(bundle, trust), 2, "ann")
        await other._operator().resume(given.id, by="ann", why="it is deleted there")
        await status_of(other.handle(given.id), "parked")
        stage.clock.advance("2h")
        ended = await status_of(other.handle(given.id), "failed", "done", "blocked")
        failed = (await fields(other, given.id, "effect_failed"))[-1]
        third = await other.start(bank.paying, "o-1")
        assert await third.result(timeout="30s") == "paid o-1", "whoever has done it is still whose it is"

    assert ended.status == ("failed" if here else "done")
    told = (failed["reason"], failed.get("by"), failed["attempt"], failed.get("final", False))
    assert told == (("conflict", "once", 1, True) if here else ("not_sent", None, 1, False))
    assert bank.done == ["o-1"]


@pytest.mark.parametrize("killed", [False, True])
async def test_what_a_contradiction_holds_is_held_where_its_run_is_taken_in(
    stage: Stage, tmp_path: Path, *, killed: bool
) -> None:
    """Requirement 46. Nobody knows what happened there; so nobody here may add to it before a person has looked."""
    tool = tool_of(Bank("loses the answer"), lambda: 0, asks=False, effect="queryable", visible_within="0s")

    @tool.reconcile
    async def find(call: mp.Call, order: str, cents: int) -> mp.Finding[str]:
        return mp.conflict(["one", "two"])

    flow = paying(tool)
    async with stage.app(flow) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "person_needed")
        await parked(handle, "unknown")
        if killed:
            await app.kill(handle.id, why="enough")
        other = await taken_in(app, handle.id, tmp_path)
    async with other:
        (held,) = [one.switch for one in await other.switches()]
        assert (held.scope, held.kind, held.about) == ("tool:charge", "hold", f"{handle.id} flow/charge#1")
        later = await other.start(flow, "o-2")
        await parked(later, "person")
        if killed:
            await other.resolve(handle.id, "flow/charge#1", mp.happened("one"), by="ann", why="paid back the other")
            await has_entry(other, handle.id, "effect_confirmed")
            await has_entry(other, later.id, "effect_started")
            assert [one for one in await other.switches() if one.switch.by == handle.id] == []


async def test_what_a_run_overspent_elsewhere_is_told_where_it_is_taken_in(stage: Stage, tmp_path: Path) -> None:
    """Requirement 83."""

    @mp.tool(effect="keyed", key_ttl="24h", cost={"usd": 1})
    async def splurge(call: mp.Call) -> str:
        call.spent(usd=5)
        return "gone"

    @mp.workflow(version="1", tools=[splurge])
    async def splurging(run: mp.Run) -> str:
        return await splurge()

    async with stage.app(splurging) as app:
        handle = await app.start(splurging, budget={"usd": 1})
        assert await handle.result(timeout="30s") == "gone"
        other = await taken_in(app, handle.id, tmp_path)
    async with other.client():
        assert await other._need_engine().store.overspent() == {handle.id: {"usd": 4}}


LATE = e.Contradicted(at=1, step="", tool="charge", evidence="it returned after all", by="worker-1")
BLOCKED = e.RunStopped(at=1, status="blocked", code="contradicted", why="one/charge#1: it returned after all")


@pytest.mark.parametrize(
    ("since", "held"),
    [
        ((e.RunStopped(at=1, status="failed", code="segment_failed", why=""), e.Retried(at=1, by="ann")), True),
        ((BLOCKED, Resumed(at=1, by="ann", was="contradicted")), False),
        ((BLOCKED, e.RunStopped(at=1, status="blocked", code="imported", why=""),
          Resumed(at=1, by="ann", was="imported")), True),
    ],
    ids=["tried again", "looked into", "taken in and driven there"],
)  # fmt: skip
async def test_a_doubt_about_an_earlier_segment_is_held_until_somebody_has_looked_into_it(
    stage: Stage, tmp_path: Path, since: tuple[e.Entry, ...], *, held: bool
) -> None:
    """Requirement 46. To try a failed segment again, or to drive a run that was taken in, says nothing of the doubt."""

    @mp.workflow(version="1", name="flow")
    async def flow(run: mp.Run, name: str) -> str:
        await run.receive("go", int)
        return name

    async with stage.app(flow) as app:
        handle = await app.start(flow, "o-1")
        await parked(handle, "signal")
    async with stage.app(flow).client() as app:
        await forge(app, handle.id, LATE, *since)
        other = await taken_in(app, handle.id, tmp_path)
    async with other.client():
        assert [one.switch.scope for one in await other.switches()] == (["tool:charge"] if held else [])

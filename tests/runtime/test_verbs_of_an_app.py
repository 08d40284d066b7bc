"""What a person may do on the command line, a program may do as well."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

import milepost as mp
from milepost.cli.main import OWN
from milepost.operations import keys
from milepost.testing.manual_clock import START
from tests.runtime.policies import Outside, fields, mailing, one_call
from tests.runtime.stage import Stage, has_entry, parked, status_of

NOT_METHODS = {
    # where a program has something else: `start`, `run`, `inspect`, `plan`, a worker of its own
    "init", "worker", "runs", "show", "journal", "effects", "approvals", "diff", "tools", "verify", "doctor", "policy",
    "keys", "demo", "stop",
    # what is done to a database, and how its fleet stands: for who runs them
    "db", "queues", "schedules",
}  # fmt: skip
NAMED = {"budget": "set_budget", "seal": "make_seal", "import": "take_in"}


@pytest.fixture
def outside() -> Outside:
    return Outside()


def test_an_app_has_a_method_for_each_verb_of_the_command_line() -> None:
    verbs = {name for section in OWN.values() for name in section} - NOT_METHODS

    assert [verb for verb in sorted(verbs) if not callable(getattr(mp.App, NAMED.get(verb, verb), None))] == []


async def test_a_program_takes_scopes_and_money_from_a_run(stage: Stage, outside: Outside) -> None:
    """Requirement 25."""
    flow = one_call(mailing(outside, effect="keyed", key_ttl="24h", cost={"usd": 5}, scopes=["mail"], approval=True))
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann", authority=mp.Authority("bot", scopes={"mail"}), budget={"usd": 9})
        await parked(handle, "approval")
        assert await app.revoke(handle.id, scopes=["mail"], ceilings={"usd": 1}, by="bo", why="it was too much")
        await has_entry(app, handle.id, "narrowed")
        detail = await app.inspect.detail(handle.id)
        assert (detail.scopes, detail.granted) == ((), {"usd": "1"})
        (narrowed,) = await fields(app, handle.id, "narrowed")
        assert (narrowed["by"], narrowed["why"]) == ("bo", "it was too much")
        (row,) = await app.inspect.approvals("asked")
        await app.approve(row.id, by="bo", why="all the same")
        await parked(handle, "authority")
    assert outside.sent == []


async def test_a_program_sets_shared_budgets_and_sees_how_they_stand(stage: Stage, outside: Outside) -> None:
    """Requirement 83."""
    flow = one_call(mailing(outside, effect="keyed", key_ttl="24h", cost={"usd": 5}))
    async with stage.app(flow) as app:
        assert await app.set_budget("total", {"usd": 4}, by="bo", why="little") == 0
        handle = await app.start(flow, "ann", budget={"usd": 5})
        await parked(handle, "budget")
        assert await app.set_budget("total", {"usd": 6}, by="bo", why="enough") == 1
        assert await handle.result(timeout="30s") == "sent ann"
        (pool,) = await app.budgets()
        assert (pool.pool, pool.ceiling, pool.spent, pool.left) == ("total", Decimal(6), Decimal(5), Decimal(1))
        with pytest.raises(mp.InvalidValue):
            await app.set_budget("nobody:x", {"usd": 1}, by="bo", why="")


async def test_a_program_freezes_and_thaws(stage: Stage, outside: Outside) -> None:
    flow = one_call(mailing(outside))
    async with stage.app(flow) as app:
        await app.freeze("tool:mail", by="bo", why="it is night")
        handle = await app.start(flow, "ann")
        await parked(handle, "switch")
        (found,) = await app.switches()
        assert (found.switch.scope, found.switch.by, found.switch.why) == ("tool:mail", "bo", "it is night")
        assert await app.thaw("tool:mail", by="bo", why="it is day") == 1
        assert await handle.result(timeout="30s") == "sent ann"


async def test_who_kills_cancels_and_sends_is_recorded(stage: Stage, outside: Outside) -> None:
    """Requirement 66."""
    flow = one_call(mailing(outside, approval=True))
    async with stage.app(flow) as app:
        killed, cancelled = await app.start(flow, "ann"), await app.start(flow, "bob")
        await app.kill(killed.id, why="enough", by="bo")
        await app.cancel(cancelled.id, why="enough", by="bo")
        await status_of(cancelled, "cancelled")
        assert [one["by"] for one in await fields(app, killed.id, "run_stopped")] == ["bo"]
        assert [one["by"] for one in await fields(app, cancelled.id, "cancel_asked")] == ["bo"]


async def test_a_program_seals_exports_takes_in_and_prunes(stage: Stage, outside: Outside, tmp_path: Path) -> None:
    keys.create("ada", tmp_path)
    keys.add(tmp_path / "trust", next(iter(keys.load(tmp_path / "ada.pub").operators.values())), ["export"], None)
    flow, ada = one_call(mailing(outside)), tmp_path / "ada.key"
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "ann")
        await handle.result(timeout="30s")
        sealed = await app.make_seal(tmp_path / "seal", key=ada)
        assert (sealed.facts.runs, sealed.facts.by) == (1, "ada")
        exported = await app.export([handle.id[:8]], tmp_path / "bundle", key=ada)
        assert [run for run, _ in exported.runs] == [handle.id]
        stage.clock.advance("2h")
        assert (await app.prune(before="3h", by="bo", why="old")).runs == []
        until = START + timedelta(hours=1)
        assert [one.run_id for one in (await app.prune(before=until, by="bo", why="old")).runs] == [handle.id]
    other = mp.App(f"sqlite:///{tmp_path / 'other.db'}", workflows=[flow])
    async with other.client():
        ((run, taken),) = await other.take_in(tmp_path / "bundle", trust=tmp_path / "trust", by="bo")
        assert (run, getattr(taken, "fresh", taken)) == (handle.id, True)
        await has_entry(other, handle.id, "run_done")

"""Every decision is an entry that says who, why and by which rule, and no change is made without its entry."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost.core import codec
from milepost.operations.switches import history_of
from tests.runtime.bank import Bank, paying, tool_of
from tests.runtime.policies import File, Outside, fields, mailing, one_call
from tests.runtime.stage import Stage, has_entry, parked, status_of
from tests.runtime.test_approvals import asked

WHO: Any = {"by": "bo", "why": "as we agreed"}


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.fixture
def policy(tmp_path: Path) -> File:
    return File(tmp_path / "policy.toml")


async def told(app: mp.App, run_id: str, name: str, *facts: str) -> list[tuple[Any, ...]]:
    """Return these fields of all entries of a name."""
    return [tuple(one.get(fact, "") for fact in facts) for one in await fields(app, run_id, name)]


async def test_what_a_policy_allows_asks_and_denies_is_on_record_with_its_rule(
    stage: Stage, outside: Outside, policy: File
) -> None:
    """Requirement 71. The rule and the file stand beside what they decided."""
    flow = one_call(mailing(outside, retry=mp.Retry(1)))
    say = ("near; allow; when = \"args.to == 'ann'\"", 'far; ask; when = "args.to == \'bob\'"; why = "far away"')
    no = 'never; deny; when = "args.to == \'eve\'"; why = "not her"'
    async with stage.app(flow, policy=policy.says(*say, no)) as app:
        near, far, never = [await app.start(flow, to) for to in ("ann", "bob", "eve")]
        await app.approve((await asked(app)).id, by="ann", why="he may")
        for one in (near, far, never):
            await status_of(one, "done")
        ((rule, label),) = await told(app, near.id, "effect_started", "rule", "policy")
        assert (rule, label.startswith("1")) == ("near", True)
        assert await told(app, far.id, "approval_asked", "rule", "policy", "why") == [("far", label, "far away")]
        assert await told(app, far.id, "approval_answered", "by", "why", "approved") == [("ann", "he may", True)]
        ((by, why, which),) = await told(app, never.id, "effect_failed", "by", "why", "policy")
        assert (by, "not her" in why, which) == ("policy never", True, label)


async def test_what_a_person_does_to_a_run_is_on_record_with_who_and_why(stage: Stage) -> None:
    """Requirement 20."""
    flow = paying(tool_of(Bank("loses the answer"), lambda: 0, asks=False, scopes=["pay"], cost={"usd": 1}))
    async with stage.app(flow) as app:
        one, two, three = [await app.start(flow, order) for order in ("o-1", "o-2", "o-3")]
        await app.grant(one.id, scopes=["pay"], budget={"usd": 2}, **WHO)
        await parked(one, "unknown")
        await app.revoke(one.id, scopes=["pay"], **WHO)
        await app.resolve(one.id, "flow/charge#1", mp.happened("receipt"), **WHO)
        await app.cancel(two.id, **WHO)
        await app.kill(three.id, **WHO)
        await status_of(one, "done")
        await status_of(two, "cancelled")
        for run, name in (
            (one, "widened"), (one, "narrowed"), (two, "cancel_asked"), (three, "run_stopped"),
        ):  # fmt: skip
            assert await told(app, run.id, name, "by", "why") == [("bo", "as we agreed")], name
        assert await told(app, one.id, "effect_confirmed", "by", "why") == [("person bo", "as we agreed")]


async def test_going_back_trying_again_and_forking_are_on_record_with_who_and_why(
    stage: Stage, outside: Outside
) -> None:
    flow = one_call(mailing(outside, approval=True))
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        await app.deny((await asked(app)).id, **WHO)
        await status_of(handle, "done")
        await app.rewind(handle.id, to="flow", **WHO)
        await has_entry(app, handle.id, "rewound")
        fork = await app.fork(handle.id, **WHO)
        assert await told(app, handle.id, "approval_answered", "by", "why") == [("bo", "as we agreed")]
        assert await told(app, handle.id, "rewind_asked", "by", "why") == [("bo", "as we agreed")]
        assert await told(app, handle.id, "rewound", "by", "why") == [("bo", "as we agreed")]
        assert await told(app, fork.id, "run_created", "by", "why") == [("bo", "as we agreed")]


async def test_what_is_decided_about_the_store_is_on_record_with_who_and_why(stage: Stage, outside: Outside) -> None:
    """Requirement 64. Switches, ceilings and breakers, in the store's own journal."""

    @mp.tool(effect="keyed", key_ttl="24h", retry=mp.Retry(1))
    async def away(to: str) -> str:
        raise mp.NotSent("no route")

    flow = one_call(away)
    async with stage.app(flow, breaker=mp.Breaker(failures=1)) as app:
        await app.freeze("tool:mail", **WHO)
        await app.thaw("tool:mail", **WHO)
        await app.set_budget("total", {"usd": 5}, **WHO)
        await status_of(await app.start(flow, "ann"), "failed")
        await app.thaw("tool:away", **WHO)
        entries = await history_of(app._need_engine().store)
    found = {codec.name_of(one): one for one in entries}
    assert list(found) == ["switch_set", "switch_lifted", "ceiling_set", "breaker_opened", "breaker_closed"]
    for name in ("switch_set", "switch_lifted", "ceiling_set", "breaker_closed"):
        assert (getattr(found[name], "by", ""), getattr(found[name], "why", "")) == ("bo", "as we agreed"), name
    assert "no route" in str(getattr(found["breaker_opened"], "why", ""))


Act = Callable[[mp.App, str], Awaitable[Any]]
ACTS: dict[str, Act] = {
    "freeze": lambda app, _: app.freeze("all", **WHO),
    "set_budget": lambda app, _: app.set_budget("total", {"usd": 5}, **WHO),
    "kill": lambda app, run: app.kill(run, **WHO),
    "prune": lambda app, _: app.prune(before="0s", **WHO),
    "start": lambda app, _: app.start(one_call_of(app), "bob"),
}
LOOK = """SELECT (SELECT count(*) FROM mp_switches), (SELECT count(*) FROM mp_ceilings),
    (SELECT count(*) FROM mp_tombstones), (SELECT group_concat(id || status) FROM mp_runs WHERE id <> 'system')"""


def one_call_of(app: mp.App) -> mp.Workflow[Any, Any]:
    return next(iter(app.workflows.values()))


@pytest.mark.sqlite("it changes the file behind its back")
@pytest.mark.parametrize("verb", ACTS)
async def test_what_cannot_be_written_down_is_not_done(stage: Stage, outside: Outside, verb: str) -> None:
    """Requirement 73. The journal refuses: no logger that swallows it, and no change without its entry."""
    flow = one_call(mailing(outside, approval=True))
    async with stage.app(flow) as app:
        ended = await app.start(flow, "ann")
        await app.deny((await asked(app)).id, **WHO)
        await status_of(ended, "done")
        run = await app.start(flow, "bob")
        await parked(run, "approval")
    stage.write("CREATE TRIGGER full BEFORE INSERT ON mp_journal BEGIN SELECT RAISE(ABORT, 'no room'); END")
    before = stage.rows(LOOK)

    with pytest.raises(mp.StoreFailed):
        async with stage.app(flow).client() as app:
            await ACTS[verb](app, run.id)

    assert stage.rows(LOOK) == before
    stage.write("DROP TRIGGER full")
    async with stage.app(flow).client() as app:
        await ACTS[verb](app, run.id)
    assert stage.rows(LOOK) != before

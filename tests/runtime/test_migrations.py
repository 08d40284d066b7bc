"""A run of an older version is led to today's at a boundary, step by step, or stops with a readable reason."""

import runpy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import milepost as mp
from milepost.core.decide import Migrate
from milepost.runtime import driver
from tests.runtime.desks import (
    Desk,
    Order,
    To,
    at_the_boundary,
    blocked,
    broken,
    charge,
    desk,
    entries,
    inside,
    migrates_from_1,
    sized,
)
from tests.runtime.stage import Stage, names, parked, status_of
from tests.tidy.repository import ROOT


async def test_a_migration_leads_a_run_to_the_new_version_and_is_recorded(stage: Stage) -> None:
    """Requirement 35. Requirement 57. Migrated, and the new boundary, in one append."""
    run_id = await at_the_boundary(stage, desk())
    new = sized("2", declares=migrates_from_1)
    async with stage.app(new) as app:
        assert await app.handle(run_id, new).result(timeout="30s") == "receipt a for 700"
        (migrated,) = await entries(app, run_id, "migrated")
        assert (migrated["version"], migrated["to"], migrated["by"]) == ("1", "2", "2")
        assert (migrated["segment"], migrated["to_segment"]) == ("pay", "settle")
        assert migrated["before"] != migrated["after"]
        said = await names(app, run_id)
        assert said[said.index("migrated") + 1] == "checkpointed"
        assert (await app.inspect.verify(run_id)).damage is None
        assert (await app.inspect.detail(run_id)).manifest["version"] == "2"


async def test_migrations_are_applied_one_after_the_other(stage: Stage) -> None:
    """Requirement 35."""
    asked: list[tuple[str, str, Any]] = []

    def chain(flow: Desk, settle: To) -> None:
        @flow.migration(from_="10")
        def last(segment: str, state: Any) -> mp.Next[str]:
            asked.append(("10", segment, state))
            return mp.go(settle, Order(state["order"], state["cents"] + 1))

        @flow.migration(from_="1")
        def first(segment: str, state: Any) -> mp.Next[str]:
            asked.append(("1", segment, state))
            return mp.Next("somewhere", {"order": state}, None)

        @flow.migration(from_="2")
        def second(segment: str, state: Any) -> mp.Next[str]:
            asked.append(("2", segment, state))
            return mp.Next("elsewhere", {**state, "cents": 5}, None)

    run_id = await at_the_boundary(stage, desk())
    new = sized("11", declares=chain)
    async with stage.app(new) as app:
        assert await app.handle(run_id, new).result(timeout="30s") == "receipt a for 6"
        assert asked == [
            ("1", "pay", "a"),
            ("2", "somewhere", {"order": "a"}),
            ("10", "elsewhere", {"order": "a", "cents": 5}),
        ]
        steps = await entries(app, run_id, "migrated")
        assert [(step["version"], step["to"]) for step in steps] == [("1", "2"), ("2", "10"), ("10", "11")]
        assert [step["after"] for step in steps[:-1]] == [step["before"] for step in steps[1:]]


def unfit(flow: Desk, settle: To) -> None:
    @flow.migration(from_="1")
    def makes_what_does_not_fit(segment: str, state: Any) -> mp.Next[str]:
        return mp.go(settle, {"name": state})


def done_at_once(flow: Desk, settle: To) -> None:
    @flow.migration(from_="1")
    def ends(segment: str, state: Any) -> mp.Next[str]:
        return mp.done("no")


def gives_up(flow: Desk, settle: To) -> None:
    @flow.migration(from_="1")
    def cannot(segment: str, state: Any) -> mp.Next[str]:
        return mp.fail("nobody knows its price")


def nowhere(flow: Desk, settle: To) -> None:
    @flow.migration(from_="1")
    def goes_nowhere(segment: str, state: Any) -> mp.Next[str]:
        return mp.Next("gone", state, None)


def acts(flow: Desk, settle: To) -> None:
    @flow.migration(from_="1")
    def sends(segment: str, state: Any) -> mp.Next[str]:
        _ = charge("b")
        return mp.go(settle, Order(state, 1))


@pytest.mark.parametrize(
    ("declares", "said"),
    [
        (broken, "raised KeyError: 'cents'"),
        (unfit, "made a state that does not fit"),
        (done_at_once, "not mp.go(segment, state)"),
        (gives_up, "cannot be carried over: nobody knows its price"),
        (nowhere, "goes to segment 'gone', which is not declared"),
        (acts, "raised NoRun"),
    ],
)
async def test_a_migration_that_fails_blocks_with_a_reason_and_can_be_mended(
    stage: Stage, declares: Callable[[Desk, To], None], said: str
) -> None:
    """Requirement 35. Requirement 57."""
    run_id = await at_the_boundary(stage, desk())
    async with stage.app(sized("2", declares=declares)) as app:
        why = await blocked(app, run_id)
        assert why.startswith("migration_failed: the migration from '1'")
        assert said in why
        assert "migrated" not in await names(app, run_id)
    mended = sized("2", declares=migrates_from_1)
    async with stage.app(mended) as app:
        await app.resume(run_id, by="ann", why="the migration is mended")
        await status_of(app.handle(run_id), "done")
        assert await app.handle(run_id, mended).result(timeout="30s") == "receipt a for 700"


async def test_no_migration_runs_inside_a_half_done_segment(stage: Stage) -> None:
    """Requirement 40."""
    called: list[str] = []

    def declares(flow: Desk, settle: To) -> None:
        @flow.migration(from_="1")
        def widen(segment: str, state: Any) -> mp.Next[str]:
            called.append(segment)
            return mp.go(settle, Order(state, 1))

    run_id = await inside(stage, desk())
    async with stage.app(sized("2", declares=declares)) as app:
        await app.send(run_id, "go", 1)
        why = await blocked(app, run_id)
        assert "at a boundary only" in why
        assert "inside segment 'pay'" in why
        assert called == []


async def test_a_wait_for_a_signal_that_has_not_come_does_not_keep_a_run_from_being_migrated(stage: Stage) -> None:
    """Most runs that wait for weeks wait for a signal: as the first call of a segment it has done nothing yet."""

    def listening(version: str, kind: type[Any]) -> mp.Workflow[Any, Any]:
        flow = mp.Workflow("desk", version=version, input=kind, result=list[Any])

        async def wait(run: mp.Run, state: Any) -> mp.Next[list[Any]]:
            return mp.done([await run.receive("go", int), msgspec.to_builtins(state)])

        wait.__annotations__["state"] = kind
        segment = flow.segment(wait)
        if version == "2":

            @flow.migration(from_="1")
            def widen(_: str, state: Any) -> mp.Next[list[Any]]:
                return mp.go(segment, Order(state, 9))

        return flow

    old, new = listening("1", str), listening("2", Order)
    async with stage.app(old) as app:
        handle = await app.start(old, "a")
        await parked(handle, "signal")
    async with stage.app(new) as app:
        await app.send(handle.id, "go", 3)
        assert await app.handle(handle.id, new).result(timeout="30s") == [3, {"name": "a", "cents": 9}]


async def test_a_retried_segment_is_migrated_to_other_keys(stage: Stage) -> None:
    """What failed in the old version was given up; the new version's effects never share a key with it."""
    keys: list[str] = []

    @mp.tool(name="pay", effect="keyed", key_ttl="24h", retry=mp.Retry(1))
    async def pay(call: mp.Call, order: str) -> str:
        keys.append(call.key)
        if len(keys) == 1:
            raise mp.Rejected("no such card")
        return f"receipt {order}"

    def flow(version: str) -> mp.Workflow[Any, str]:
        made = mp.Workflow("flow", version=version, input=str, result=str, tools=[pay])

        @made.segment
        async def only(run: mp.Run, order: str) -> mp.Next[str]:
            return mp.done(await pay(order))

        if version == "2":

            @made.migration(from_="1")
            def other_card(segment: str, state: Any) -> mp.Next[str]:
                return mp.go(only, f"{state} by another card")

        return made

    old, new = flow("1"), flow("2")
    async with stage.app(old) as app:
        handle = await app.start(old, "a")
        await status_of(handle, "failed")
    async with stage.app(new) as app:
        await app.retry(handle.id, by="ann")
        await status_of(app.handle(handle.id), "done")
        assert await app.handle(handle.id, new).result(timeout="30s") == "receipt a by another card"
        assert len(set(keys)) == 2


async def test_a_large_state_is_migrated_too(stage: Stage) -> None:
    def paged(version: str) -> mp.Workflow[Any, int]:
        kind: Any = list[int] if version == "1" else dict[str, list[int]]
        flow = mp.Workflow("pages", version=version, input=list[int], result=int)

        @flow.segment
        async def first(run: mp.Run, pages: list[int]) -> mp.Next[int]:
            return mp.go(second, pages)

        async def later(run: mp.Run, pages: Any) -> mp.Next[int]:
            return mp.done(len(pages if version == "1" else pages["pages"]))

        later.__annotations__["pages"] = kind
        second: Any = flow.segment(later)
        if version == "2":

            @flow.migration(from_="1")
            def named(_: str, state: Any) -> mp.Next[int]:
                return mp.go(second, {"pages": [*state, 1]})

        return flow

    app = stage.app(old := paged("1"))
    await app._open(drives=True)
    handle = await app.start(old, list(range(5_000)))
    await driver.advance(app._need_engine(), handle.id, segments=1)
    await app._close()
    async with stage.app(new := paged("2")) as app:
        assert await app.handle(handle.id, new).result(timeout="30s") == 5_001
        assert (await app.inspect.verify(handle.id)).damage is None


async def test_a_plan_says_that_a_migration_comes_first(stage: Stage) -> None:
    run_id = await at_the_boundary(stage, desk())
    app = stage.app(sized("2", declares=migrates_from_1))
    async with app.client():
        decision = await app.plan(run_id)
    assert decision.perform == Migrate(("1", "2"))


def test_a_migration_that_leads_nowhere_or_in_a_circle_is_refused_with_the_app(stage: Stage) -> None:
    def declares(flow: Desk, settle: To) -> None:
        flow.migration(from_="1", to="3")(lambda _, state: mp.go(settle, state))

    def circle(flow: Desk, settle: To) -> None:
        flow.migration(from_="1", to="3")(lambda _, state: mp.go(settle, state))
        flow.migration(from_="3", to="1")(lambda _, state: mp.go(settle, state))

    for wrong in (declares, circle):
        with pytest.raises(mp.InvalidDeclaration, match="no further"):
            stage.app(sized("2", declares=wrong))


async def test_the_example_of_a_data_migration_runs_as_it_stands(stage: Stage) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "migration.py"))
    async with stage.app(example["move"]) as app:
        handle = await app.start(example["move"], example["Cursor"]())
        assert await handle.result(timeout="30s") == example["Cursor"](after=0, moved=0)

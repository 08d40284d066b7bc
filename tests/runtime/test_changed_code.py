"""A run that waited meets code that changed: it goes on and says so, is migrated, or stops with a readable reason."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

import milepost as mp
from milepost.core.decide import Migrate
from milepost.runtime import driver
from tests.runtime.stage import Stage, has_entry, names, parked, status_of

Desk = mp.Workflow[Any, str]
To = mp.Segment[Any, str]


@mp.tool(effect="keyed", key_ttl="24h")
async def charge(order: str) -> str:
    return f"receipt {order}"


def priced(version: str, *stands_in: str) -> mp.Tool[[str], str]:
    @mp.tool(name="charge", version=version, effect="keyed", key_ttl="24h", compatible_with=stands_in)
    async def newer(order: str) -> str:
        return f"receipt {version} {order}"

    tool: mp.Tool[[str], str] = newer
    return tool


def desk(version: str = "1", tool: mp.Tool[[str], str] = charge, **options: Any) -> mp.Workflow[str, str]:
    """Return a desk that triages, then waits inside `pay` with a receipt in hand."""
    flow = mp.Workflow("desk", version=version, input=str, result=str, tools=[tool], **options)

    @flow.segment
    async def triage(run: mp.Run, order: str) -> mp.Next[str]:
        return mp.go(pay, order)

    @flow.segment
    async def pay(run: mp.Run, order: str) -> mp.Next[str]:
        receipt = await tool(order)
        await run.receive("go", int)
        return mp.done(receipt)

    return flow


def changed_desk(version: str = "1", **options: Any) -> mp.Workflow[str, str]:
    """Return the desk with another text of `pay`, which makes the same calls."""
    flow = mp.Workflow("desk", version=version, input=str, result=str, tools=[charge], **options)

    @flow.segment
    async def triage(run: mp.Run, order: str) -> mp.Next[str]:
        return mp.go(pay, order)

    @flow.segment
    async def pay(run: mp.Run, order: str) -> mp.Next[str]:
        receipt = await charge(order)
        await run.receive("go", int)
        return mp.done(f"changed: {receipt}")

    return flow


async def at_the_boundary(stage: Stage, flow: mp.Workflow[str, str], given: str = "a") -> str:
    """Drive a new run over its first boundary and let go of it there."""
    app = stage.app(flow)
    await app._open(drives=True)
    try:
        handle = await app.start(flow, given)
        await driver.advance(app._need_engine(), handle.id, segments=1)
        return handle.id
    finally:
        await app._close()


async def inside(stage: Stage, flow: mp.Workflow[str, str]) -> str:
    """Drive a new run until it waits inside `pay`, with a receipt recorded."""
    async with stage.app(flow) as app:
        handle = await app.start(flow, "a")
        await parked(handle, "signal")
        return handle.id


async def blocked(app: mp.App, run_id: str) -> str:
    """Wait until a run is blocked; return why."""
    await status_of(app.handle(run_id), "blocked")
    return (await app._need_engine().store.run(run_id)).why or ""


async def entries(app: mp.App, run_id: str, name: str) -> list[dict[str, Any]]:
    return [line.fields for line in await app.inspect.journal(run_id) if line.name == name]


# ---------------------------------------------------------------- it goes on, and says what differs


async def test_changed_code_at_a_boundary_goes_on_and_is_recorded_once(stage: Stage) -> None:
    """Requirement 34. The fingerprint warns: who found it, and what changed, stands in the journal."""
    run_id = await at_the_boundary(stage, desk())
    new = changed_desk()
    async with stage.app(new) as app:
        await parked(app.handle(run_id), "signal")
    async with stage.app(new) as app:
        await app.send(run_id, "go", 1)
        assert await app.handle(run_id, new).result(timeout="10s") == "changed: receipt a"
        (change,) = await entries(app, run_id, "code_changed")
        assert "the code of segment 'pay' changed" in change["changes"]
        assert change["by"]


async def test_a_declared_version_goes_on_inside_a_half_done_segment(stage: Stage) -> None:
    """Requirement 57. Established compatibility."""
    run_id = await inside(stage, desk())
    new = changed_desk("2", compatible_with=["1"])
    async with stage.app(new) as app:
        await app.send(run_id, "go", 1)
        assert await app.handle(run_id, new).result(timeout="10s") == "changed: receipt a"
        (change,) = await entries(app, run_id, "code_changed")
        assert "the code of segment 'pay' changed" in change["changes"]


# ---------------------------------------------------------------- half done


async def test_a_changed_segment_blocks_a_run_that_is_half_done_with_it_until_a_person_resumes(stage: Stage) -> None:
    """Requirement 40. Requirement 35. It is not resumed silently, and what was accepted is in the record."""
    run_id = await inside(stage, desk())
    new = changed_desk()
    async with stage.app(new) as app:
        await app.send(run_id, "go", 1)
        why = await blocked(app, run_id)
        assert "segment 'pay' changed while the run is inside it" in why
        assert f"milepost resume {run_id}" in why
        assert "effect_started" not in (await names(app, run_id))[-3:]
        await app.resume(run_id, by="ann", why="the calls are the same")
        await status_of(app.handle(run_id), "done")
        assert await app.handle(run_id, new).result(timeout="10s") == "changed: receipt a"
        (resumed,) = await entries(app, run_id, "resumed")
        assert (resumed["by"], resumed["was"]) == ("ann", "incompatible")
        assert "the code of segment 'pay' changed while the run is inside it" in resumed["accepted"]


async def test_what_a_person_accepted_is_not_asked_again_for_the_same_code(stage: Stage) -> None:
    run_id = await inside(stage, desk())
    new = changed_desk()
    async with stage.app(new) as app:
        await app.send(run_id, "other", 1)
        await blocked(app, run_id)
        await app.resume(run_id, by="ann", why="the same calls")
        await parked(app.handle(run_id), "signal")
    async with stage.app(new) as app:
        await app.send(run_id, "go", 1)
        assert await app.handle(run_id, new).result(timeout="10s") == "changed: receipt a"
    assert len([name for name in await _names(stage, new, run_id) if name == "resumed"]) == 1


async def _names(stage: Stage, flow: mp.Workflow[str, str], run_id: str) -> list[str]:
    app = stage.app(flow)
    async with app.client():
        return await names(app, run_id)


async def test_steps_that_new_code_recorded_after_the_boundary_do_not_count_as_the_old_code_s(stage: Stage) -> None:
    """A run that crossed to new code at a boundary is compared with that code from then on, and not with the old."""
    run_id = await at_the_boundary(stage, desk())
    async with stage.app(changed_desk()) as app:
        await parked(app.handle(run_id), "signal")
    async with stage.app(desk()) as app:  # and back again: now the old text is the one that changed
        await app.send(run_id, "go", 1)
        assert "segment 'pay' changed" in await blocked(app, run_id)


async def test_a_run_that_failed_is_compared_again_when_it_is_retried(stage: Stage) -> None:
    """Requirement 40. A retry is no way around the comparison."""

    def flow(version: str, *, works: bool) -> mp.Workflow[None, str]:
        @mp.workflow(version=version, name="flow", tools=[charge])
        async def flow(run: mp.Run) -> str:
            got = await charge("a")
            if not works:
                raise RuntimeError("down")
            return got

        return flow

    broken = flow("1", works=False)
    async with stage.app(broken) as app:
        handle = await app.start(broken)
        await status_of(handle, "failed")
    async with stage.app(flow("2", works=True)) as app:
        await app.retry(handle.id, by="ann")
        assert "compatible_with=['1']" in await blocked(app, handle.id)


# ---------------------------------------------------------------- tools


async def test_a_run_stops_at_its_boundary_where_the_version_of_a_tool_changed_and_nothing_is_sent(
    stage: Stage,
) -> None:
    """Requirement 40. Requirement 57. Fault 21, of a tool's version."""
    run_id = await at_the_boundary(stage, desk())
    async with stage.app(desk(tool=priced("2"))) as app:
        assert "tool 'charge' was version '1', is now '2'" in await blocked(app, run_id)
        assert "effect_started" not in await names(app, run_id)
        with pytest.raises(mp.Incompatible, match="is now '2'"):
            await app.resume(run_id, by="ann", why="I want to")
    declared = desk(tool=priced("2", "1"))
    async with stage.app(declared) as app:
        await app.resume(run_id, by="ann", why="version 2 stands in for 1")
        await parked(app.handle(run_id), "signal")
        await app.send(run_id, "go", 1)
        assert await app.handle(run_id, declared).result(timeout="10s") == "receipt 2 a"


async def test_a_tool_s_version_decides_nothing_about_an_effect_that_is_unknown(stage: Stage) -> None:
    """Requirement 57. A tool that stands in for an older version still does not send that version's effect again."""
    sent: list[str] = []

    def of(version: str) -> mp.Workflow[None, str]:
        @mp.tool(name="pay", version=version, effect="keyed", key_ttl="24h", compatible_with=["1"])
        async def pay() -> str:
            sent.append(version)
            raise RuntimeError("line broke")

        @mp.workflow(version="1", name="flow", tools=[pay])
        async def flow(run: mp.Run) -> str:
            return await pay()

        return flow

    old = of("1")
    async with stage.app(old, still=True) as app:
        handle = await app.start(old)
        await has_entry(app, handle.id, "effect_unknown")
    stage.clock.advance("10s")
    async with stage.app(of("2"), still=True) as app:
        assert "milepost resolve" in (await parked(app.handle(handle.id), "unknown")).ask
        assert sent == ["1"]


# ---------------------------------------------------------------- resume


async def test_resume_is_refused_with_the_difference_where_nothing_establishes_compatibility(stage: Stage) -> None:
    """Requirement 57. Requirement 35. Also by the worker: a message sent past the app's own check lifts nothing."""
    run_id = await inside(stage, desk())
    new = changed_desk("2")
    async with stage.app(new) as app:
        await app.send(run_id, "other", 1)
        await blocked(app, run_id)
        with pytest.raises(mp.Incompatible, match=r"compatible_with=\['1'\]") as refused:
            await app.resume(run_id, by="ann", why="please")
        assert "milepost show" in str(refused.value)
        await app._operator().resume(run_id, by="ann", why="past the check")
        await has_entry(app, run_id, "message_refused")
        (refusal,) = await entries(app, run_id, "message_refused")
        assert "compatible_with=['1']" in refusal["why"]
        assert (await app.handle(run_id).status()).status == "blocked"


async def test_only_a_blocked_run_is_resumed(stage: Stage) -> None:
    flow = desk()
    run_id = await inside(stage, flow)
    async with stage.app(flow) as app:
        with pytest.raises(mp.WrongStatus, match="blocked"):
            await app.resume(run_id, by="ann", why="why not")


# ---------------------------------------------------------------- migrations


@dataclass(frozen=True)
class Order:
    name: str
    cents: int


def sized(version: str, *, declares: Callable[[Desk, To], None]) -> mp.Workflow[Any, str]:
    """Return a desk whose second segment takes an Order instead of a name."""
    flow = mp.Workflow("desk", version=version, input=str, result=str, tools=[charge])

    @flow.segment
    async def triage(run: mp.Run, order: str) -> mp.Next[str]:
        return mp.go(settle, Order(order, 100))

    @flow.segment
    async def settle(run: mp.Run, order: Order) -> mp.Next[str]:
        receipt = await charge(order.name)
        return mp.done(f"{receipt} for {order.cents}")

    declares(flow, settle)
    return flow


def migrates_from_1(flow: Desk, settle: To) -> None:
    @flow.migration(from_="1")
    def widen(segment: str, state: Any) -> mp.Next[str]:
        assert (segment, state) == ("pay", "a")
        return mp.go(settle, Order(state, 700))


async def test_a_migration_leads_a_run_to_the_new_version_and_is_recorded(stage: Stage) -> None:
    """Requirement 35. Requirement 57. Migrated, and the new boundary, in one append."""
    run_id = await at_the_boundary(stage, desk())
    new = sized("2", declares=migrates_from_1)
    async with stage.app(new) as app:
        assert await app.handle(run_id, new).result(timeout="10s") == "receipt a for 700"
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
        assert await app.handle(run_id, new).result(timeout="10s") == "receipt a for 6"
        assert asked == [
            ("1", "pay", "a"),
            ("2", "somewhere", {"order": "a"}),
            ("10", "elsewhere", {"order": "a", "cents": 5}),
        ]
        steps = await entries(app, run_id, "migrated")
        assert [(step["version"], step["to"]) for step in steps] == [("1", "2"), ("2", "10"), ("10", "11")]
        assert [step["after"] for step in steps[:-1]] == [step["before"] for step in steps[1:]]


def broken(flow: Desk, settle: To) -> None:
    @flow.migration(from_="1")
    def raises(segment: str, state: Any) -> mp.Next[str]:
        raise KeyError("cents")


def unfit(flow: Desk, settle: To) -> None:
    @flow.migration(from_="1")
    def makes_what_does_not_fit(segment: str, state: Any) -> mp.Next[str]:
        return mp.go(settle, {"name": state})


def done_at_once(flow: Desk, settle: To) -> None:
    @flow.migration(from_="1")
    def ends(segment: str, state: Any) -> mp.Next[str]:
        return mp.done("no")


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
        assert await app.handle(run_id, mended).result(timeout="10s") == "receipt a for 700"


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
        assert await app.handle(handle.id, new).result(timeout="10s") == [3, {"name": "a", "cents": 9}]


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
        assert await app.handle(handle.id, new).result(timeout="5s") == "receipt a by another card"
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
        assert await app.handle(handle.id, new).result(timeout="10s") == 5_001
        assert (await app.inspect.verify(handle.id)).damage is None


# ---------------------------------------------------------------- looking before a deploy


async def test_a_check_says_of_every_waiting_run_what_this_code_would_do_and_changes_nothing(stage: Stage) -> None:
    """Requirement 57. Requirement 35. A new deploy never strands a waiting run silently."""
    half, resting = await inside(stage, desk()), await at_the_boundary(stage, desk())
    size = len(stage.rows("SELECT row FROM mp_journal"))

    async def verdicts(flow: mp.Workflow[Any, Any]) -> dict[str, str]:
        app = stage.app(flow)
        async with app.client():
            return {one.run: one.verdict for one in await app.check()}

    assert await verdicts(desk()) == {resting: "goes_on", half: "goes_on"}
    assert await verdicts(changed_desk()) == {resting: "warns", half: "needs_resume"}
    assert await verdicts(changed_desk("2")) == {resting: "blocks", half: "blocks"}
    assert await verdicts(changed_desk("2", compatible_with=["1"])) == {resting: "warns", half: "warns"}
    assert await verdicts(sized("2", declares=migrates_from_1)) == {resting: "migrates", half: "blocks"}
    assert await verdicts(sized("2", declares=broken)) == {resting: "blocks", half: "blocks"}
    other: mp.Workflow[str, str] = mp.Workflow("other", version="1", input=str, result=str)

    @other.segment
    async def only(run: mp.Run, _: str) -> mp.Next[str]:
        return mp.done("x")

    assert await verdicts(other) == {resting: "elsewhere", half: "elsewhere"}
    assert len(stage.rows("SELECT row FROM mp_journal")) == size


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

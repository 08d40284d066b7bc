"""A run that waited meets code that changed: it goes on and says so, is migrated, or stops with a readable reason."""

from typing import Any

import pytest

import milepost as mp
from tests.runtime.desks import (
    at_the_boundary,
    blocked,
    broken,
    changed_desk,
    charge,
    desk,
    entries,
    inside,
    migrates_from_1,
    priced,
    sized,
)
from tests.runtime.stage import Stage, has_entry, names, parked, status_of

# ---------------------------------------------------------------- it goes on, and says what differs


async def test_changed_code_at_a_boundary_goes_on_and_is_recorded_once(stage: Stage) -> None:
    """Requirement 34. The fingerprint warns: who found it, and what changed, stands in the journal."""
    run_id = await at_the_boundary(stage, desk())
    new = changed_desk()
    async with stage.app(new) as app:
        await parked(app.handle(run_id), "signal")
    async with stage.app(new) as app:
        await app.send(run_id, "go", 1)
        assert await app.handle(run_id, new).result(timeout="30s") == "changed: receipt a"
        (change,) = await entries(app, run_id, "code_changed")
        assert "the code of segment 'pay' changed" in change["changes"]
        assert change["by"]


async def test_a_declared_version_goes_on_inside_a_half_done_segment(stage: Stage) -> None:
    """Requirement 57. Established compatibility."""
    run_id = await inside(stage, desk())
    new = changed_desk("2", compatible_with=["1"])
    async with stage.app(new) as app:
        await app.send(run_id, "go", 1)
        assert await app.handle(run_id, new).result(timeout="30s") == "changed: receipt a"
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
        assert await app.handle(run_id, new).result(timeout="30s") == "changed: receipt a"
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
        assert await app.handle(run_id, new).result(timeout="30s") == "changed: receipt a"
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
        assert await app.handle(run_id, declared).result(timeout="30s") == "receipt 2 a"


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


async def test_an_attached_run_goes_on_with_its_host_s_tools_and_tells_what_changed(stage: Stage) -> None:
    """Requirement 44. Its control flow is its host's: nothing of ours could make it safe to stop it here."""
    old, new = priced("1"), priced("2")
    async with stage.app(tools=[old]) as app, app.attach(key="thread-1") as run:
        await run.call("one", old, "a")
    async with stage.app(tools=[new]) as app:
        async with app.attach(key="thread-1") as run:
            assert await run.call("two", new, "b") == "receipt 2 b"
        (change,) = await entries(app, run.id, "code_changed")
        assert change["changes"] == ["tool 'charge' was version '1', is now '2'"]
        assert {one.verdict for one in await app.check()} == {"warns"}


async def test_going_back_to_the_older_code_is_noticed_inside_a_segment_that_the_newer_one_added_to(
    stage: Stage,
) -> None:
    """Requirement 40. Both the boundary's code and the last one count."""
    run_id = await inside(stage, desk())
    async with stage.app(desk("2", compatible_with=["1"])) as app:
        await app.send(run_id, "other", 1)
        await has_entry(app, run_id, "code_changed")
        await parked(app.handle(run_id), "signal")
    async with stage.app(desk()) as app:
        await app.send(run_id, "go", 1)
        assert "made with version '2'" in await blocked(app, run_id)


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

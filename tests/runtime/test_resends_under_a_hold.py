"""A run that is to end, and whose resend a hold refuses: it rests until the hold is lifted, and holds nobody up."""

import milepost as mp
from tests.runtime.stage import Stage, has_entry, parked, status_of


@mp.tool(effect="absolute", visible_within="0s")
async def put(call: mp.Call, page: str) -> int:
    if page == "clashing" and call.attempt > 1:
        raise mp.Rejected("somebody else wrote it meanwhile")
    if call.attempt == 1:
        raise RuntimeError("the line dropped")
    return call.attempt


@put.reconcile
def find(page: str) -> mp.Finding[int]:
    return mp.conflict("found with other words")


@mp.workflow(version="1", tools=[put])
async def writing(run: mp.Run, page: str) -> int:
    return await put(page)


async def test_a_cancelled_run_whose_resend_a_hold_refuses_rests_until_the_hold_is_lifted(stage: Stage) -> None:
    """The run was looked at again and again, without a pause, by the whole process."""
    async with stage.app(writing, still=True) as app:
        clashing = await app.start(writing, "clashing")
        await has_entry(app, clashing.id, "effect_unknown")
        stage.clock.advance("500ms")
        plain = await app.start(writing, "plain")
        await has_entry(app, plain.id, "effect_unknown")
        await app.cancel(plain.id, why="no longer wanted")
        await has_entry(app, plain.id, "cancel_asked")
        stage.clock.advance("500ms")  # now the clashing one is sent again, and its conflict holds the tool
        await has_entry(app, clashing.id, "person_needed")
        stage.clock.advance("500ms")  # now the plain one would be

        waiting = await parked(plain, "switch")
        await app.resolve(clashing.id, "writing/put#1", mp.happened(1), by="ann", why="it is our text")
        assert await clashing.result(timeout="30s") == 1
        stage.clock.advance("3s")
        ended = await status_of(plain, "cancelled")

    assert waiting.until is not None
    assert ended.waiting is None

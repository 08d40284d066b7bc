"""What undoes an effect, and what may come between: other code, other tools, identities, a kill."""

from typing import Any

import pytest

import milepost as mp
from milepost.errors import NotReversible
from tests.runtime.refunds import Outside, at_closing, desk_of, rewound
from tests.runtime.stage import Stage, parked, status_of

WHY: Any = {"by": "ann", "why": "the wrong customer"}


@pytest.fixture
def outside() -> Outside:
    return Outside()


async def test_a_run_that_new_code_cannot_go_on_with_goes_back_to_where_it_can(stage: Stage, outside: Outside) -> None:
    """Requirement 21. A segment that was changed under its recorded steps blocks; before it, the run may go on."""
    old = desk_of(outside)
    async with stage.app(old) as app:
        handle = await at_closing(app, old)
        await app.send(handle.id, "word", "mail")
        await parked(handle, "approval")
    new = desk_of(outside)

    async def changed(run: mp.Run, receipts: list[str]) -> mp.Next[str]:
        return mp.done(f"{await run.receive('word', str)} by {len(receipts)} receipts")

    new.segments["closing"].fn = changed
    async with stage.app(new) as app:
        await app.send(handle.id, "word", "again")
        await status_of(handle := app.handle(handle.id, new), "blocked")
        await app.rewind(handle.id, to="closing", **WHY)
        await rewound(app, handle.id)
        assert await handle.result(timeout="30s") == "again by 2 receipts"
        assert outside.done[3:] == []


async def test_what_was_written_to_the_store_is_undone_in_the_store(stage: Stage) -> None:
    @mp.tool(effect="transactional", once="text")
    def note(tx: mp.Tx, text: str) -> str:
        tx.execute("CREATE TABLE IF NOT EXISTS notes (text TEXT)")
        tx.execute("INSERT INTO notes VALUES ($1)", (text,))
        return text

    @mp.tool(effect="transactional")
    def strike(tx: mp.Tx, text: str) -> None:
        tx.execute("DELETE FROM notes WHERE text = $1", (text,))

    note.compensate(strike)

    @mp.workflow(version="1", tools=[note])
    async def flow(run: mp.Run) -> str:
        await note("a")
        return await run.receive("word", str)

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
        held = await app._need_engine().store.once("", "note", '["a"]')
        assert held is not None
        await app.rewind(handle.id, to="0", **WHY)
        await rewound(app, handle.id)
        await parked(handle, "signal")
        assert stage.rows("SELECT count(*) FROM notes") == [(1,)]
        strikes = [view for view in await app.inspect.effects(handle.id) if view.tool == "strike"]
        assert [view.outcome for view in strikes] == ["confirmed"]
        claimed = await app._need_engine().store.once("", "note", '["a"]')
        assert claimed is not None  # set free, and claimed again by what was done again
        told = [line for line in await app.inspect.journal(handle.id) if line.name == "effect_confirmed"]
        assert [line.fields.get("by") for line in told] == [None, None, None]


async def test_a_compensation_that_was_used_up_for_another_effect_is_found_out_before_anything_is_done(
    stage: Stage, outside: Outside
) -> None:
    """Requirement 47. Its outcome is not taken over: that would call undone what stands."""
    desk = desk_of(outside, once="receipt")
    async with stage.app(desk) as app:
        handle = await at_closing(app, desk)
        await app.rewind(handle.id, to="charging", **WHY)
        await rewound(app, handle.id)
        await parked(handle, "signal")
        did = list(outside.done)
        with pytest.raises(NotReversible, match=r"refund was started for .* before") as refused:
            await app.rewind(handle.id, to="charging@2", **WHY)
        assert len(refused.value.reasons) == 2
        assert outside.done == did


async def test_a_compensation_that_another_run_was_given_is_taken_over_or_refused_as_its_identity_says(
    stage: Stage, outside: Outside
) -> None:
    desk = desk_of(outside, once="receipt")
    refund = desk.tools["charge"].compensation
    assert refund is not None

    @mp.workflow(version="1", tools=[refund])
    async def refunding(run: mp.Run, receipt: str) -> None:
        await refund(receipt)

    async with stage.app(desk, refunding) as app:
        await (await app.start(refunding, "receipt o-1")).result(timeout="30s")
        handle = await at_closing(app, desk)
        await app.rewind(handle.id, to="charging", **WHY)
        await rewound(app, handle.id)
        assert [what for what in outside.done if what.startswith("refund")] == [
            "refund receipt o-1",
            "refund receipt o-2",
        ]
        await parked(handle, "signal")
        assert outside.done.count("charge o-1") == 2  # its identity was set free by what was taken over


async def test_a_run_that_is_killed_on_its_way_back_undoes_nothing_more(stage: Stage, outside: Outside) -> None:
    desk = desk_of(outside, approval=True)
    async with stage.app(desk) as app:
        handle = await at_closing(app, desk)
        await app.rewind(handle.id, to="charging", **WHY)
        await parked(handle, "approval")
        [asked] = await app.inspect.approvals("asked")
        await app.kill(handle.id, why="stop")
        with pytest.raises(mp.UnknownApproval):
            await app.approve(asked.id, by="bob")
        assert outside.done[3:] == ["unship receipt o-1"]
        assert (await handle.status()).status == "killed"
        with pytest.raises(NotReversible, match="stays killed"):
            await app.rewind(handle.id, to="charging", **WHY)


def wrong(kind: str) -> Any:
    """Return a workflow whose one effect is undone by something that cannot."""

    @mp.tool
    async def act(word: str) -> str:
        return word

    @mp.tool(effect="read")
    async def look(word: str) -> str:
        return word

    @mp.tool(name="act")
    async def other(word: str) -> str:
        return word

    @mp.tool
    async def number(word: int) -> int:
        return word

    act.compensate({"a read": look, "another of the same name": other, "another type": number}[kind])  # type: ignore[arg-type]

    @mp.workflow(version="1", tools=[act])
    async def flow(run: mp.Run) -> str:
        return await act("a")

    return flow


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("a read", "look is a read, which changes nothing"),
        ("another of the same name", "two tools of the workflow are named act"),
        ("another type", "its result is nothing that number takes"),
    ],
)
async def test_what_cannot_undo_is_found_out_before_anything_is_done(stage: Stage, kind: str, said: str) -> None:
    flow = wrong(kind)
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await handle.result(timeout="30s")
        with pytest.raises(NotReversible, match=said):
            await app.rewind(handle.id, to="0", **WHY)

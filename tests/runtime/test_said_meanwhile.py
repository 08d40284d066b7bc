"""What a person, or a lost attempt, says while a start is being written, which is then refused, or not."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

import milepost as mp
from milepost.core import messages as m
from milepost.runtime import driver
from milepost.stores.api import Append, Deliver, Operation, Post
from milepost.stores.sqlite.store import SqliteStore
from tests.runtime.bank import Bank, tool_of
from tests.runtime.policies import Outside, mailing, one_call
from tests.runtime.stage import Stage, has_entry, names, status_of
from tests.runtime.test_approvals import asked

pytestmark = pytest.mark.sqlite("it slows the commits of a file, and writes to it beside them")


def saying_meanwhile(
    engine: Any, run_id: str, message: Callable[[], m.AnyMessage], monkeypatch: pytest.MonkeyPatch
) -> list[asyncio.Task[None]]:
    """Let a message arrive while the next start is being written; return who takes it, once it has come."""
    commit = engine.store.commit
    heard: list[asyncio.Task[None]] = []

    async def slow(operations: Sequence[Operation], *, threaded: bool = False) -> Any:
        starts = any(isinstance(one, Append) and one.scopes for one in operations)
        if starts and not heard:
            other = SqliteStore(engine.store.place)
            await other.commit([Deliver(Post(run_id, "meanwhile", m.encode(message()), 1))])
            other.close()
            heard.append(asyncio.create_task(driver.take_inbox(engine.sessions[run_id])))
            for _ in range(10):
                await asyncio.sleep(0)
        return await commit(operations, threaded=threaded)

    monkeypatch.setattr(engine.store, "commit", slow)
    monkeypatch.setattr(engine.store, "commit_now", lambda _operations, *, must=False: None)  # noqa: ARG005
    return heard


@pytest.mark.parametrize("effect", ["keyed", "transactional"])
async def test_a_no_that_comes_while_a_start_is_refused_holds(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, effect: str
) -> None:
    """Requirement 20. In memory the approval is used already; in the store nothing of that will ever stand."""
    outside = Outside()
    if effect == "keyed":
        flow = one_call(mailing(outside, approval=True, effect="keyed", key_ttl="1h"))
    else:

        @mp.tool(name="mail", effect="transactional", approval=True)
        def tool(tx: mp.Tx, to: str) -> str:
            outside.sent.append(to)
            return "sent"

        flow = one_call(tool)
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        row = await asked(app)
        await app.freeze("all", by="bob", why="a try")
        no = m.Answer(at=1, by="bob", approval=row.id, approved=False, why="no")
        heard = saying_meanwhile(app._need_engine(), handle.id, lambda: no, monkeypatch)
        await app.approve(row.id, by="bob")
        await has_entry(app, handle.id, "approval_answered")
        await app.thaw("all", by="bob", why="over")
        await status_of(handle, "done")
        await asyncio.gather(*heard)
    assert len(heard) == 1
    assert outside.sent == []


@pytest.mark.parametrize("refused", [True, False])
@pytest.mark.parametrize("said", ["by a person", "by evidence"])
async def test_what_settles_an_effect_while_the_start_of_its_resend_is_written_holds_and_it_is_not_sent_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, said: str, *, refused: bool
) -> None:
    """Requirement 33. With a refused start, what had settled the effect was taken back in memory, not in the record.

    It was then sent again, as unknown, behind its confirmation.
    """
    bank, hold = Bank("loses the answer", "answers"), asyncio.Event()
    charge = tool_of(bank, stage.clock.now, effect="keyed", key_ttl="24h", asks=False)

    @mp.tool(effect="read")
    async def busy() -> str:
        await hold.wait()  # so that the run stays in memory
        return "held"

    @mp.workflow(version="1", name="flow", tools=[charge, busy])
    async def flow(run: mp.Run) -> list[str]:
        return list(await run.gather(charge("o-1", 100), busy()))

    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        await has_entry(app, handle.id, "effect_unknown")
        if refused:
            await app.freeze("all", by="bob", why="a try")
        engine = app._need_engine()

        def message() -> m.AnyMessage:
            effect = next(iter(engine.sessions[handle.id].state.effects()))
            value = msgspec.Raw(b'"found"')
            if said == "by a person":
                return m.Resolve(at=1, by="bob", path=effect.path, answer="happened", value=value, why="looked")
            return m.Evidence(
                at=1, by="w-0", visit=0, step=effect.step, path=effect.path, attempt=1, saw="returned", value=value,
                key=effect.key,
            )  # fmt: skip

        heard = saying_meanwhile(engine, handle.id, message, monkeypatch)
        stage.clock.advance("1s")
        await has_entry(app, handle.id, "effect_confirmed")
        await asyncio.gather(*heard)
        assert [effect.outcome for effect in engine.sessions[handle.id].state.effects()] == ["confirmed"]
        if refused:
            await app.thaw("all", by="bob", why="over")
        stage.clock.advance("20m")
        hold.set()
        assert await handle.result(timeout="30s") == ["found", "held"]
        assert (await names(app, handle.id)).count("effect_started") == 2 - refused
        assert (await app.inspect.verify(handle.id)).damage is None
    assert len(bank.calls) == 1

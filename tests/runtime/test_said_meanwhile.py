"""What a person says while a start is being written, which is then refused."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import milepost as mp
from milepost.core import messages as m
from milepost.runtime import driver
from milepost.stores.api import Append, Deliver, Operation, Post
from milepost.stores.sqlite.store import SqliteStore
from tests.runtime.policies import Outside, mailing, one_call
from tests.runtime.stage import Stage, has_entry, status_of
from tests.runtime.test_approvals import asked


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
        engine = app._need_engine()
        commit, said = engine.store.commit, 0
        heard: list[asyncio.Task[None]] = []

        async def slow(operations: Sequence[Operation], *, threaded: bool = False) -> list[Any]:
            nonlocal said
            starts = any(isinstance(one, Append) and one.scopes for one in operations)
            if starts and not said:
                said = 1
                no = m.Answer(at=1, by="bob", approval=row.id, approved=False, why="no")
                other = SqliteStore(engine.store.place)
                await other.commit([Deliver(Post(handle.id, "no", m.encode(no), 1))])
                other.close()
                heard.append(asyncio.create_task(driver.take_inbox(engine.sessions[handle.id])))
                for _ in range(10):
                    await asyncio.sleep(0)
            return await commit(operations, threaded=threaded)

        monkeypatch.setattr(engine.store, "commit", slow)
        monkeypatch.setattr(engine.store, "commit_now", lambda _operations, *, must=False: None)  # noqa: ARG005
        await app.approve(row.id, by="bob")
        await has_entry(app, handle.id, "approval_answered")
        await app.thaw("all", by="bob", why="over")
        await status_of(handle, "done")
        await asyncio.gather(*heard)
    assert said == 1
    assert outside.sent == []

"""What people type is a value: never a pattern, a path into JSON, or SQL."""

from pathlib import Path

import pytest

import milepost as mp
from milepost.errors import UnknownApproval, UnknownRun
from milepost.operations import approvals
from milepost.stores.api import Query

TRICKS = ("%", "_", "*", "?", "[a-z]", "' OR 1=1 --", '"', "$", "a.b", 'x") OR 1=1 OR ("', "\x00", "\\", "a'b", "é")


@mp.tool(approval=True)
async def mail(to: str) -> str:
    return to


@mp.workflow(version="1", tools=[mail])
async def flow(run: mp.Run, to: str) -> str:
    return await mail(to)


@pytest.mark.parametrize("trick", TRICKS)
async def test_a_hostile_name_or_prefix_finds_nothing_but_itself(tmp_path: Path, trick: str) -> None:
    """Requirement 53. A tag's name goes into a JSON path, a prefix into a comparison: neither means anything there."""
    app = mp.App(f"sqlite:///{tmp_path / 'store.db'}", workflows=[flow])
    async with app.client():
        plain = await app.start(flow, "ann", tags={"a": "1"})
        tagged = await app.start(flow, "bob", tags={trick: "1"}, key=trick)
        store = app._need_engine().store

        assert [row.id for row in await store.runs(Query(tag=(trick, "1")))] == [tagged.id]
        assert [row.id for row in await store.runs(Query(tag=("a", trick)))] == []
        assert [row.id for row in await store.runs(Query(key=trick))] == [tagged.id]
        assert await store.runs(Query(workflow=trick)) == []
        assert await store.runs(Query(status=trick)) == []
        assert await store.runs(Query(parent=trick)) == []
        for prefix in (trick, plain.id[:4] + trick):
            with pytest.raises(UnknownRun):
                await store.resolve_id(prefix)
            with pytest.raises(UnknownApproval):
                await approvals.find(store, prefix)

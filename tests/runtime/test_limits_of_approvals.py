"""docs/limits.md, People: what still wins against approvals, wins."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost.core.rendering import look_alikes
from milepost.operations import keys, sealing
from milepost.operations.approvals import shown
from tests.docs.test_limits import sealed
from tests.runtime.test_approvals import asked


class Outside:
    def __init__(self) -> None:
        self.sent: list[str] = []


def desk(outside: Outside, **options: Any) -> mp.Workflow[str, str]:
    @mp.tool(approval=True, **options)
    async def mail(to: str, trace: str = "") -> str:
        outside.sent.append(f"{to} {trace}".strip())
        return to

    @mp.workflow(version="1", name="desk", tools=[mail])
    async def flow(run: mp.Run, to: str) -> str:
        return await mail(to, "later" if outside.sent == ["armed"] else "sooner")

    return flow


async def test_without_a_trust_file_an_agent_that_reaches_the_app_approves_its_own_call(tmp_path: Path) -> None:
    outside = Outside()
    flow = desk(outside)
    async with mp.App(f"sqlite:///{tmp_path}/s.db", workflows=[flow]) as app:
        handle = await app.start(flow, "eve", authority=mp.Authority("bot"))
        await app.approve((await asked(app)).id, by="ann")  # by whoever runs in this process
        assert await handle.result(timeout="30s") == "eve"
    assert outside.sent


async def test_an_older_copy_of_the_store_permits_a_used_approval_once_more_and_a_seal_refuses_it(
    tmp_path: Path,
) -> None:
    outside = Outside()
    flow = desk(outside)
    place = tmp_path / "s.db"
    trust = tmp_path / "operators.toml"
    keys.add(trust, keys.create("ann", tmp_path / "keys"), ["approve"], None)

    def app(**more: Any) -> mp.App:
        return mp.App(f"sqlite:///{place}", workflows=[flow], trust=trust, **more)

    async with app() as first:
        handle = await first.start(flow, "bob")
        await first.approve((await asked(first)).id, key=tmp_path / "keys" / "ann.key")
        # What was approved and not used yet, as a backup may have it.
        shutil.copy(place, tmp_path / "older.db")
        shutil.copy(f"{place}-wal", tmp_path / "older.db-wal")
        assert await handle.result(timeout="30s") == "bob"
    seal = await asyncio.to_thread(sealed, place, tmp_path / "elsewhere")
    keys.add(trust, next(iter(keys.load(seal.parent / "ada.pub").operators.values())), ["seal"], None)
    assert len(outside.sent) == 1
    shutil.copy(tmp_path / "older.db", place)
    shutil.copy(tmp_path / "older.db-wal", f"{place}-wal")

    with pytest.raises(sealing.RolledBack):
        async with app(seal=seal):
            pass
    async with app() as again:
        assert await again.handle(handle.id, flow).result(timeout="30s") == "bob"
    assert len(outside.sent) == 2


async def test_a_volatile_argument_is_shown_and_may_be_another_one_when_the_call_starts(tmp_path: Path) -> None:
    outside = Outside()
    flow = desk(outside, volatile=("trace",))
    async with mp.App(f"sqlite:///{tmp_path}/s.db", workflows=[flow]) as app:
        handle = await app.start(flow, "bob")
        row = await asked(app)
        seen = await shown(app.inspect, row, 1)
        outside.sent.append("armed")
        await app.approve(row.id, by="ann")
        await handle.result(timeout="30s")
    assert (seen.args, seen.whole) == (b'{"to":"bob","trace":"sooner"}', False)
    assert outside.sent[-1] == "bob later"


def test_a_word_wholly_of_another_script_is_not_noted() -> None:
    assert look_alikes('{"to":"сор"}'.encode()) == []  # noqa: RUF001  which is the point

"""A worker that is connected as one drives runs to their end, and waits for a person wherever a person is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost.errors import NotPermitted
from tests.runtime.stage import until
from tests.servers.fixtures import PostgresDatabase

Verb = Callable[[mp.App], Awaitable[object]]


class Desk:
    """A workflow over one store, as the worker and as the person see it, and what happened outside."""

    def __init__(self, roles: PostgresDatabase) -> None:
        self.roles = roles
        self.charged: list[str] = []

        @mp.tool(effect="keyed", key_ttl="1h", scopes=["pay"], approval=True)
        async def charge(order: str) -> str:
            self.charged.append(order)
            return f"receipt of {order}"

        @mp.tool
        async def ship(order: str) -> str:
            raise RuntimeError("the line went dead")

        @mp.workflow(version="1", tools=[charge, ship])
        async def selling(_run: mp.Run, order: str) -> str:
            return await (ship(order) if order.startswith("ship") else charge(order))

        self.flow = selling

    def app(self, user: str) -> mp.App:
        return mp.App(self.roles.url_as(user), workflows=[self.flow])

    async def refused(self, worker: mp.App, verb: Verb) -> str:
        with pytest.raises(NotPermitted) as refusal:
            await verb(worker)
        return str(refusal.value)


@pytest.fixture
def desk(roles: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setenv("MILEPOST_LOCAL", str(tmp_path / "local"))
    return Desk(roles)


async def parked(app: mp.App, run_id: str, reason: str) -> Any:
    async def look() -> Any:
        row = await app._need_engine().store.run(run_id)
        return row if (row.status, row.reason) == ("parked", reason) else None

    return await until(look, f"{run_id} to wait for {reason}")


def approval_of(id_: str) -> Verb:
    return lambda app: app.approve(id_, by="bot")


def test_a_run_waits_for_scopes_and_an_approval_that_only_a_person_gives(desk: Desk) -> None:
    """Requirement 18."""

    async def sell() -> str:
        async with desk.app("working") as worker, desk.app("ann").client() as ann:
            handle = await worker.start(desk.flow, "o1", authority=mp.Authority("bot"))
            await parked(worker, handle.id, "authority")
            said = await desk.refused(worker, lambda app: app.grant(handle.id, by="bot", scopes=["pay"]))
            assert "milepost_operator" in said
            await ann.grant(handle.id, by="ann", scopes=["pay"])

            await parked(worker, handle.id, "approval")
            (row,) = await ann.inspect.approvals("asked")
            await desk.refused(worker, lambda app: app.approve(row.id, by="bot"))
            assert desk.charged == []
            await ann.approve(row.id, by="ann")
            return str(await handle.result(timeout="30s"))

    assert asyncio.run(sell()) == "receipt of o1"
    assert desk.charged == ["o1"]


def test_what_a_worker_may_not_do_refuses_itself_and_nothing_that_is_written_beside_it(desk: Desk) -> None:
    async def sell() -> list[str]:
        async with desk.app("working") as worker, desk.app("ann").client() as ann:
            authority = mp.Authority("bot", scopes={"pay"})
            handles = [await worker.start(desk.flow, f"o{n}", authority=authority) for n in range(6)]
            waits = [await parked(worker, handle.id, "approval") for handle in handles]
            asked = await ann.inspect.approvals("asked")
            tried = [desk.refused(worker, approval_of(row.id)) for row in asked]
            given = [ann.approve(row.id, by="ann") for row in asked]
            await asyncio.gather(*tried, *given)
            assert len(waits) == 6
            return sorted([str(await handle.result(timeout="30s")) for handle in handles])

    assert asyncio.run(sell()) == [f"receipt of o{n}" for n in range(6)]
    assert sorted(desk.charged) == [f"o{n}" for n in range(6)]


def test_what_nobody_knows_is_settled_by_a_person_and_not_by_a_worker(desk: Desk) -> None:
    async def sell() -> str:
        async with desk.app("working") as worker, desk.app("ann").client() as ann:
            handle = await worker.start(desk.flow, "ship-1")
            await parked(worker, handle.id, "unknown")
            found = mp.happened("it left the house")
            (effect,) = await worker._need_engine().store.effects(handle.id)
            await desk.refused(worker, lambda app: app.resolve(handle.id, effect.path, found, by="bot", why="sure"))
            await ann.resolve(handle.id, effect.path, found, by="ann", why="I asked them")
            return str(await handle.result(timeout="30s"))

    assert asyncio.run(sell()) == "it left the house"


def test_stopping_is_a_persons_and_a_worker_does_not_take_it_back(desk: Desk) -> None:
    async def stop() -> None:
        async with desk.app("working") as worker, desk.app("ann").client() as ann:
            hands, others = ann._operator(), worker._operator()
            await desk.refused(worker, lambda _: others.freeze("tool:ship", by="bot", why="mine"))
            await hands.freeze("tool:ship", by="ann", why="inventory")
            handle = await worker.start(desk.flow, "ship-2")
            await parked(worker, handle.id, "switch")
            await desk.refused(worker, lambda _: others.thaw("tool:ship", by="bot", why="mine"))
            await desk.refused(worker, lambda _: others.set_ceiling("total", {"usd": 5}, by="bot", why="mine"))
            await ann.kill(handle.id, why="no more")
            assert (await worker._need_engine().store.run(handle.id)).status == "killed"

    asyncio.run(stop())

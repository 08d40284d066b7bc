"""The model's store cannot drift away: what it answers on random ways, the embedded store answers too."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from milepost.core import codec
from milepost.core import entries as e
from milepost.core.chain import verify
from milepost.errors import EpochLost, WrongStatus
from milepost.operations.verbs import Operator
from milepost.stores.api import (
    Append,
    Claim,
    Create,
    Deliver,
    EffectRow,
    Head,
    Kill,
    NewRun,
    Once,
    OnceTaken,
    Post,
    SwitchedOff,
)
from milepost.stores.sqlite.store import SqliteStore
from tests.model.places import State
from tests.model.protocol import Protocol, Step
from tests.model.scenario import NAMED, Scenario
from tests.model.store import Refused, Store

WALKS, LENGTH, ENOUGH = 150, 60, 60
Done = tuple[Any, ...]


class Told(Store):
    """The model's store, telling what it was asked and what it answered."""

    def __init__(self, store: Store) -> None:
        super().__init__(store._records, store._watch)
        self.told: list[Done] = []

    def append(self, state: State, run: int, epoch: int, worker: int, put: Any) -> tuple[State, Refused | None]:
        after, refused = super().append(state, run, epoch, worker, put)
        self.told.append(("append", run, epoch, state.workers[worker].name, put, refused))
        return after, refused

    def claim(self, state: State, run: int, worker: str, owner_was: str | None) -> State | None:
        after = super().claim(state, run, worker, owner_was)
        self.told.append(("claim", run, worker, owner_was, state.now, after))
        return after

    def kill(self, state: State, run: int) -> State | None:
        after = super().kill(state, run)
        self.told.append(("kill", run, state.now, after is not None))
        return after

    def deliver(self, state: State, run: int, name: str, body: bytes) -> State:  # type: ignore[override]
        after = super().deliver(state, run, name, body)
        self.told.append(("deliver", run, name, body, state.now, after is not state))
        return after


class Walked(Protocol):
    """A protocol that keeps, for each step, what the store was asked in it."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.told = Told(self.store)
        self.store = self.told
        self.operator._store = self.told

    def _work(self, state: State, at: int) -> Iterator[Step]:
        yield from self._noted(super()._work(state, at))

    def steps(self, state: State) -> Iterator[Step]:
        self._asked: dict[str, list[Done]] = {}
        yield from self._noted(super().steps(state))

    def _noted(self, steps: Iterator[Step]) -> Iterator[Step]:
        for label, following in steps:
            self._asked.setdefault(label, []).extend(self.told.told)
            self.told.told = []
            yield label, following

    def walk(self, chance: random.Random) -> Iterator[tuple[State, list[Done]]]:
        """Go one random way; yield each state with what the store was asked to come to it."""
        state = self.start()
        asked, self.told.told = self.told.told, []
        yield state, asked
        for _ in range(LENGTH):
            steps = list(self.steps(state))
            if not steps:
                return
            label, state = chance.choice(steps)
            yield state, self._asked[label]


class Real:
    """The same on a real store."""

    def __init__(self, place: Path, protocol: Walked) -> None:
        self.store = SqliteStore(str(place), create=True)
        self._protocol = protocol
        self._heads: dict[tuple[int, int], Head] = {}
        self._messages: dict[tuple[int, str], int] = {}
        self._now = 0
        self.refusals: set[str] = set()
        self._operator = Operator(self.store, self._write, lambda: self._now)

    async def _write(self, operation: Any) -> Any:
        (answer,) = await self.store.commit([operation])
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def create(self, state: State) -> None:
        """Create the runs, as they are before anybody claims them."""
        for number in range(len(state.rows)):
            run = f"run-{number + 1}"
            boundary = e.Boundary(about="about", manifest="manifest", visit=1, segment="s")
            entry = codec.encode(e.RunCreated(at=0, boundary=boundary, run=run))
            await self._write(Create(NewRun(run, "pay", "1", "d", entry, "s", 0, 0)))

    async def do(self, asked: Done) -> None:
        """Do what the model's store did; its answer must be the same."""
        await getattr(self, f"_{asked[0]}")(*asked[1:])

    async def _append(self, run: int, epoch: int, worker: str, put: Any, refused: Refused | None) -> None:
        made = self._protocol.actors.appends[put]
        inbox = [id_ for id_, _ in await self.store.inbox(f"run-{run + 1}")]
        taken = inbox[: len(put.taken)]  # the model takes the oldest first
        append = replace(made, head=self._heads[run, epoch], taken=taken)
        (answer,) = await self.store.commit([append])
        kinds = {"switch": SwitchedOff, "once": OnceTaken, "epoch": EpochLost}
        expected = type(None) if refused is None else kinds[str(refused[0])]
        assert isinstance(answer, expected), (worker, put, answer, refused)
        self.refusals.add("" if refused is None else str(refused[0]))

    async def _claim(self, run: int, worker: str, owner_was: str | None, now: int, after: State) -> None:
        def entry(epoch: int) -> bytes:
            return codec.encode(e.Claimed(at=now, epoch=epoch, owner=worker))

        head = await self._write(Claim(f"run-{run + 1}", worker, owner_was, now, entry))
        assert head.epoch == after.rows[run].record.state.epoch
        self._heads[run, head.epoch] = head

    async def _kill(self, run: int, now: int, killed: bool) -> None:  # noqa: FBT001  as the model tells it
        self._now = now
        if killed:
            await self._operator.kill(f"run-{run + 1}", why="")
        else:
            with pytest.raises(WrongStatus):
                await self._operator.kill(f"run-{run + 1}", why="")

    async def _deliver(self, run: int, name: str, body: bytes, now: int, fresh: bool) -> None:  # noqa: FBT001
        assert await self._write(Deliver(Post(f"run-{run + 1}", name, body, now))) is fresh

    async def agrees(self, state: State) -> None:
        """Compare what stands in the real store with the model's rows."""
        for number, row in enumerate(state.rows):
            run = await self.store.run(f"run-{number + 1}")
            expected = (row.record.state.epoch, row.owner, row.due, len(row.inbox))
            assert (run.epoch, run.owner, run.due, len(await self.store.inbox(run.id))) == expected
            genesis, stored, head = await self.store.chain(run.id)
            verify(run.id, genesis, 1, ((one.seq, one.body, one.hash) for one in stored), head.hash)
        for value, holder in state.once:
            found = await self.store.once("", "pay", value)
            assert found is not None
            assert (found.run_id, found.step, found.outcome) == (f"run-{holder.run + 1}", holder.step, holder.outcome)
        if not state.once:
            assert await self.store.once("", "pay", '["o-1"]') is None
        assert {switch.scope for switch in await self.store.switches()} == state.switches


@pytest.mark.parametrize(
    ("name", "refusals"),
    [
        ("one identity, two runs, one killed", {"epoch", "once"}),
        ("one identity, two runs, one cancelled", {"once"}),
        ("queryable, killed", {"epoch"}),
        ("queryable, an effect lands later than declared", set()),
        ("irreversible, a person says it did not happen", {"epoch"}),
    ],
    ids=lambda given: given.replace(", ", ":_").replace(" ", "_") if isinstance(given, str) else "",
)
def test_the_embedded_store_answers_as_the_model_does(name: str, refusals: set[str], tmp_path: Path) -> None:
    asked_in_all, seed = 0, 0
    seen: set[str] = set()
    while asked_in_all < ENOUGH or not refusals <= seen:
        seed += 1
        assert seed < WALKS, "the ways are too short to say anything"
        protocol = Walked(NAMED[name].larger)
        real = Real(tmp_path / f"{seed}.db", protocol)
        try:
            for state, asked in protocol.walk(random.Random(seed)):
                asked_in_all += asyncio.run(_walked(real, state, asked))
        finally:
            real.store.close()
        seen |= real.refusals


async def _walked(real: Real, state: State, asked: list[Done]) -> int:
    if not real._heads:
        await real.create(state)
    for one in asked:
        await real.do(one)
    await real.agrees(state)
    return len(asked)


@pytest.mark.parametrize(
    ("outcome", "looked_at", "held"),
    [("started", True, True), ("unknown", True, True), ("confirmed", True, True), ("failed", False, False)],
)
def test_a_kill_keeps_what_is_in_doubt_and_frees_the_identity_of_what_failed(
    *, outcome: str, looked_at: bool, held: bool, tmp_path: Path
) -> None:
    async def killed(store: SqliteStore) -> tuple[int | None, bool]:
        await store.commit([Create(NewRun("run-1", "pay", "1", "d", b"{}", "s", 0, 0))])
        (head,) = await store.commit([Claim("run-1", "A", None, 0, lambda _: b"{}")])
        once = Once("", "pay", "o-1", ":0", "d")
        await store.commit([Append(head, [b"{}"], 1, effects=[EffectRow(":0", outcome, attempt=1)], once=once)])
        await store.commit([Kill("run-1", "", 7, lambda _epoch, _paths: b"{}", lambda run: Post(run, "x", b"{}", 7))])
        return (await store.run("run-1")).due, await store.once("", "pay", "o-1") is not None

    store = SqliteStore(str(tmp_path / "killed.db"), create=True)
    try:
        assert asyncio.run(killed(store)) == (7 if looked_at else None, held)
    finally:
        store.close()


def test_a_message_that_waited_for_its_owner_wakes_a_killed_run(tmp_path: Path) -> None:
    async def killed(store: SqliteStore) -> int | None:
        await store.commit([Create(NewRun("run-1", "pay", "1", "d", b"{}", "s", 0, 0))])
        await store.commit([Claim("run-1", "A", None, 0, lambda _: b"{}"), Deliver(Post("run-1", "m", b"{}", 3))])
        await store.commit([Kill("run-1", "", 7, lambda _epoch, _paths: b"{}", lambda run: Post(run, "x", b"{}", 7))])
        return (await store.run("run-1")).due

    store = SqliteStore(str(tmp_path / "killed.db"), create=True)
    try:
        assert asyncio.run(killed(store)) == 7
    finally:
        store.close()

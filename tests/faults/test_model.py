"""A model: workers that die, freeze and come back, an operator, a world that is late; the eight laws after each step.

Everything is real but time: the store is a file, the processes are engines with connections and loops of their own,
the clock jumps. Only one process moves at a moment, for some turns of its loop or for some time, so Hypothesis chooses
how they interleave; a process that is not moved is frozen, whatever it was doing. At the end of each example the
weather clears, one fresh process and an honest operator finish all work, and nothing may be left open, lost or
repeated.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import milepost as mp
from milepost.core import decide
from milepost.core import entries as e
from milepost.core.decide import recover
from milepost.core.outcome import Doubt, Facts, Move, ProvenAbsent, Resend, next_move
from milepost.core.state import RunState
from milepost.operations.inspection import Inspector
from milepost.operations.verbs import Operator
from milepost.runtime import driver, effects
from milepost.runtime.session import Session
from milepost.stores.api import Query, RunRow
from milepost.stores.sqlite.connection import SQL
from milepost.testing.check import Applied, check
from tests.faults.laws import Laws
from tests.faults.simulated import MortalStore, Process, Threads, Time, now
from tests.faults.town import SENDING, VISIBLE_MS, Port, Town, Way, round_

ALL = os.environ.get("MILEPOST_FAULTS") == "all"
EXAMPLES = 2_000 if ALL else 120
STEPS = 30
PROCESSES = 3
RUNS = 3
LEASE_MS = 6_000
SLICE_MS = 500
HEALS_MS = 5_000
HEALING = 60
SETTLED = frozenset({"done", "cancelled", "killed"})  # no call of the workflow lets it fail
MODEL = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

SEARCH = settings(MODEL, max_examples=600, phases=[Phase.generate], database=None, report_multiple_bugs=False)
FOUND_BY = 3  # a seed whose first examples have each planted defect; most others find one of them only after seconds

halves = st.integers(0, VISIBLE_MS // 2 - 100)
ways = st.builds(
    Way,
    answer=st.sampled_from(["answered", "answered", "lost", "lost", "hangs", "not_sent", "rejected"]),
    thinks=st.sampled_from([0, 0, 0, 200, 2_000]),
    lands=st.sampled_from([0, 0, 300]) | halves,
    shows=st.sampled_from([0, 0, 900]) | halves,
    answers=st.sampled_from([0, 0, 100, 2_500]),
)
groups = st.lists(st.lists(st.sampled_from(SENDING), min_size=1, max_size=3), min_size=1, max_size=3)
moments = st.sampled_from([1, 10, 60, 300, 1_000, 3_000, 8_000])


@pytest.fixture(autouse=True)
def quiet_deaths(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of processes die here, and each would say so."""
    caplog.set_level(logging.CRITICAL, "milepost")


class Failed(AssertionError):
    """What must never be was seen."""


class Model(RuleBasedStateMachine):
    """The town, its processes, its operator."""

    template: Path | None = None

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="milepost-model-"))
        self.place = str(self.folder / "store.db")
        self.time = Time()
        self.town = Town(self.time, on_send=self.sends)
        self.laws = Laws(self.town)
        self.processes: list[Process] = []
        self.ports: dict[int, Port] = {}
        self.lateness: list[int] = []
        self.looker = self.open_store(create=True)
        self.looked = (0, 0)
        self.failed = False
        self.runs: list[str] = []

    def open_store(self, *, create: bool = False) -> MortalStore:
        store = MortalStore(self.place, create=create)
        store._writer.execute("PRAGMA synchronous = OFF").fetchall()  # no power goes here
        return store

    # ------------------------------------------------------------ processes

    @initialize(given=groups, coming=st.lists(ways, max_size=8))
    def begins(self, given: list[list[str]], coming: list[Way]) -> None:
        self.new_process()
        self.new_process()
        self.starts(0, given, True, coming)

    @precondition(lambda self: len(self.processes) < PROCESSES)
    @rule()
    def new_process(self) -> None:
        port = Port(self.town)
        process = Process(self.open_store(), self.time, {Port: port}, [round_], lease_ms=LEASE_MS, poll_s=0.2)
        port.threads = Threads(lambda: (self.lateness.pop() if self.lateness else 0) / 1000)
        process.engine.threads = port.threads  # type: ignore[assignment]
        self.ports[id(process)] = port
        self.processes.append(process)

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, PROCESSES), count=st.integers(1, 40))
    def turns(self, which: int, count: int) -> None:
        self.processes[which % len(self.processes)].turns(count)

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, PROCESSES), ms=moments)
    def one_goes_on(self, which: int, ms: int) -> None:
        self.processes[which % len(self.processes)].lasts(ms)

    @precondition(lambda self: self.processes)
    @rule(ms=moments)
    def all_go_on(self, ms: int) -> None:
        for begin in range(0, ms, SLICE_MS):
            for process in self.processes:
                process.turns(10)
            self.processes[0].lasts(min(SLICE_MS, ms - begin))

    @precondition(lambda self: len(self.processes) > 1)
    @rule(which=st.integers(0, PROCESSES), count=st.integers(0, 15), ms=moments)
    def one_freezes(self, which: int, count: int, ms: int) -> None:
        """One stands still, in the middle of something, until its lease has lapsed; the others take its work over."""
        frozen = self.processes[which % len(self.processes)]
        frozen.turns(count)
        self.time.passed_s += LEASE_MS / 1000
        for process in self.processes:
            if process is not frozen:
                process.lasts(ms)

    @rule(ms=moments)
    def all_freeze(self, ms: int) -> None:
        self.time.passed_s += ms / 1000

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, PROCESSES), count=st.integers(0, 15))
    def dies(self, which: int, count: int) -> None:
        process = self.processes.pop(which % len(self.processes))
        process.turns(count)
        self.ports.pop(id(process)).alive = False
        process.die()

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, PROCESSES))
    def leaves(self, which: int) -> None:
        process = self.processes.pop(which % len(self.processes))
        process.leave()
        self.ports.pop(id(process)).alive = False

    # ------------------------------------------------------------ work and weather

    @precondition(lambda self: self.processes and len(self.runs) < RUNS)
    @rule(which=st.integers(0, PROCESSES), given=groups, pay=st.booleans(), coming=st.lists(ways, max_size=8))
    def starts(self, which: int, given: list[list[str]], pay: bool, coming: list[Way]) -> None:  # noqa: FBT001  drawn
        self.town.ways.extend(coming)
        process = self.processes[which % len(self.processes)]
        scopes = ("pay",) if pay else ()
        run_id = process.start(round_, given, key=f"run {len(self.runs)}", scopes=scopes, budget={"tokens": 4})
        self.runs.append(run_id)

    @rule(coming=st.lists(ways, min_size=1, max_size=4), late=st.lists(st.sampled_from([0, 500, 5_000]), max_size=3))
    def weather(self, coming: list[Way], late: list[int]) -> None:
        self.town.ways.extendleft(coming)
        self.lateness.extend(late)

    # ------------------------------------------------------------ the operator

    @property
    def operator(self) -> Operator:
        async def write(operation: Any) -> Any:
            [answer] = await self.looker.commit([operation])
            if isinstance(answer, Exception):
                raise answer
            return answer

        return Operator(self.looker, write, self.time.now)

    @precondition(lambda self: self.runs)
    @rule(which=st.integers(0, RUNS), kill=st.booleans())
    def ends_a_run(self, which: int, kill: bool) -> None:  # noqa: FBT001  drawn
        verb = self.operator.kill if kill else self.operator.cancel
        with contextlib.suppress(mp.WrongStatus):
            now(verb(self.runs[which % len(self.runs)], why="enough"))

    @rule(yes=st.booleans())
    def the_operator_serves(self, yes: bool) -> None:  # noqa: FBT001  drawn
        self.answers(yes=yes)
        self.grants()
        self.resolves()

    def answers(self, *, yes: bool) -> None:
        for approval in now(self.looker.approvals("", "asked")):
            answer = self.operator.approve(approval.id, by="bea") if yes else None
            with contextlib.suppress(mp.UnknownApproval):
                now(answer or self.operator.deny(approval.id, by="ann", why="no"))

    def grants(self) -> None:
        for row in now(self.looker.runs(Query(status="parked", limit=100))):
            if row.reason in {"authority", "budget"}:
                now(self.operator.grant(row.id, by="ann", scopes=["pay"], budget={"tokens": 5}))

    def resolves(self) -> None:
        """Settle what only a person can, as a careful one does: not while anything may still be on its way."""
        waiting = [effect for effect in now(Inspector(self.looker).open_effects()) if effect.outcome == "unknown"]
        if not any(effect.person for effect in waiting):
            return
        for process in self.processes:
            process.turns(30)  # what was about to begin has begun
        for run_id in {effect.run_id for effect in waiting}:
            for effect in now(Inspector(self.looker).effects(run_id)):
                truth = self.town.truth(effect.tool, effect.key)
                if effect.outcome == "unknown" and effect.person and truth != "open":
                    finding: mp.Finding[Any] = mp.happened("seen") if truth == "happened" else mp.did_not_happen()
                    with contextlib.suppress(mp.UnknownStep):
                        now(self.operator.resolve(run_id, effect.path, finding, by="ann", why="looked"))

    # ------------------------------------------------------------ what must hold

    def sends(self, tool: str, key: str, attempt: int) -> None:
        self.read_journals()
        self.laws.leaves(tool, key, attempt)

    def read_journals(self) -> None:
        rows = self.looker._reader.execute(
            "SELECT row, run, body FROM mp_journal WHERE row > ? ORDER BY row", (self.laws.row,)
        ).fetchall()
        self.laws.read(rows)  # type: ignore[arg-type]

    @invariant()
    def laws_hold(self) -> None:
        self.town.settle()
        self.read_journals()
        broken = list(self.laws.broken)
        looked = (self.laws.row, len(self.town.ledger))
        if looked != self.looked:
            self.looked = looked
            broken.extend(map(str, now(check(self.looker, self.outside()))))
        if broken:
            self.fails(broken)

    def fails(self, what: list[str]) -> None:
        self.failed = True
        raise Failed("\n".join([*what, *self.story()]))

    def outside(self) -> list[Applied]:
        reader = self.looker._reader
        if not reader.execute("SELECT 1 FROM sqlite_schema WHERE name = 'book'").fetchall():
            return self.town.ledger
        texts = reader.execute("SELECT text FROM book").fetchall()
        return [*self.town.ledger, *(Applied("enter", args={"text": text}) for (text,) in texts)]

    def story(self) -> Iterator[str]:
        for run_id in self.runs:
            yield f"--- {run_id}: {now(self.looker.run(run_id)).status}"
            for line in now(Inspector(self.looker).journal(run_id)):
                yield f"{line.at % 10_000_000} {line.name} {str(line.fields)[:220]}"
        yield f"--- ledger {self.town.ledger}"

    def teardown(self) -> None:
        try:
            if self.runs and not self.failed:
                self.heals()
        finally:
            for process in self.processes:
                self.ports[id(process)].alive = False
                process.die()
            self.looker.close()
            shutil.rmtree(self.folder)

    def heals(self) -> None:
        """Let the weather clear, and one fresh process and an honest operator finish everything."""
        self.town.ways.clear()
        self.lateness.clear()
        while self.processes:
            self.dies(0, 0)
        self.new_process()
        for _ in range(HEALING):
            self.processes[0].lasts(HEALS_MS)
            self.the_operator_serves(yes=True)
            self.laws_hold()
            if all(self.settled(row) for row in now(self.looker.runs(Query(limit=100)))):
                return
        self.fails(["it never came to an end"])

    def settled(self, row: RunRow) -> bool:
        open_ = {effect.outcome for effect in now(self.looker.effects(row.id))}
        return row.status in SETTLED and row.owner is None and open_.isdisjoint({"started", "unknown"})


def explore(settings_: settings, model: type[Model] = Model) -> None:
    run_state_machine_as_test(model, settings=settings_)


@pytest.mark.timeout(3_600)
def test_workers_that_die_and_freeze_and_a_late_world_break_none_of_the_eight_laws() -> None:
    """Requirement 33. Requirement 51."""
    explore(MODEL)


TURNS = range(0, 120, 1 if ALL else 3)


def busy() -> Model:
    """Return a model in which one process has just begun to drive two runs, and another one stands by."""
    model = Model()
    groups_ = [["charge", "phone", "ship"], ["publish", "stamp"], ["mail", "enter"]]
    model.begins(groups_, [])
    model.starts(0, groups_, True, [])
    return model


def frozen_at_each(turns: range) -> None:
    """Freeze a process after so many turns of its loop, let another take its runs over, and wake it again."""
    for turn in turns:
        model = busy()
        try:
            model.one_freezes(0, turn, 1_000)
            model.turns(0, 100)
            model.laws_hold()
        finally:
            model.teardown()


def test_a_process_frozen_at_any_turn_and_overtaken_does_no_harm_when_it_wakes() -> None:
    frozen_at_each(TURNS)


def test_a_process_that_dies_at_any_turn_leaves_nothing_lost_or_repeated() -> None:
    """Requirement 69."""
    for turn in TURNS:
        model = busy()
        try:
            model.dies(0, turn)
            model.all_go_on(1_000)
            model.laws_hold()
        finally:
            model.teardown()


# ---------------------------------------------------------------- it sees what it is there to see


def sends_what_is_irreversible_again(patch: pytest.MonkeyPatch) -> None:
    def careless(facts: Facts, doubt: Doubt, at: int) -> Move:
        return Resend() if facts.effect == "irreversible" else next_move(facts, doubt, at)

    patch.setattr(decide, "next_move", careless)


def believes_the_first_not_found(patch: pytest.MonkeyPatch) -> None:
    def hasty(facts: Facts, doubt: Doubt, at: int) -> Move:
        absent = facts.effect == "queryable" and doubt.absences
        return ProvenAbsent(final=False, why="not found") if absent else next_move(facts, doubt, at)

    patch.setattr(decide, "next_move", hasty)


def takes_what_was_started_for_failed(patch: pytest.MonkeyPatch) -> None:
    def sure(state: RunState, world: decide.World) -> list[e.Entry]:
        return [
            e.EffectFailed(
                at=one.at, step=one.step, attempt=one.attempt, why="?", reason="not_sent", final=False, retry_at=0
            )
            if isinstance(one, e.EffectUnknown)
            else one
            for one in recover(state, world)
        ]

    patch.setattr(driver, "recover", sure)


def lets_every_epoch_write(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(SQL, "advance_head", SQL["advance_head"].replace("epoch = ?", "epoch >= ?"))


def sends_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    def eager(session: Session, *entries: e.Entry, **beside: Any) -> asyncio.Future[Any]:
        session.put(*entries, **beside)
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    patch.setattr(Session, "queue", eager)


@pytest.mark.parametrize(
    ("planted", "seen"),
    [
        (sends_what_is_irreversible_again, "law 8|repeated"),
        (believes_the_first_not_found, "repeated|failed"),
        (takes_what_was_started_for_failed, "law 2"),
        (lets_every_epoch_write, "law 6|damaged|epoch"),
        (sends_before_it_is_durable, "law 1"),
    ],
)
def test_a_planted_defect_is_found(
    planted: Callable[[pytest.MonkeyPatch], None], seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(monkeypatch)

    @seed(FOUND_BY)
    class Seeded(Model): ...

    with pytest.raises(Failed, match=seen):
        explore(SEARCH, Seeded)


def test_what_is_sent_under_a_lease_that_lapsed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "may_send", lambda *_: True)

    with pytest.raises(Failed, match="law 1"):
        frozen_at_each(range(120))


# ---------------------------------------------------------------- what it found once


def test_a_cancelled_run_whose_costed_read_was_lost_comes_to_an_end() -> None:
    model = Model()
    model.begins([["mail"]], [Way("hangs")])
    model.one_goes_on(0, 60)
    model.ends_a_run(0, kill=False)

    model.dies(0, 0)

    model.teardown()

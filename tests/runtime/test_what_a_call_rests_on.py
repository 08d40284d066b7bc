"""What stands against a call, what its run is told to wait for, and when it looks again: one held run at a time."""

from types import SimpleNamespace
from typing import Any

import pytest

import milepost as mp
from milepost.core.breaker import Answered, Breaker, Failed, Probing, Vacated
from milepost.core.duration import from_ms
from milepost.core.lease import MARGIN_MS
from milepost.errors import NotSent, Waiting
from milepost.runtime import gates, waits
from milepost.runtime.session import Session
from milepost.stores.api import OnceRow, Switch, SwitchedOff
from milepost.stores.waits import Awaited, once_scope
from tests.core import samples as s
from tests.model.desk import Queued
from tests.runtime.sessions import NOW, STEP, charge, engine_of, held

OPEN = Switch("tool:charge", "breaker", "it fails", "milepost", 1, until=NOW)
FROZEN = Switch("tool:charge", "freeze", "a bug", "ann", 1)
HELD = Switch("tool:charge", "hold", "found twice", "milepost", 1)


@mp.tool(effect="irreversible")
async def wire() -> str:
    return "ok"


@mp.tool(effect="transactional")
def book(tx: mp.Tx) -> str:
    return "ok"


@mp.tool(effect="read")
async def look_up() -> str:
    return "ok"


class Shown:
    """What a store shows of its switches: what it was last read for, and what is there now."""

    def __init__(self, *switches: Switch) -> None:
        self.switches = list(switches)
        self.reads = 0

    def switches_now(self) -> list[Switch]:
        self.reads += 1
        return list(self.switches)


def with_switches(session: Session, *switches: Switch) -> Shown:
    store = Shown(*switches)
    engine: Any = session.engine
    engine.stops = waits.Stops(store)  # type: ignore[arg-type]  # of a store it needs this method
    return store


class Branch:
    """A branch whose rest does something, and ends at the latest when it rests for the last time."""

    def __init__(self, session: Session, *meanwhile: Any) -> None:
        self.session = session
        self.meanwhile = list(meanwhile)
        self.seen: list[tuple[dict[str, Waiting], dict[str, int], dict[str, Awaited]]] = []

    async def idle(self) -> None:
        session = self.session
        self.seen.append((dict(session.waits), dict(session.polls), dict(session.stopped)))
        self.meanwhile.pop(0)()


def step_of(tool: Any = charge) -> Any:
    return SimpleNamespace(id=STEP, tool=tool, path=s.PATH)


# ---------------------------------------------------------------- what is read


def test_switches_are_read_once_in_half_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = Shown(FROZEN)
    stops = waits.Stops(store)
    now = [100.0]
    monkeypatch.setattr("milepost.runtime.waits.time.monotonic", lambda: now[0])

    assert stops.now() == stops.now() == [FROZEN]
    assert store.reads == 1
    now[0] += waits.FRESH_S
    store.switches.clear()
    assert stops.now() == [FROZEN]
    now[0] += 0.001
    assert stops.now() == []
    assert (stops.again(), store.reads) == ([], 3)


def test_a_hold_is_of_one_contradiction_of_one_tool() -> None:
    assert waits.hold("run-1", "pay/charge#1", "charge", "found twice", 7) == Switch(
        "tool:charge", "hold", "found twice", "run-1", 7, "run-1 pay/charge#1"
    )


# ---------------------------------------------------------------- what an attempt says


def test_an_attempt_is_a_probe_where_something_stands_and_its_class_may_be_tried() -> None:
    session = held()
    assert waits.probe(session, charge, STEP, 2) is None

    with_switches(session, OPEN)

    assert waits.probe(session, wire, STEP, 2) is None
    assert waits.probe(session, charge, STEP, 2) == Probing(
        "charge", f"run-1 {STEP} 2", NOW + charge.timeout_ms + MARGIN_MS
    )


@pytest.mark.parametrize(
    ("switch", "tool", "known"),
    [
        (OPEN, charge, True),
        (OPEN, wire, False),
        (FROZEN, charge, False),
        (Switch("tool:charge", "breaker", "", "", 1), charge, False),
        (Switch("tool:charge", "breaker", "", "", 1, until=NOW + 1), charge, False),
        (Switch("tool:charge", "freeze", "", "", 1, until=NOW), charge, False),
    ],
)
def test_a_breaker_that_is_due_and_was_not_known_is_read_now(switch: Switch, tool: Any, *, known: bool) -> None:
    session = held()
    store = with_switches(session)

    assert waits.opened_since(session, tool, switch) is known
    assert store.reads == int(known)


def test_a_provider_answers_all_but_what_is_done_inside_the_transaction() -> None:
    session = held()

    assert waits.answered(session, charge, STEP, 1) == (Answered("charge", f"run-1 {STEP} 1"),)
    assert waits.answered(session, book, STEP, 1) == ()
    assert waits.says_nothing(session, charge, STEP, 1) == (Vacated("charge", f"run-1 {STEP} 1"),)


@pytest.mark.parametrize(
    ("error", "floor"),
    [(RuntimeError("down"), 0), (NotSent("down", retry_after="2s"), 2_000), (NotSent("down"), 0)],
)
def test_an_error_of_the_provider_counts_against_it(error: Exception, floor: int) -> None:
    session = held()
    engine: Any = session.engine
    engine.breaker = settings = Breaker()
    engine.clock.chance = lambda: 0.25

    (event,) = waits.raised(session, charge, STEP, 3, error)

    assert event == Failed("charge", f"run-1 {STEP} 3", engine.why(error), settings, floor, 0.25)


@pytest.mark.parametrize("error", [gates.CredentialChanged("other"), mp.Rejected("no")])
def test_an_error_that_is_not_the_provider_s_says_nothing_of_it(error: Exception) -> None:
    session = held()
    engine: Any = session.engine
    engine.breaker = Breaker()

    assert waits.raised(session, charge, STEP, 3, error) == (Vacated("charge", f"run-1 {STEP} 3"),)
    engine.breaker = None
    assert waits.raised(session, charge, STEP, 3, RuntimeError("down")) == (Vacated("charge", f"run-1 {STEP} 3"),)


# ---------------------------------------------------------------- what is waited for


@pytest.mark.parametrize(
    ("switch", "tool", "waiting"),
    [
        (HELD, charge, Waiting("person", None, "tool:charge: found twice")),
        (OPEN, charge, Waiting("breaker", from_ms(NOW))),
        (Switch("tool:charge", "breaker", "it fails", "", 1), charge, Waiting("breaker", None)),
        (OPEN, wire, Waiting("breaker", None, "milepost thaw tool:charge --why … (it fails)")),
        (FROZEN, charge, Waiting("switch", None, "milepost thaw tool:charge --why … (a bug)")),
    ],
)
def test_a_call_waits_for_what_lifts_the_switch(switch: Switch, tool: Any, waiting: Waiting) -> None:
    assert waits.waiting_for(held(), tool, switch) == waiting


@pytest.mark.parametrize(
    ("switch", "tool", "probes"), [(OPEN, charge, True), (OPEN, wire, False), (FROZEN, charge, False)]
)
def test_a_step_notes_what_it_rests_on_until_it_rests_no_more(switch: Switch, tool: Any, *, probes: bool) -> None:
    session = held(s.started(), s.failed())

    due = waits.later(session, tool, STEP, switch)

    assert due == session.polls[STEP] == NOW + waits.LATER_MS
    assert session.stopped[STEP] == Awaited("tool:charge", probes, 1)
    assert waits.resting_on(session) == (Awaited("tool:charge", probes, 1),)
    session.rests_on = (Awaited("kept"),)
    assert waits.resting_on(session) == (Awaited("kept"),)
    waits.no_more(session, STEP)
    waits.no_more(session, STEP)
    assert (session.polls, session.stopped) == ({}, {})
    waits.later(session, tool, ":9", switch)
    assert session.stopped[":9"].spent == 0


async def test_a_call_rests_while_its_switch_stands_and_looks_again_each_time() -> None:
    session = held()
    store = with_switches(session, FROZEN)

    def lifted() -> None:
        store.switches.clear()
        engine_of(session).stops.again()

    branch: Any = Branch(session, lambda: None, lifted)

    await waits.wait_switch(branch, step_of(), FROZEN)

    due, waiting = NOW + waits.LATER_MS, waits.waiting_for(session, charge, FROZEN)
    assert branch.seen == [({STEP: waiting}, {STEP: due}, {STEP: Awaited("tool:charge")})] * 2
    assert (session.waits, session.polls, session.stopped) == ({}, {}, {})


async def test_a_call_that_rests_on_is_still_told_and_still_looks_where_a_look_was_wrong_by_the_time_it_woke() -> None:
    """Found by the soak: a look saw that a probe was due, another run made it; this one waited for nothing any more.

    Nobody would ever have moved it: it parked with no moment, and without a line of what it rested on.
    """
    session = held()
    taken = Switch("tool:charge", "breaker", "it fails", "milepost", 1, until=NOW + 60_000)
    store = with_switches(session, taken)

    def looked_at() -> None:
        waits.no_more(session, STEP)  # as `look` does where a probe is due

    def lifted() -> None:
        store.switches.clear()
        engine_of(session).stops.again()

    branch: Any = Branch(session, looked_at, lifted)

    await waits.wait_switch(branch, step_of(), taken)

    due, rests = NOW + waits.LATER_MS, Awaited("tool:charge", probes=True)
    assert [(polls, stopped) for _, polls, stopped in branch.seen] == [({STEP: due}, {STEP: rests})] * 2
    assert (session.polls, session.stopped) == ({}, {})


async def test_a_call_looks_by_itself_when_its_time_has_come() -> None:
    session = held()
    with_switches(session, FROZEN)

    def late() -> None:
        engine_of(session).clock.now = lambda: NOW + waits.LATER_MS

    branch: Any = Branch(session, late)

    await waits.wait_switch(branch, step_of(), FROZEN)

    assert len(branch.seen) == 1


@pytest.mark.parametrize(
    ("row", "stands"),
    [
        (None, False),
        (OnceRow("run-2", STEP, "d", "confirmed", b"1"), False),
        (OnceRow("run-2", STEP, "d", "pending", None), True),
    ],
)
async def test_a_call_rests_until_another_run_s_identity_is_settled(row: OnceRow | None, *, stands: bool) -> None:
    session = held()
    asked: list[tuple[str, ...]] = []
    rows = [row, None]

    async def once(*names: str) -> OnceRow | None:
        asked.append(names)
        return rows.pop(0)

    engine_of(session).store.once = once
    scope = once_scope("acme", "charge", "a\x1fb")
    branch: Any = Branch(session, lambda: None, lambda: None)

    await waits.wait_once(branch, step_of(), scope)

    assert asked == [("acme", "charge", "a\x1fb")] * (1 + stands)
    seen = ({STEP: Waiting("unknown")}, {STEP: NOW + waits.LATER_MS}, {STEP: Awaited(scope)})
    assert branch.seen == [seen] * (1 + stands)


async def test_a_call_rests_while_the_stop_file_stands() -> None:
    session = held()
    engine = engine_of(session)
    engine.halted = True

    def lifted() -> None:
        engine.halted = False

    branch: Any = Branch(session, lambda: None, lifted)

    await waits.wait_halt(branch, step_of())

    waiting = Waiting("switch", None, "milepost stop --lift --why …")
    seen = ({STEP: waiting}, {STEP: NOW + waits.HALT_POLL_MS}, {STEP: Awaited(waits.HALT)})
    assert branch.seen == [seen] * 2


def test_an_effect_is_not_settled_while_the_stop_file_stands() -> None:
    session = held()
    engine = engine_of(session)
    assert waits.halted(session, STEP) is False

    engine.halted = True
    assert waits.halted(session, STEP) is True
    assert (session.polls, session.stopped) == ({STEP: NOW + waits.HALT_POLL_MS}, {STEP: Awaited(waits.HALT)})

    engine.halted = False
    assert waits.halted(session, STEP) is False
    assert (session.polls, session.stopped) == ({}, {})
    session.stopped[STEP] = Awaited("tool:charge")
    assert waits.halted(session, STEP) is False
    assert session.stopped == {STEP: Awaited("tool:charge")}


@pytest.mark.parametrize(
    ("switch", "awaited", "free"),
    [
        (FROZEN, Awaited("tool:charge"), False),
        (FROZEN, Awaited("tool:other"), True),
        (OPEN, Awaited("tool:charge"), False),
        (OPEN, Awaited("tool:charge", probes=True), True),
        (Switch("tool:charge", "breaker", "", "", 1, until=NOW + 1), Awaited("tool:charge", probes=True), False),
        (Switch("tool:charge", "breaker", "", "", 1), Awaited("tool:charge", probes=True), False),
        (Switch("tool:charge", "hold", "", "", 1, until=NOW), Awaited("tool:charge", probes=True), False),
        (None, Awaited("tool:charge"), True),
        (None, Awaited(waits.HALT), True),
    ],
)
async def test_calls_in_memory_go_on_when_what_they_rested_on_is_gone(
    switch: Switch | None, awaited: Awaited, *, free: bool
) -> None:
    session = held()
    with_switches(session, *([] if switch is None else [switch]))
    session.stopped, session.polls = {STEP: awaited}, {STEP: NOW + 5}

    await waits.look(session)

    assert (STEP not in session.stopped, STEP not in session.polls) == (free, free)
    assert engine_of(session).settled == int(free)


async def test_a_run_that_rests_on_nothing_is_not_woken() -> None:
    session = held()

    await waits.look(session)

    assert engine_of(session).settled == 0


# ---------------------------------------------------------------- free reads


async def test_a_free_read_is_called_where_nothing_stands_against_it() -> None:
    session = held()
    branch: Any = Branch(session)

    await waits.before_read(branch, step_of(look_up), 1)
    with_switches(session, FROZEN)
    await waits.before_read(branch, step_of(look_up), 1)

    assert (branch.seen, engine_of(session).alone) == ([], [])


@pytest.mark.parametrize("kind", ["freeze", "hold"])
async def test_a_free_read_waits_while_a_person_s_switch_stands_whatever_else_does(kind: str) -> None:
    session = held()
    stopped = Switch("tool:look_up", kind, "a bug", "ann", 1)
    store = with_switches(session, stopped, Switch("all", "breaker", "", "", 1, until=NOW))

    def lifted() -> None:
        store.switches.clear()
        engine_of(session).stops.again()

    branch: Any = Branch(session, lifted)

    await waits.before_read(branch, step_of(look_up), 1)

    assert [seen[0][STEP] for seen in branch.seen] == [waits.waiting_for(session, look_up, stopped)]
    assert engine_of(session).appends == []


async def test_a_free_read_waits_while_everything_is_stopped() -> None:
    session = held()
    engine = engine_of(session)
    engine.halted = True

    def lifted() -> None:
        engine.halted = False

    stopped = Switch("tool:look_up", "freeze", "a bug", "ann", 1)
    store = with_switches(session, stopped)

    def thawed() -> None:
        store.switches.clear()
        engine.stops.again()

    branch: Any = Branch(session, lifted, thawed)

    await waits.before_read(branch, step_of(look_up), 1)

    assert [seen[2] for seen in branch.seen] == [{STEP: Awaited(waits.HALT)}, {STEP: Awaited("tool:look_up")}]


async def test_a_free_read_asks_the_store_whether_it_is_the_probe() -> None:
    session = held()
    with_switches(session, Switch("tool:look_up", "breaker", "", "", 1, until=NOW))
    branch: Any = Branch(session)

    with pytest.raises(Queued):
        await waits.before_read(branch, step_of(look_up), 4)

    (append,) = engine_of(session).appends
    assert append.scopes == gates.scopes(session, look_up)
    assert append.probe == waits.probe(session, look_up, STEP, 4)
    assert append.probe is not None


async def test_a_free_read_that_is_not_the_probe_waits_for_what_refused_it() -> None:
    session = held()
    store = with_switches(session, Switch("tool:look_up", "breaker", "", "", 1, until=NOW))
    later = Switch("tool:look_up", "breaker", "it fails", "", 1, until=NOW + 700)
    engine: Any = session.engine
    engine._refusal = SwitchedOff(later)

    def lifted() -> None:
        assert store.reads == 2
        store.switches.clear()
        engine.stops.again()

    branch: Any = Branch(session, lifted)

    await waits.before_read(branch, step_of(look_up), 1)

    assert [seen[0][STEP] for seen in branch.seen] == [Waiting("breaker", from_ms(NOW + 700))]

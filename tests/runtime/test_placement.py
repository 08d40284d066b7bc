"""Badly placed boundaries are found, and well placed ones are left in peace."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

import milepost as mp
from milepost.core import entries as e
from milepost.core.code_entries import Migrated
from milepost.operations import placement
from tests.core import samples as say
from tests.runtime.stage import Stage


def read(at: int) -> e.Entry:
    return e.ReadReturned(at=at, step=f":{at}", path="p", tool="look", digest="d", result=say.NULL)


def effect(at: int, kind: str = "keyed") -> e.Entry:
    return say.started(at, step=f":{at}", effect=kind)


def slept(at: int) -> e.Entry:
    return e.SleepEnded(at=at, step=f":{at}")


def received(at: int) -> e.Entry:
    return e.SignalReceived(at=at, step=f":{at}", name="go", id="1", value=say.NULL)


def to(segment: str, state: str = '"same"') -> e.Entry:
    return e.Checkpointed(at=99, boundary=say.boundary(segment=segment, state=msgspec.Raw(state.encode())))


def found(*entries: e.Entry, first: str = "triage") -> set[tuple[str, str]]:
    """Return what a run shows that begins in `first` with the state "same"."""
    begun = say.created(segment=first, state=msgspec.Raw(b'"same"'))
    smells = placement.of_runs("desk", [placement.read_visits([begun, *entries])])
    return {(smell.code, smell.segment) for smell in smells}


def test_a_decision_that_does_not_cross_the_boundary_is_found() -> None:
    """Requirement 56. The deciding read stands before the boundary, the effect after it; the state tells nothing."""
    assert found(read(1), to("pay"), effect(2)) == {("split_decision", "pay")}


@pytest.mark.parametrize(
    "entries",
    [
        (read(1), to("pay", '"with the verdict"'), effect(2)),  # the state carries it: that is how it should be
        (read(1), to("pay"), read(2), effect(3)),  # it is asked again where it is acted on
        (read(1), effect(2), to("pay"), effect(3)),  # what was read was acted on already
        (read(1), to("pay"), received(2), effect(3)),  # somebody else says that it shall be
        (effect(1), to("pay"), effect(2)),
        (read(1), to("pay")),
    ],
)
def test_acting_on_what_the_state_carries_or_what_is_read_here_is_no_finding(entries: tuple[e.Entry, ...]) -> None:
    assert found(*entries) == set()


def test_acting_after_a_sleep_on_what_an_earlier_segment_read_is_found() -> None:
    """Requirement 56. The boundary preserved an answer, and nobody asked again."""
    assert found(read(1), to("pay", '"price"'), slept(2), effect(3)) == {("stale_decision", "pay")}
    assert found(read(1), to("pay", '"price"'), slept(2), read(3), effect(4)) == set()


@pytest.mark.parametrize(("reads", "smells"), [(9, set()), (10, {("unguarded_effect", "triage")})])
def test_an_irreversible_effect_after_many_reads_wants_a_boundary_before_it(
    reads: int, smells: set[tuple[str, str]]
) -> None:
    """Requirement 54. Default boundaries stand around consequential calls."""
    assert found(*map(read, range(reads)), effect(500, "irreversible")) == smells
    assert found(*map(read, range(reads)), effect(500, "keyed")) == set()


def test_a_few_reads_that_cost_count_as_many() -> None:
    """Requirement 54. Default boundaries stand around expensive work."""
    costed = [effect(at, "read") for at in range(3)]

    assert found(*costed, effect(9, "irreversible")) == {("unguarded_effect", "triage")}
    assert found(*costed[:2], effect(9, "irreversible")) == set()


@pytest.mark.parametrize(("steps", "smells"), [(200, set()), (201, {("long_segment", "triage")})])
def test_a_segment_with_very_many_steps_is_found(steps: int, smells: set[tuple[str, str]]) -> None:
    """Requirement 56."""
    assert found(*map(read, range(steps))) == smells


def test_a_segment_that_never_records_a_step_is_found_and_one_that_sometimes_does_not_is_not() -> None:
    """Requirement 56."""
    assert found(to("pay"), effect(1)) == {("empty_segment", "triage")}
    assert found(to("pay"), effect(1), to("triage"), read(2)) == set()
    moved = Migrated(at=1, version="1", to="2", segment="a", to_segment="b", before="x", after="y", by="2")
    assert found(moved, to("pay"), effect(1)) == set()


def test_an_effect_that_was_given_up_as_absent_and_left_behind_is_found() -> None:
    """Requirement 56. The checkpoint preserves a doubt that it does not resolve."""
    gone = say.failed(20, step=":5", reason="absent", final=True, retry_at=None)

    assert found(effect(5), gone, to("pay", '"x"'), read(6)) == {("crossed_absent", "triage")}
    assert found(effect(5), say.failed(20, step=":5", reason="rejected", final=True), to("pay", '"x"')) == set()
    assert found(effect(5), gone) == set()


def test_a_finding_is_told_once_with_how_often_it_was_seen() -> None:
    def run() -> list[placement.Visit]:
        begun = say.created(segment="triage", state=msgspec.Raw(b'"same"'))
        return placement.read_visits([begun, read(1), to("pay"), effect(2)])

    (smell,) = placement.of_runs("desk", [run(), run(), run()])

    assert (smell.code, smell.workflow, smell.segment, smell.times) == ("split_decision", "desk", "pay", 3)


def test_a_segment_that_awaits_nothing_is_found_by_its_code_unless_it_is_the_only_one() -> None:
    """Requirement 56."""
    flow = mp.Workflow("flow", version="1", input=int, result=int)

    @flow.segment
    async def routes(run: mp.Run, n: int) -> mp.Next[int]:
        return mp.go(waits, n)

    assert placement.of_code(flow) == []

    @flow.segment
    async def waits(run: mp.Run, n: int) -> mp.Next[int]:
        return mp.done(await run.receive("go", int))

    @flow.segment
    async def draws(run: mp.Run, n: int) -> mp.Next[int]:
        return mp.done(int(run.random()))  # recorded without being awaited

    assert [(smell.code, smell.segment) for smell in placement.of_code(flow)] == [("empty_segment", "routes")]


async def test_the_visits_of_a_real_run_are_read_from_its_journal(stage: Stage) -> None:
    @mp.tool(effect="read")
    async def look(n: int) -> int:
        return n

    @mp.tool(effect="read", cost={"usd": 1})
    async def ask(n: int) -> int:
        return n

    @mp.tool
    async def fax(n: int) -> int:
        return n

    flow = mp.Workflow("flow", version="1", input=int, result=int, tools=[look, ask, fax])

    @flow.segment
    async def first(run: mp.Run, n: int) -> mp.Next[int]:
        run.now()
        return mp.go(second, await look(n) + await ask(n))

    @flow.segment
    async def second(run: mp.Run, n: int) -> mp.Next[int]:
        await run.sleep("1ms")
        return mp.done(await fax(n))

    async with stage.app(flow) as app:
        handle = await app.start(flow, 1, budget={"usd": 5})
        await handle.result(timeout="30s")
        visits = await placement.visits_of(app._need_engine().store, handle.id)

    told: list[tuple[str, Iterable[Any]]] = [(visit.segment, visit.acts) for visit in visits]
    assert told == [
        ("first", [("other", ""), ("read", "look"), ("costed", "ask")]),
        ("second", [("sleep", ""), ("irreversible", "fax")]),
    ]
    assert {smell.code for smell in placement.of_runs("flow", [visits])} == {"stale_decision"}

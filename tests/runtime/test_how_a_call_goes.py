"""The way of one call from its place to its answer: what it waits for, in which order, what it returns or raises."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from milepost.core import entries as e
from milepost.core.authority import Granted
from milepost.core.policy import Verdict
from milepost.errors import Denied, StepFailed, Waiting
from milepost.runtime import effects
from milepost.runtime.session import Unloading
from tests.core import samples as s
from tests.runtime.committing import Line, booking, committing, kinds, step_of, tool_of
from tests.runtime.sessions import NOW, OTHER

GRANT = e.Widened(at=1, by="ann", budget=s.usd(9))


async def called(session: Any, step: Any, *meanwhile: Any, closed_by: str | None = None) -> tuple[Any, Line]:
    line: Any = Line(session, *meanwhile)
    line.closed_by = closed_by
    try:
        return await effects.perform(line, step), line
    except Exception as error:  # noqa: BLE001  handed back, whatever it is
        return error, line


async def test_a_tool_that_is_not_listed_is_refused() -> None:
    session = committing(tool=tool_of())

    error, _ = await called(session, step_of(tool_of()))

    assert isinstance(error, StepFailed)
    assert (error.path, "add it to tools=[…]" in str(error)) == (s.PATH, True)


async def test_no_call_begins_in_a_segment_that_unloads() -> None:
    session = committing(tool=(tool := tool_of()))
    session.unloading = True

    with pytest.raises(Unloading):
        await called(session, step_of(tool))


@pytest.mark.parametrize("transactional", [False, True])
async def test_a_call_begins_once_and_returns_what_was_recorded(*, transactional: bool) -> None:
    tool = booking() if transactional else tool_of()
    session = committing(tool=tool)

    value, line = await called(session, step_of(tool))
    again, looked = await called(session, step_of(tool))

    assert (value, again, line.begun, looked.begun) == ("done", "done", 1, 0)


@pytest.mark.parametrize(("reason", "kind"), [("denied", Denied), ("rejected", StepFailed)])
async def test_a_call_that_failed_for_good_raises_what_is_recorded(reason: str, kind: type[StepFailed]) -> None:
    tool = tool_of()
    session = committing(s.started(), s.failed(reason=reason, final=True, why="no"), tool=tool)

    error, _ = await called(session, step_of(tool))

    assert (type(error), error.path, error.why) == (kind, s.PATH, "no")


async def test_a_call_waits_for_everything_that_stands_before_it() -> None:
    tool = tool_of(scopes=["pay"])
    session = committing(tool=tool)
    session.draining = True
    session.unclaimed = {OTHER}
    engine, step = session.engine, step_of(tool)

    def stays() -> None:
        session.draining = False
        engine.halted = True

    def lifted() -> None:
        engine.halted = False

    def granted() -> None:
        session.about = msgspec.structs.replace(session.about, authority=Granted("bot", ("pay",)))

    value, line = await called(session, step, stays, lifted, granted)

    assert value == "done"
    assert [(waiting.reason, waiting.ask) for waiting in line.seen] == [
        ("switch", ""), ("switch", "milepost stop --lift --why …"), ("authority", f"milepost grant {s.RUN} pay"),
    ]  # fmt: skip
    assert (line.barriers, kinds(session)) == (1, ["EffectPlanned", "EffectStarted", "EffectConfirmed"])


async def test_a_call_rests_while_its_effect_is_under_way_unknown_or_not_due() -> None:
    tool = tool_of()
    session = committing(s.started(), tool=tool)
    step = step_of(tool)

    def lost() -> None:
        session.put(s.lost(quiet_at=20))

    def failed() -> None:
        session.put(s.failed(reason="absent", retry_at=NOW + 50, by="finding"))

    def early() -> None:
        session.engine.clock.now = lambda: NOW + 49

    def due() -> None:
        session.engine.clock.now = lambda: NOW + 50

    value, line = await called(session, step, lost, failed, early, due)

    assert (value, line.begun) == ("done", 1)
    assert line.seen == [Waiting("unknown"), Waiting("unknown"), Waiting("time"), Waiting("time")]
    assert session.engine.settled == 1


async def test_a_read_that_costs_and_was_lost_is_made_again_at_once() -> None:
    read = tool_of(effect="read", key_ttl=None, cost={"usd": 2})
    session = committing(GRANT, s.started(effect="read", reserve=s.usd(2)), s.lost(), tool=read)

    value, line = await called(session, step_of(read))

    assert (value, line.seen) == ("done", [])


async def test_a_call_rests_while_what_closed_its_branch_is_unsettled() -> None:
    tool = tool_of()
    session = committing(s.started(step=OTHER), tool=tool)

    def settled() -> None:
        session.put(s.confirmed(step=OTHER))

    value, line = await called(session, step_of(tool), settled, closed_by=OTHER)

    assert (value, line.seen) == ("done", [Waiting("unknown")])


async def test_a_call_waits_for_room_where_the_writer_is_crowded() -> None:
    tool = tool_of()
    session = committing(tool=tool)
    asked: list[int] = []

    async def room() -> None:
        asked.append(1)

    session.engine.room, session.engine.crowded = room, True

    assert (await called(session, step_of(tool)))[0] == "done"
    assert asked == [1]


async def test_a_call_that_a_rule_denies_is_denied_by_the_record() -> None:
    tool = tool_of()
    session = committing(tool=tool)
    rules = SimpleNamespace(quickly=lambda *_: None)
    session.engine.policy = SimpleNamespace(
        current=lambda: rules, decided=lambda *_: Verdict("deny", "never", "no"), turns=1, path="p"
    )

    error, line = await called(session, step_of(tool))

    assert (type(error), line.begun) == (Denied, 0)
    assert kinds(session) == ["EffectPlanned", "EffectFailed"]

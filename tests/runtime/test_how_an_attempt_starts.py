"""What one held run queues when an attempt starts, and what it makes of the answer: written, refused, or given up."""

import asyncio
from typing import Any

import msgspec
import pytest

import milepost as mp
from milepost.core import codec
from milepost.core import entries as e
from milepost.core.approval_entries import ApprovalClosed
from milepost.core.breaker import Probing
from milepost.core.policy import Verdict
from milepost.errors import EpochLost, NotSent, Rejected
from milepost.runtime import effects, gates, waits
from milepost.stores.api import Once, OnceSettled, SwitchedOff
from milepost.stores.pools import PoolSpent
from tests.core import samples as s
from tests.runtime.committing import Line, booking, committing, kinds, recorded, step_of, tool_of
from tests.runtime.sessions import NOW, OTHER, STEP
from tests.runtime.test_what_a_call_rests_on import FROZEN, OPEN, Shown

GRANT = e.Widened(at=1, by="ann", budget=s.usd(9))
DEADLINE = NOW + 60_000


async def attempted(session: Any, step: Any, effect: Any = None, *meanwhile: Any) -> Line:
    line: Any = Line(session, *meanwhile)
    await effects.attempt_effect(line, step, effect)
    return line  # type: ignore[no-any-return]


# ---------------------------------------------------------------- what is queued


async def test_a_start_is_queued_with_all_that_it_depends_on() -> None:
    tool = tool_of(once="order", cost={"usd": 2})
    session = committing(GRANT, tool=tool)
    step = step_of(tool)
    step.cost, step.verdict = s.usd(2), Verdict("allow", "all", policy="3+abc")
    session.engine.lease_until = NOW + 5
    session.engine.stops = waits.Stops(Shown(OPEN))  # type: ignore[arg-type]  # of a store it needs this method

    await attempted(session, step)

    start, end = session.engine.appends
    assert codec.decode(start.entries[0]) == e.EffectStarted(
        at=NOW, step=STEP, attempt=1, epoch=1, deadline=DEADLINE, plan=gates.planned(session, step, NOW),
        reserve=s.usd(2), rule="all", policy="3+abc",
    )  # fmt: skip
    assert start.once == Once("acme", "charge", '["o-1"]', STEP, step.bound.digest, again=False)
    assert start.scopes == gates.scopes(session, tool)
    assert start.probe == waits.probe(session, tool, STEP, 1)
    assert isinstance(start.probe, Probing)
    assert (start.lease[0], session.engine.lease_until) == ("worker-1", start.lease[1])
    assert [type(codec.decode(body)) for body in end.entries] == [e.EffectConfirmed]


async def test_a_resend_says_so_and_claims_no_identity_again() -> None:
    tool = tool_of(once="order")
    session = committing(s.started(), s.lost(quiet_at=20), tool=tool)

    await attempted(session, step_of(tool), s.effect(session.state))

    start, end = recorded(session)
    assert start == e.EffectStarted(at=NOW, step=STEP, attempt=2, epoch=1, deadline=DEADLINE, resend=True)
    assert isinstance(end, e.EffectConfirmed)
    assert end.attempt == 2
    assert session.engine.appends[0].once is None


async def test_a_retry_is_no_resend_and_claims_an_identity_again_where_the_run_was_made_elsewhere() -> None:
    tool = tool_of(once="order")
    session = committing(s.started(), s.failed(), tool=tool)
    session.state.imported = True
    step = step_of(tool)

    await attempted(session, step, s.effect(session.state))

    start = recorded(session)[0]
    assert isinstance(start, e.EffectStarted)
    assert (start.attempt, start.resend, start.plan) == (2, False, None)
    assert session.engine.appends[0].once == Once("acme", "charge", '["o-1"]', STEP, step.bound.digest, again=True)


async def test_a_start_uses_its_approval_and_closes_the_others() -> None:
    asked = e.ApprovalAsked(at=5, step=STEP, id="ap-1", tool_version="7", digest="d1")
    yes = e.ApprovalAnswered(at=6, id="ap-1", approved=True, by="ann")
    other = msgspec.structs.replace(asked, id="ap-2")
    tool = tool_of()
    session = committing(s.planned(), asked, yes, other, tool=tool)
    step = step_of(tool)
    step.approval = "ap-1"

    await attempted(session, step, s.effect(session.state))

    closed, start = recorded(session)[:2]
    assert isinstance(closed, ApprovalClosed)
    assert isinstance(start, e.EffectStarted)
    assert (closed.id, start.approval) == ("ap-2", "ap-1")
    assert session.starting[STEP].done()


async def test_an_answer_that_was_paid_for_is_durable_before_anything_is_chosen_by_it() -> None:
    read = tool_of(effect="read", key_ttl=None, cost={"usd": 2})
    session = committing(GRANT, tool=read)
    step = step_of(read)

    await attempted(session, step)
    assert len(session.engine.alone) == 2
    other = committing(tool=tool_of())
    await attempted(other, step_of(tool_of()))
    assert len(other.engine.alone) == 1
    failing = tool_of(NotSent("no"), effect="read", key_ttl=None, cost={"usd": 2})
    failed = committing(GRANT, tool=failing)
    await attempted(failed, step_of(failing))
    assert len(failed.engine.alone) == 1


async def test_what_left_after_its_lease_lapsed_is_not_sent() -> None:
    tool = tool_of()
    session = committing(tool=tool)
    session.engine.holds = True
    task = asyncio.create_task(attempted(session, step_of(tool)))
    await asyncio.sleep(0)

    session.engine.lapses += 1
    session.engine.waiting[0].set_result(None)
    await task

    assert kinds(session) == ["EffectStarted", "EffectFailed"]


# ---------------------------------------------------------------- refused, lost, given up


async def test_a_start_that_is_refused_is_taken_back_and_rested_on() -> None:
    tool = tool_of()
    session = committing(GRANT, s.started(step=OTHER, reserve=s.usd(1)), tool=tool)
    session.engine.answer = SwitchedOff(FROZEN)
    step, shown = step_of(tool), Shown(FROZEN)
    session.engine.stops = waits.Stops(shown)  # type: ignore[arg-type]

    def lifted() -> None:
        assert session.state.steps[STEP].outcome == "not_started"
        shown.switches.clear()
        session.engine.stops.again()

    line = await attempted(session, step, None, lifted)

    assert line.seen == [waits.waiting_for(session, tool, FROZEN)]
    assert kinds(session) == ["EffectStarted", "EffectPlanned"]


@pytest.mark.parametrize("transactional", [False, True])
async def test_a_start_that_finds_the_run_lost_lets_go_of_it(*, transactional: bool) -> None:
    tool = booking() if transactional else tool_of()
    session = committing(tool=tool)
    session.engine.answer = lost = EpochLost(s.RUN, 1)
    line: Any = Line(session)

    with pytest.raises(EpochLost):
        await (effects.transact if transactional else effects.attempt_effect)(line, step_of(tool), None)

    assert session.dropped is lost


async def given_up(session: Any, tool: Any, answer: Exception | None, *, lost: bool = False) -> None:
    """Cancel a call while its start is being committed, as `durable` does: it waits for the answer first."""
    session.engine.holds = True
    line: Any = Line(session)
    act = effects.transact if tool.effect == "transactional" else effects.attempt_effect
    effect: Any = session.state.steps.get(STEP)
    task = asyncio.create_task(act(line, step_of(tool), effect))
    await asyncio.sleep(0)
    (future,) = session.engine.waiting
    if lost:
        session.drop(EpochLost(s.RUN, 1))
    if answer is None:
        future.set_result(None)
    else:
        future.set_exception(answer)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_is_cancelled_while_its_start_is_written_was_not_sent() -> None:
    session = committing(tool=tool_of())

    await given_up(session, tool_of(), None)

    assert recorded(session)[1:] == [
        e.EffectFailed(
            at=NOW, step=STEP, attempt=1, why="cancelled before it was sent", reason="not_sent", final=False,
            retry_at=NOW,
        )
    ]  # fmt: skip


@pytest.mark.parametrize("transactional", [False, True])
async def test_what_is_cancelled_while_its_start_is_refused_is_taken_back(*, transactional: bool) -> None:
    tool = booking() if transactional else tool_of()
    session = committing(tool=tool)

    await given_up(session, tool, SwitchedOff(FROZEN))

    assert session.state.steps == {}
    assert (kinds(session), session.dropped) == (["EffectStarted"], None)


@pytest.mark.parametrize("transactional", [False, True])
async def test_what_is_cancelled_while_its_run_is_found_lost_is_let_go_of(*, transactional: bool) -> None:
    tool = booking() if transactional else tool_of()
    session = committing(tool=tool)

    await given_up(session, tool, lost := EpochLost(s.RUN, 1))

    assert session.dropped is lost


async def test_what_is_cancelled_after_its_run_was_lost_records_nothing() -> None:
    session = committing(tool=tool_of())

    await given_up(session, tool_of(), None, lost=True)

    assert kinds(session) == ["EffectStarted"]


# ---------------------------------------------------------------- transactional tools


async def transacted(session: Any, step: Any, *meanwhile: Any) -> Line:
    line: Any = Line(session, *meanwhile)
    effect: Any = session.state.steps.get(STEP)
    await effects.transact(line, step, effect)
    return line  # type: ignore[no-any-return]


async def test_a_transactional_tool_is_done_and_confirmed_inside_its_start() -> None:
    tool = booking(once="order", cost={"usd": 2})
    session = committing(GRANT, tool=tool)
    step = step_of(tool)
    step.cost, step.verdict = s.usd(2), Verdict("allow", "all", policy="3+abc")

    await transacted(session, step)

    (append,) = session.engine.appends
    assert [codec.decode(body) for body in append.entries] == [
        e.EffectStarted(
            at=NOW, step=STEP, attempt=1, epoch=1, deadline=DEADLINE, plan=gates.planned(session, step, NOW),
            reserve=s.usd(2), rule="all", policy="3+abc",
        )
    ]  # fmt: skip
    confirmed = e.EffectConfirmed(at=NOW, step=STEP, attempt=1, result=msgspec.Raw(b'"done"'))
    assert [codec.decode(body) for body in session.engine.works[0]] == [confirmed]
    assert append.once == Once("acme", "charge", '["o-1"]', STEP, step.bound.digest, again=False)
    assert append.once_settled == [OnceSettled("acme", "charge", '["o-1"]', "confirmed", b'"done"', STEP)]
    assert append.spent == [PoolSpent(STEP, s.usd(2), session.pools, 0)]
    assert append.scopes == gates.scopes(session, tool)
    effect = s.effect(session.state)
    assert (effect.outcome, bytes(effect.result)) == ("confirmed", b'"done"')
    assert (session.state.ledger.spent, session.starting) == (s.usd(2), {})


async def test_a_large_result_of_a_transactional_tool_stands_by_reference() -> None:
    tool = booking("x" * 300_000)
    session = committing(tool=tool)

    await transacted(session, step_of(tool))

    (append,) = session.engine.appends
    assert [len(chunk) for chunk in append.chunks.values()] == [300_002]
    assert bytes(s.effect(session.state).result).startswith(b'{"$ref"')


@pytest.mark.parametrize(
    ("error", "final", "retry_at"),
    [
        (RuntimeError("down"), False, NOW + 750),
        (mp.Rejected("no"), True, None),
        (object(), True, None),
    ],
)
async def test_a_transaction_that_failed_is_rolled_back_and_recorded(
    error: Any, retry_at: int | None, *, final: bool
) -> None:
    tool = booking(error, cost={"usd": 2}, retry=mp.Retry(attempts=2, first="1s"))
    session = committing(GRANT, tool=tool)
    step = step_of(tool)
    step.cost = s.usd(2)

    await transacted(session, step)

    refused, kept = session.engine.appends
    (start, failed) = [codec.decode(body) for body in kept.entries]
    first = codec.decode(refused.entries[0])
    assert isinstance(first, e.EffectStarted)
    assert start == msgspec.structs.replace(first, reserve={})
    assert isinstance(failed, e.EffectFailed)
    assert (failed.at, failed.attempt, failed.reason, failed.final, failed.retry_at) == (
        NOW, 1, "rejected", final, retry_at,
    )  # fmt: skip
    why = session.engine.why(error) if isinstance(error, Exception) else "cannot be"
    assert why in failed.why
    assert session.state.ledger.reserved == {}


async def test_a_transaction_that_failed_for_the_last_time_is_given_up_and_counts_its_tries() -> None:
    tool = booking(RuntimeError("down"), once="order", retry=mp.Retry(attempts=2, first="1s"))
    session = committing(s.started(effect="transactional"), s.failed(), tool=tool)
    step = step_of(tool)

    await transacted(session, step)

    assert session.engine.appends[0].once == Once("acme", "charge", '["o-1"]', STEP, step.bound.digest, again=True)
    failed = recorded(session)[-1]
    assert isinstance(failed, e.EffectFailed)
    assert (failed.attempt, failed.final, failed.retry_at) == (2, True, None)


async def test_what_the_store_refuses_of_a_transaction_is_recorded_as_rejected() -> None:
    tool = booking()
    session = committing(tool=tool)
    session.engine.answer = Rejected("it took more back than its own")

    await transacted(session, step_of(tool))

    failed = recorded(session)[-1]
    assert isinstance(failed, e.EffectFailed)
    assert (failed.final, failed.why) == (True, "it took more back than its own")
    assert kinds(session) == ["EffectStarted", "EffectStarted", "EffectFailed"]


async def test_a_transaction_uses_its_approval_and_closes_the_others_also_where_it_failed() -> None:
    asked = e.ApprovalAsked(at=5, step=STEP, id="ap-1", tool_version="7", digest="d1")
    yes = e.ApprovalAnswered(at=6, id="ap-1", approved=True, by="ann")
    other = msgspec.structs.replace(asked, id="ap-2")
    tool = booking(RuntimeError("down"))
    session = committing(s.planned(effect="transactional"), asked, yes, other, tool=tool)
    step = step_of(tool)
    step.approval = "ap-1"

    await transacted(session, step)

    assert kinds(session) == ["ApprovalClosed", "EffectStarted"] * 2 + ["EffectFailed"]
    assert [one.approval for one in recorded(session) if isinstance(one, e.EffectStarted)] == ["ap-1", "ap-1"]
    assert session.starting[STEP].done()


async def test_a_transaction_that_is_refused_is_taken_back_and_rested_on() -> None:
    tool = booking()
    session = committing(tool=tool)
    session.engine.answer = gates.Halted()
    session.engine.halted = True

    def lifted() -> None:
        session.engine.halted = False

    line = await transacted(session, step_of(tool), lifted)

    assert [waiting.reason for waiting in line.seen] == ["switch"]
    assert session.state.steps == {}

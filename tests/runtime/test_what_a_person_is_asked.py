"""What one held run asks of a person, which answer it may use, and why it closes what was asked."""

import asyncio
from typing import Any

import pytest

import milepost as mp
from milepost.core import approval as a
from milepost.core import entries as e
from milepost.core import messages as m
from milepost.core.approval_entries import ApprovalClosed
from milepost.core.duration import from_ms
from milepost.core.policy import Verdict
from milepost.errors import EpochLost, Waiting
from milepost.runtime import approvals, driver
from milepost.runtime.branch import ToolStep
from milepost.runtime.session import Session
from tests.core import samples as s
from tests.runtime.sessions import NOW, OTHER, STEP, engine_of, held

UNTIL = NOW + a.TTL_MS
ASKS = Verdict("ask", "large", "over 100", "v1+abc", expires_ms=5_000)


def asking(**options: Any) -> Any:
    @mp.tool(**{"name": "charge", "effect": "keyed", "key_ttl": "1h", "version": "1", "approval": True, **options})
    async def act(order: str = "o-1") -> str:
        return "ok"

    return act


def step_of(tool: Any, *args: str, id_: str = STEP, verdict: Verdict | None = None) -> Any:
    no_branch: Any = None
    step = ToolStep(no_branch, tool, tool.arguments.bind(args or ("o-1",), {}), id_, s.PATH)
    if verdict is not None:
        step.verdict = verdict
    return step


def asked_of(session: Session, step: Any) -> e.ApprovalAsked:
    """Let a step ask, and record the question."""
    assert approvals.waiting_for(session, step, None) is not None
    asked = step.asking
    assert isinstance(asked, e.ApprovalAsked)
    planned = [] if step.id in session.state.steps else [s.planned(step=step.id)]
    session.put(*planned, asked)
    return asked


def answer(session: Session, asked: e.ApprovalAsked, *, approved: bool = True) -> None:
    session.put(e.ApprovalAnswered(at=NOW, id=asked.id, approved=approved, by="ann", why="seen", said_at=NOW - 5,
                                   signature="sig"))  # fmt: skip


def at(session: Session, now: int) -> None:
    engine_of(session).clock.now = lambda: now


class Trust:
    """Operators whose signatures count, or do not."""

    def __init__(self, refusal: tuple[str, str] | None) -> None:
        self.refusal = refusal
        self.looked_at: list[tuple[Any, ...]] = []

    def refused(self, *given: Any) -> tuple[str, str] | None:
        self.looked_at.append(given)
        return self.refusal


# ---------------------------------------------------------------- the question


def test_a_tool_that_wants_an_approval_asks_for_exactly_this_call() -> None:
    session, tool = held(), asking()
    step = step_of(tool)

    waiting = approvals.waiting_for(session, step, None)

    bound = approvals.binding_of(step)
    assert bound == a.Binding(STEP, "charge", "1", "keyed", step.bound.digest, "")
    id_ = a.approval_id(s.RUN, 0, "0/0", bound, "bot", UNTIL)
    assert waiting == Waiting("approval", from_ms(UNTIL), f"milepost approve {id_}, or milepost deny {id_} --why …")
    assert step.asking == e.ApprovalAsked(
        at=NOW, step=STEP, id=id_, tool_version="1", digest=step.bound.digest, tool="charge", effect="keyed",
        expires_at=UNTIL, requester="bot",
    )  # fmt: skip
    assert step.approval is None


def test_a_rule_that_asks_says_so_and_bounds_the_time() -> None:
    session = held()
    step = step_of(asking(approval=False), verdict=ASKS)

    waiting = approvals.waiting_for(session, step, None)

    bound = approvals.binding_of(step)
    id_ = a.approval_id(s.RUN, 0, "0/0", bound, "bot", NOW + 5_000)
    ask = f"milepost approve {id_}, or milepost deny {id_} --why … (policy rule 'large')"
    assert waiting == Waiting("approval", from_ms(NOW + 5_000), ask)
    assert step.asking == e.ApprovalAsked(
        at=NOW, step=STEP, id=id_, tool_version="1", digest=step.bound.digest, rule="large", policy="v1+abc",
        tool="charge", effect="keyed", expires_at=NOW + 5_000, requester="bot", why="over 100",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("verdict", "until", "said"),
    [
        (Verdict("ask", "large", "why"), UNTIL, ("large", "why")),
        (Verdict("allow", "all", "why", expires_ms=5_000), UNTIL, ("", "")),
    ],
)
def test_only_a_rule_that_asks_and_names_a_time_bounds_it(verdict: Verdict, until: int, said: tuple[str, str]) -> None:
    step = step_of(asking(), verdict=verdict)

    approvals.waiting_for(held(), step, None)

    assert (step.asking.expires_at, step.asking.rule, step.asking.why) == (until, *said)


def test_a_tool_says_by_itself_which_of_its_calls_need_nobody() -> None:
    tool = asking(approval=lambda order: order == "large")

    assert approvals.waiting_for(held(), step_of(tool, "small"), None) is None
    assert approvals.waiting_for(held(), step_of(tool, "large"), None) is not None
    assert approvals.waiting_for(held(), step_of(asking(approval=False)), None) is None


def test_what_was_sent_with_an_approval_needs_no_other() -> None:
    session = held(s.started())
    effect = s.effect(session.state)
    step = step_of(asking())

    assert approvals.waiting_for(session, step, effect) is not None
    effect.approval = "ap-1"
    assert approvals.waiting_for(session, step, effect) is None
    assert (step.approval, step.asking) == (None, None)


# ---------------------------------------------------------------- the answer


def test_what_was_asked_is_waited_for_and_once_approved_is_used() -> None:
    session = held()
    step = step_of(asking())
    first = approvals.waiting_for(session, step, None)
    asked = asked_of(session, step)
    at(session, NOW + 10)

    assert approvals.waiting_for(session, step, None) == first
    assert (step.asking, step.approval) == (None, None)
    answer(session, asked)
    assert approvals.waiting_for(session, step, None) is None
    assert (step.asking, step.approval) == (None, asked.id)


def changed(session: Session, step: Any, asked: e.ApprovalAsked) -> Any:
    return step_of(asking(version="2"))


def other_arguments(session: Session, step: Any, asked: e.ApprovalAsked) -> Any:
    return step_of(step.tool, "o-2")


def expired(session: Session, step: Any, asked: e.ApprovalAsked) -> Any:
    at(session, UNTIL)
    return step


def denied(session: Session, step: Any, asked: e.ApprovalAsked) -> Any:
    answer(session, asked, approved=False)
    return step


def unsigned(session: Session, step: Any, asked: e.ApprovalAsked) -> Any:
    engine: Any = session.engine
    engine.operators = Trust(("unsigned", "nobody signed it"))
    return step


@pytest.mark.parametrize("becomes", [changed, other_arguments, expired, denied, unsigned])
def test_what_is_not_for_this_call_now_is_asked_anew_under_another_id(becomes: Any) -> None:
    session = held()
    step = step_of(asking())
    asked = asked_of(session, step)
    answer(session, asked)

    now = becomes(session, step, asked)

    assert approvals.waiting_for(session, now, None) is not None
    again = now.asking
    assert (now.approval, again.id == asked.id) == (None, False)
    bound, until = approvals.binding_of(now), engine_of(session).clock.now() + a.TTL_MS
    assert again.id == a.approval_id(s.RUN, 0, "0/1", bound, "bot", until)


def test_a_question_that_nobody_answered_needs_no_signature() -> None:
    session = held()
    step = step_of(asking())
    asked_of(session, step)
    unsigned(session, step, step.asking)

    assert approvals.waiting_for(session, step, None) is not None
    assert step.asking is None


def test_a_recorded_approval_is_looked_at_with_what_its_answer_signed() -> None:
    session = held()
    step = step_of(asking())
    asked = asked_of(session, step)
    answer(session, asked)
    engine: Any = session.engine
    engine.operators = trust = Trust(None)

    assert approvals.waiting_for(session, step, None) is None

    said = session.state.approvals[asked.id].said("store", s.RUN)
    assert trust.looked_at == [("ann", said, "sig", NOW)]
    assert step.approval == asked.id


def test_of_several_approvals_the_one_that_stands_is_found() -> None:
    session, tool = held(), asking()
    other, wrong = asked_of(session, step_of(tool, id_=OTHER)), asked_of(session, step_of(tool, "o-2"))
    step = step_of(tool)
    asked = asked_of(session, step)
    answer(session, other)
    answer(session, wrong)
    answer(session, asked)

    assert approvals.waiting_for(session, step, None) is None
    assert step.approval == asked.id
    assert approvals.waiting_for(session, step_of(tool, "o-3"), None) is not None


# ---------------------------------------------------------------- closing


def closing(session: Session, step: Any, keep: str | None = None) -> list[tuple[str, str, str]]:
    entries = approvals.stale(session, step, keep)
    closed = [entry for entry in entries if isinstance(entry, ApprovalClosed)]
    assert len(closed) == len(entries)
    assert {entry.at for entry in closed} <= {engine_of(session).clock.now()}
    return [(entry.id, entry.standing, entry.why) for entry in closed]


def test_what_is_not_asked_for_any_more_is_closed_but_for_the_one_to_keep() -> None:
    session, tool = held(), asking()
    asked_of(session, step_of(tool, id_=OTHER))
    step = step_of(tool)
    asked = asked_of(session, step)

    assert closing(session, step, asked.id) == []
    assert closing(session, step) == [(asked.id, "superseded", "it is not asked for any more")]
    answer(session, asked, approved=False)
    assert closing(session, step) == []
    assert closing(held(), step) == []


def test_a_request_is_closed_with_why() -> None:
    session, tool = held(), asking()
    step = step_of(tool, verdict=ASKS)
    asked = asked_of(session, step)
    was, other = step.bound.digest[:12], step_of(tool, "o-2").bound.digest[:12]

    newer = step_of(asking(version="2", effect="irreversible", key_ttl=None), "o-2", verdict=Verdict("ask"))

    why = (
        "the policy is none, and was v1+abc; the tool's version is 2, and was 1; "
        f"the digest of the arguments is {other}, and was {was}; the tool's class is irreversible, and was keyed"
    )
    assert closing(session, newer) == [(asked.id, "superseded", why)]
    at(session, NOW + 5_000)
    assert closing(session, newer) == [(asked.id, "expired", "its time ran out")]


def test_a_policy_that_is_there_now_and_was_not_closes_what_was_asked() -> None:
    session, tool = held(), asking()
    asked = asked_of(session, step_of(tool))

    why = "the policy is v1+abc, and was none"
    assert closing(session, step_of(tool, verdict=ASKS)) == [(asked.id, "superseded", why)]


def test_an_approval_whose_signature_is_not_believed_is_closed_with_that() -> None:
    session, tool = held(), asking()
    step = step_of(tool)
    asked = asked_of(session, step)
    unsigned(session, step, asked)

    assert closing(session, step) == [(asked.id, "superseded", "it is not asked for any more")]
    answer(session, asked)
    assert closing(session, step) == [(asked.id, "superseded", "nobody signed it")]
    engine: Any = session.engine
    engine.operators = Trust(None)
    assert closing(session, step) == [(asked.id, "superseded", "it is not asked for any more")]


def test_a_start_that_is_refused_gives_its_step_s_approvals_back() -> None:
    session, tool = held(), asking()
    other, asked = asked_of(session, step_of(tool, id_=OTHER)), asked_of(session, step_of(tool))
    answer(session, asked)
    state = session.state

    give_back = approvals.before_use(state, STEP)
    state.approvals[asked.id].verdict = "used"
    state.approvals[other.id].verdict = "denied"
    give_back()

    assert (state.approvals[asked.id].verdict, state.approvals[other.id].verdict) == ("approved", "denied")
    approvals.before_use(held().state, STEP)()


def test_a_request_lapses_when_its_time_runs_out() -> None:
    waits = {
        STEP: Waiting("approval", from_ms(NOW)),
        ":1": Waiting("approval", None),
        ":2": Waiting("breaker", from_ms(NOW)),
    }

    assert list(approvals.lapses(waits)) == [(STEP, NOW)]


# ---------------------------------------------------------------- an answer that arrives


def message(asked: e.ApprovalAsked, **changes: Any) -> m.Answer:
    facts: dict[str, Any] = {
        "at": NOW - 7, "by": "ann", "approval": asked.id, "approved": True, "why": "seen", "signature": "sig",
    }  # fmt: skip
    return m.Answer(**{**facts, **changes})


def test_an_answer_is_refused_where_nobody_who_may_has_signed_it() -> None:
    session = held()
    asked = asked_of(session, step_of(asking()))
    engine: Any = session.engine
    engine.operators = trust = Trust(("bad_signature", "another key"))
    said = message(asked)

    assert approvals.unfit(session, said) == [
        e.MessageRefused(at=NOW, kind="answer", why="another key", by="ann", code="bad_signature", about=asked.id)
    ]
    statement = session.state.approvals[asked.id].statement(
        "store", s.RUN, approved=True, by="ann", why="seen", at=NOW - 7
    )
    assert trust.looked_at == [("ann", statement, "sig", NOW)]
    trust.refusal = None
    assert approvals.unfit(session, said) == []


def test_no_signature_is_looked_at_where_none_counts_or_the_answer_is_refused_anyway() -> None:
    session = held()
    asked = asked_of(session, step_of(asking()))
    assert approvals.unfit(session, message(asked)) == []
    engine: Any = session.engine
    engine.operators = trust = Trust(("bad_signature", "another key"))

    assert approvals.unfit(session, m.Recheck(at=NOW, by="ann")) == []
    assert approvals.unfit(session, message(asked, approval="ap-other")) == []
    at(session, UNTIL)
    assert approvals.unfit(session, message(asked)) == []
    assert trust.looked_at == []


async def test_an_answer_waits_until_it_is_known_whether_its_approval_is_used() -> None:
    session = held()
    step = step_of(asking())
    asked = asked_of(session, step)
    start: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    approvals.note_use(session, step, start)
    assert session.starting == {}
    await approvals.decided(session, message(asked))

    step.approval = asked.id
    approvals.note_use(session, step, start)
    assert session.starting == {STEP: start}
    await approvals.decided(session, message(asked, approval="ap-other"))
    await approvals.decided(session, m.Recheck(at=NOW, by="ann"))
    waiting = asyncio.create_task(approvals.decided(session, message(asked)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    start.set_result(None)
    await waiting
    await approvals.decided(session, message(asked))


@pytest.mark.parametrize("lost", ["killed", "given back"])
async def test_an_answer_that_waited_for_a_start_is_left_to_whoever_holds_the_run_by_then(lost: str) -> None:
    """What the store refuses was raised into the worker's own loop, which ended with it."""
    session = held()
    step = step_of(asking())
    asked = asked_of(session, step)
    step.approval = asked.id
    start: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    approvals.note_use(session, step, start)
    written = len(engine_of(session).appends)

    async def inbox(_: str) -> list[tuple[int, bytes]]:
        return [(7, m.encode(message(asked)))]

    engine_of(session).store.inbox = inbox
    taking = asyncio.create_task(driver.take_inbox(session))
    for _ in range(5):
        await asyncio.sleep(0)
    if lost == "killed":
        session.drop(EpochLost(s.RUN, 1))
    else:
        session.released = True
    start.set_result(None)

    await taking

    assert (len(engine_of(session).appends), session.taken) == (written, set())

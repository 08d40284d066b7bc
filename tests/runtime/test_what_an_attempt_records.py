"""What is recorded of one attempt, by how it ended: seen in one held run, whose engine queues and never commits."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import milepost as mp
from milepost.core import codec, messages
from milepost.core import entries as e
from milepost.core.breaker import Answered, Breaker, Failed, Vacated
from milepost.errors import EpochLost
from milepost.runtime import effects
from milepost.runtime.branch import ToolStep
from milepost.runtime.session import Session
from tests.core import samples as s
from tests.runtime.sessions import NOW, STEP, Engine, engine_of, held

RESENT = (s.started(), s.lost(quiet_at=20), s.started(attempt=2, resend=True))
BY = f"run-1 {STEP}"


def raising(error: BaseException | None, **options: Any) -> Any:
    """Return a tool whose code ends like this."""

    async def act(call: mp.Call) -> str:
        call.spent(**options.get("cost", {}))
        call.note("ext-1")
        if error is not None:
            raise error
        return "done"

    return mp.tool(**{"name": "charge", "effect": "keyed", "key_ttl": "1h", "version": "1", **options})(act)


async def attempted(session: Session, tool: Any, number: int = 1, **given: Any) -> list[e.Entry]:
    """Send an attempt whose `started` is durable; return what was recorded of it."""
    no_branch: Any = None
    step = ToolStep(no_branch, tool, tool.arguments.bind((), {}), STEP, s.PATH)
    session.engine.breaker = SETTINGS
    await effects.send(session, step, s.effect(session.state), number, **given)
    return recorded(session)


def recorded(session: Session) -> list[e.Entry]:
    return [codec.decode(body) for append in engine_of(session).appends for body in append.entries]


def tried(session: Session) -> list[Any]:
    return [event for append in engine_of(session).appends for event in append.tried]


SETTINGS = Breaker()


class OnTime(Engine):
    """An engine whose deadlines do not pass."""

    def __init__(self) -> None:
        super().__init__()
        task = SimpleNamespace(uncancel=lambda: 0, cancelling=lambda: 0)
        self.resource = None
        self.deadlines = SimpleNamespace(
            set=lambda seconds: SimpleNamespace(passed=False, task=task, seconds=seconds), drop=lambda _: None
        )


def sent(*entries: e.Entry, tool: Any, **about: Any) -> Session:
    session = held(*(entries or (s.started(),)), tool=tool, **about)
    engine: Any = OnTime()
    engine.sessions = session.engine.sessions
    session.engine = engine
    return session


def seen(session: Session) -> list[tuple[Any, ...]]:
    return [saw[1:] for _, _, saw in session._saw]


def not_sent(why: str, **changes: Any) -> e.EffectFailed:
    facts: dict[str, Any] = {"at": NOW, "step": STEP, "attempt": 1, "why": why, "reason": "not_sent", "final": False}
    return e.EffectFailed(**{**facts, **changes})


class Unreachable(Exception):
    """Ends a tool without saying what it did."""


# ---------------------------------------------------------------- how it ended


async def test_what_returned_is_confirmed_with_all_that_its_code_said() -> None:
    tool = raising(None, cost={"usd": 2})
    session = sent(tool=tool)

    entries = await attempted(session, tool)

    assert entries[:1] == [
        e.EffectConfirmed(
            at=NOW, step=STEP, attempt=1, result=msgspec.Raw(b'"done"'), external="ext-1", spent={"usd": Decimal(2)}
        )
    ]
    assert [type(entry).__name__ for entry in entries[1:]] == ["Overspent"]
    assert tried(session) == [Answered("charge", f"{BY} 1")]
    assert seen(session) == [(1, "returned", b'"done"', "")]


async def test_what_returned_without_a_call_of_its_own_says_nothing_else() -> None:
    @mp.tool(name="charge", effect="keyed", key_ttl="1h", version="1")
    async def plain() -> str:
        return "done"

    session = sent(tool=plain)

    assert await attempted(session, plain) == [
        e.EffectConfirmed(at=NOW, step=STEP, attempt=1, result=msgspec.Raw(b'"done"'))
    ]


async def test_what_returned_something_that_cannot_be_stored_is_unknown_and_over() -> None:
    async def act() -> int:
        return object()  # type: ignore[return-value]

    tool: Any = mp.tool(name="charge", effect="keyed", key_ttl="1h", version="1")(act)
    session = sent(tool=tool)

    (unknown,) = await attempted(session, tool)

    assert isinstance(unknown, e.EffectUnknown)
    assert (unknown.at, unknown.attempt, unknown.quiet_at) == (NOW, 1, NOW)
    assert unknown.why.startswith("it returned what cannot be stored: ")
    assert tried(session) == [Answered("charge", f"{BY} 1")]
    assert seen(session) == [(1, "unknown", b"null", unknown.why)]


@pytest.mark.parametrize(
    ("error", "retry_at"),
    [(mp.NotSent("no route"), NOW + 750), (mp.NotSent("no route", retry_after="9s"), NOW + 9_000)],
)
async def test_what_was_not_sent_is_tried_again_later(error: mp.NotSent, retry_at: int) -> None:
    tool = raising(error, retry=mp.Retry(attempts=3, first="1s"))
    session = sent(tool=tool)

    entries = await attempted(session, tool)

    why = session.engine.why(error)
    assert entries == [not_sent(why, retry_at=retry_at)]
    floor = 0 if error.retry_after is None else 9_000
    assert tried(session) == [Failed("charge", f"{BY} 1", why, SETTINGS, floor, 0.5)]
    assert seen(session) == [(1, "not_sent", b"null", why)]


async def test_what_was_not_sent_at_the_last_try_is_given_up() -> None:
    error = mp.NotSent("no route")
    tool = raising(error, retry=mp.Retry(attempts=1))
    session = sent(tool=tool)

    assert await attempted(session, tool) == [not_sent(session.engine.why(error), final=True)]


async def test_a_refusal_is_final_and_what_it_cost_is_booked() -> None:
    error = mp.Rejected("no")
    tool = raising(error, cost={"usd": 2})
    session = sent(tool=tool)

    entries = await attempted(session, tool)

    why = session.engine.why(error)
    assert entries[:1] == [not_sent(why, reason="rejected", final=True, spent={"usd": Decimal(2)})]
    assert [type(entry).__name__ for entry in entries[1:]] == ["Overspent"]
    assert tried(session) == [Vacated("charge", f"{BY} 1")]
    assert seen(session) == [(1, "rejected", b"null", why)]


@pytest.mark.parametrize(("error", "reason"), [(mp.NotSent("no"), "not_sent"), (mp.Rejected("no"), "rejected")])
async def test_what_a_resend_did_not_do_settles_that_attempt_alone(error: Exception, reason: str) -> None:
    tool = raising(error)
    session = sent(*RESENT, tool=tool)

    entries = await attempted(session, tool, 2)

    why = session.engine.why(error)
    assert entries == [e.AttemptSettled(at=NOW, step=STEP, attempt=2, reason=reason, why=why)]
    assert [type(event) for event in tried(session)] == [Failed if reason == "not_sent" else Vacated]
    assert seen(session) == [(2, reason, b"null", why)]


async def test_what_raised_anything_else_is_unknown_and_over() -> None:
    tool = raising(Unreachable("line broke"))
    session = sent(tool=tool)

    entries = await attempted(session, tool)

    why = "Unreachable: line broke"
    assert entries == [e.EffectUnknown(at=NOW, step=STEP, attempt=1, why=why, quiet_at=NOW)]
    assert tried(session) == [Failed("charge", f"{BY} 1", why, SETTINGS, 0, 0.5)]
    assert seen(session) == [(1, "unknown", b"null", why)]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_what_was_cancelled_in_flight_is_unknown_and_closes_its_branch(*, in_thread: bool) -> None:
    started = asyncio.Event()

    @mp.tool(name="charge", effect="keyed", key_ttl="1h", version="1")
    async def act() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    @mp.tool(name="charge", effect="keyed", key_ttl="1h", version="1")
    def blocking() -> str:
        return ""

    async def hanging(*_: object) -> str:
        return str(await act.fn())

    tool: Any = blocking if in_thread else act
    session = sent(tool=tool)
    engine: Any = session.engine
    engine.in_thread = hanging
    task_of = SimpleNamespace(uncancel=lambda: 0, cancelling=lambda: asyncio.current_task().cancelling())  # type: ignore[union-attr]
    engine.deadlines.set = lambda _: SimpleNamespace(passed=False, task=task_of)
    branch: Any = SimpleNamespace(closed_by=None)
    task = asyncio.create_task(attempted(session, tool, inside=branch))
    await started.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    quiet = None if in_thread else NOW
    why = "it was cancelled while it was in flight"
    assert recorded(session) == [e.EffectUnknown(at=NOW, step=STEP, attempt=1, why=why, quiet_at=quiet)]
    assert (branch.closed_by, session.inflight) == (STEP, 0)
    assert tried(session) == [Vacated("charge", f"{BY} 1")]
    assert seen(session) == ([] if in_thread else [(1, "unknown", b"null", why)])


async def test_what_ran_out_of_time_is_unknown_and_counts_against_its_provider() -> None:
    tool = raising(asyncio.CancelledError(), timeout="1500ms")
    session = sent(tool=tool)
    engine: Any = session.engine
    times: list[float] = []

    def passed(seconds: float) -> Any:
        times.append(seconds)
        return SimpleNamespace(passed=True, task=SimpleNamespace(uncancel=lambda: 0, cancelling=lambda: 0))

    engine.deadlines.set = passed

    entries = await attempted(session, tool)

    why = "no answer within 1.5 s"
    assert entries == [e.EffectUnknown(at=NOW, step=STEP, attempt=1, why=why, quiet_at=NOW)]
    assert [type(event) for event in tried(session)] == [Failed]
    assert times == [1.5]


# ---------------------------------------------------------------- reads that cost


@pytest.mark.parametrize("spends", [True, False])
@pytest.mark.parametrize("error", [Unreachable("line broke"), asyncio.CancelledError()])
async def test_a_read_that_costs_is_tried_again_and_paid_for_by_what_it_spent_or_at_worst(
    error: BaseException, *, spends: bool
) -> None:
    tool = raising(error, effect="read", key_ttl=None, cost={"usd": 2}, retry=mp.Retry(attempts=2, first="1s"))
    session = sent(s.started(effect="read", reserve=s.usd(5)), e.Widened(at=1, by="ann", budget=s.usd(9)), tool=tool)
    engine: Any = session.engine
    engine.deadlines.set = lambda _: SimpleNamespace(
        passed=isinstance(error, asyncio.CancelledError),
        task=SimpleNamespace(uncancel=lambda: 0, cancelling=lambda: 0),
    )
    if not spends:

        async def silent() -> str:
            raise error

        tool = mp.tool(
            name="charge", effect="read", version="1", cost={"usd": 2}, retry=mp.Retry(attempts=2, first="1s")
        )(silent)

    entries = await attempted(session, tool)

    why = "Unreachable: line broke" if isinstance(error, Unreachable) else "TimedOut: no answer within 60 s"
    spent = s.usd(2) if spends else s.usd(5)
    failed = entries[0]
    assert isinstance(failed, e.EffectFailed)
    assert (failed.reason, failed.final, failed.retry_at, failed.spent) == ("raised", False, NOW + 750, spent)
    assert failed.why.startswith(why.partition(" within")[0])
    assert [type(event) for event in tried(session)] == [Failed]


async def test_a_read_that_costs_and_returned_what_cannot_be_stored_has_failed_and_is_paid_for() -> None:
    async def act(call: mp.Call) -> int:
        call.spent(usd=2)
        return object()  # type: ignore[return-value]

    tool: Any = mp.tool(name="charge", effect="read", version="1", cost={"usd": 5})(act)
    session = sent(e.Widened(at=1, by="ann", budget=s.usd(9)), s.started(effect="read", reserve=s.usd(5)), tool=tool)

    (failed,) = await attempted(session, tool)

    assert isinstance(failed, e.EffectFailed)
    assert (failed.final, failed.spent) == (True, s.usd(2))
    assert tried(session) == [Answered("charge", f"{BY} 1")]


async def test_a_read_that_costs_is_given_up_after_its_last_try() -> None:
    tool = raising(Unreachable("x"), effect="read", key_ttl=None, cost={"usd": 2}, retry=mp.Retry(attempts=1))
    session = sent(s.started(effect="read", reserve=s.usd(5)), tool=tool)

    (failed,) = await attempted(session, tool)

    assert isinstance(failed, e.EffectFailed)
    assert (failed.final, failed.retry_at) == (True, None)


# ---------------------------------------------------------------- held back, or lost


def halt(engine: Any) -> None:
    engine.halted = True


def lapse(engine: Any) -> None:
    engine.lapses = 1


def expire(engine: Any) -> None:
    engine.lease_until = NOW


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (halt, "everything was stopped before it was sent"),
        (lapse, "the lease had lapsed before it was sent"),
        (expire, "the lease had lapsed before it was sent"),
    ],
)
async def test_what_must_not_leave_any_more_is_not_sent_and_may_go_again_at_once(
    happens: Callable[[Any], None], why: str
) -> None:
    tool = raising(None)
    session = sent(tool=tool)
    happens(session.engine)

    entries = await attempted(session, tool, lapses=0)

    assert entries == [not_sent(why, retry_at=NOW)]
    assert tried(session) == [Vacated("charge", f"{BY} 1")]
    assert seen(session) == [(1, "not_sent", b"null", why)]


async def test_a_lease_that_has_not_lapsed_since_holds_nothing_back() -> None:
    tool = raising(None)
    session = sent(tool=tool)
    lapse(session.engine)

    assert [type(entry) for entry in await attempted(session, tool, lapses=1)] == [e.EffectConfirmed]
    again = sent(tool=tool)
    lapse(again.engine)
    assert [type(entry) for entry in await attempted(again, tool)] == [e.EffectConfirmed]


@pytest.mark.parametrize(
    ("entries", "number", "sends"),
    [
        ((s.started(),), 1, True),
        (RESENT, 2, False),
        ((s.started(), s.failed(), s.started(attempt=2)), 2, True),
    ],
)
async def test_a_resend_whose_key_may_have_expired_is_not_sent(
    entries: tuple[e.Entry, ...], number: int, *, sends: bool
) -> None:
    tool = raising(None, key_ttl="6s")
    session = sent(*entries, tool=tool)

    (entry,) = await attempted(session, tool, number)

    if sends:
        assert isinstance(entry, e.EffectConfirmed)
    else:
        why = "its key may have expired by now"
        assert entry == e.AttemptSettled(at=NOW, step=STEP, attempt=2, reason="not_sent", why=why)


ENDS: list[tuple[BaseException | None, tuple[str, bytes, str] | None]] = [
    (None, ("returned", b'"done"', "")),
    (mp.NotSent("no route"), ("not_sent", b"null", "no route")),
    (mp.Rejected("no"), ("rejected", b"null", "no")),
    (Unreachable("x"), ("unknown", b"null", "Unreachable: x")),
]


@pytest.mark.parametrize(("error", "evidence"), ENDS)
async def test_what_ends_after_its_run_was_lost_goes_to_the_inbox_alone(
    error: BaseException | None, evidence: tuple[str, bytes, str]
) -> None:
    session: Session | None = None

    async def act() -> str:
        assert session is not None
        session.drop(EpochLost(s.RUN, 1))
        if error is not None:
            raise error
        return "done"

    tool: Any = mp.tool(name="charge", effect="keyed", key_ttl="1h", version="1")(act)
    session = sent(tool=tool)

    assert await attempted(session, tool) == []

    (post,) = engine_of(session).posts
    message = messages.decode(post.body)
    assert isinstance(message, messages.Evidence)
    assert (message.saw, bytes(message.value), message.attempt) == (*evidence[:2], 1)
    assert evidence[2] in message.why


async def test_what_was_lost_before_it_was_sent_is_not_sent() -> None:
    tool = raising(None)
    session = sent(tool=tool)
    session.drop(error := EpochLost(s.RUN, 1))

    with pytest.raises(EpochLost) as raised:
        await attempted(session, tool)

    (post,) = engine_of(session).posts
    message = messages.decode(post.body)
    assert isinstance(message, messages.Evidence)
    assert (raised.value, message.saw, message.attempt) == (error, "not_sent", 1)
    assert message.why == "the run was lost before it was sent"


# ---------------------------------------------------------------- what comes late


@pytest.mark.parametrize(
    ("entries", "evidence", "kinds"),
    [
        ((s.started(), s.lost(), s.started(attempt=2, resend=True)), [], [e.EffectConfirmed]),
        (
            (s.started(), s.failed(), s.started(attempt=2)),
            ["attempt 1 returned after it was settled as not_sent"],
            [],
        ),
        ((s.started(), s.confirmed()), [], []),
        ((s.started(effect="read"), s.failed(reason="raised"), s.started(attempt=2)), [], [e.EffectConfirmed]),
    ],
)
def test_what_returns_after_it_was_settled_otherwise_contradicts_the_record(
    entries: tuple[e.Entry, ...], evidence: list[str], kinds: list[type[e.Entry]]
) -> None:
    session = held(*entries)
    told: list[str] = []
    engine: Any = session.engine
    engine.contradicted = lambda _, __, said: told.append(said)

    effects.returned(session, raising(None), s.effect(session.state), 1, "late", None)

    assert (told, [type(entry) for entry in recorded(session)]) == (evidence, kinds)


def test_what_is_settled_already_is_not_lost_any_more() -> None:
    session = held(s.started(), s.confirmed())

    effects.lose(session, s.effect(session.state), 1, "x", quiet=True)

    assert recorded(session) == []


def test_what_is_unknown_already_may_be_over_by_now() -> None:
    session = held(s.started(), s.lost())

    effects.lose(session, s.effect(session.state), 1, "x", quiet=True)

    assert recorded(session) == [e.EffectUnknown(at=NOW, step=STEP, attempt=1, why="x", quiet_at=NOW)]


def test_a_thread_that_still_runs_leaves_no_evidence_that_it_is_over() -> None:
    session = held(s.started())
    session.drop(EpochLost(s.RUN, 1))

    effects.lose(session, s.effect(session.state), 1, "x", quiet=False)
    assert engine_of(session).posts == []

    effects.lose(session, s.effect(session.state), 1, "x", quiet=True)
    assert len(engine_of(session).posts) == 1

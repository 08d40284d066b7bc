"""One try of a tool's code: what it is given, how its time ends it, its secrets, and when it is made again."""

import asyncio
import contextlib
import hmac
from datetime import timedelta
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import milepost as mp
from milepost.core import codec, tracing
from milepost.core import entries as e
from milepost.core.duration import from_ms
from milepost.definitions.call import CURRENT, CallScope
from milepost.errors import NotSent
from milepost.runtime import attempts, gates
from milepost.runtime.branch import ToolStep
from milepost.runtime.session import Session
from milepost.runtime.threads import Astray
from tests.core import samples as s
from tests.runtime.sessions import NOW, STEP, engine_of, held


def step_of(tool: Any) -> Any:
    no_branch: Any = None
    return ToolStep(no_branch, tool, tool.arguments.bind(("o-1",), {}), STEP, s.PATH)


class Deadlines:
    """Timers that ring when a test says so."""

    def __init__(self) -> None:
        self.set_for: list[float] = []
        self.dropped: list[Any] = []
        self.one: Any = None

    def set(self, seconds: float) -> Any:
        self.set_for.append(seconds)
        self.one = SimpleNamespace(passed=False, task=asyncio.current_task())
        return self.one

    def drop(self, deadline: Any) -> None:
        self.dropped.append(deadline)

    def ring(self) -> None:
        self.one.passed = True
        self.one.task.cancel()


def trying(*entries: e.Entry) -> tuple[Session, Deadlines]:
    session = held(*(entries or (s.started(),)))
    engine: Any = session.engine
    engine.deadlines = deadlines = Deadlines()
    engine.resource = lambda kind: f"the {kind.__name__}"
    return session, deadlines


@mp.tool(name="charge", effect="keyed", key_ttl="1h", version="1", timeout="1500ms")
async def seen(call: mp.Call, order: str) -> Any:
    return call, order, CURRENT.get()


@mp.tool(name="charge", effect="keyed", key_ttl="1h", version="1")
async def plain(order: str) -> str:
    return order


@mp.tool(name="charge", effect="keyed", key_ttl="1h", version="1")
def blocking(order: str) -> Any:
    return order


@mp.tool(name="charge", effect="keyed", key_ttl="1h", version="1")
def blocking_seen(call: mp.Call, order: str) -> Any:
    return call, order


# ---------------------------------------------------------------- what it is given


def test_a_call_is_made_for_a_tool_that_takes_it_or_whose_late_answer_needs_its_key() -> None:
    session, _ = trying()

    assert attempts.call_for(session, step_of(plain), "k-1", 2) is None
    assert attempts.call_for(session, step_of(blocking), "", 2) is None
    for tool in (seen, blocking):
        call = attempts.call_for(session, step_of(tool), "k-1", 2)
        assert call is not None
        assert (call.key, call.attempt, call.deadline) == ("k-1", 2, from_ms(NOW + tool.timeout_ms))
        assert str(call.resource(int)) == "the int"
        span = tracing.attempt_span(s.RUN, 0, STEP, 2)
        assert call.traceparent == tracing.traceparent(tracing.trace_of(s.RUN), span)
    assert attempts.call_for(session, step_of(seen), "", 2) is not None


async def test_a_tool_s_code_is_run_under_its_own_name_and_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    session, deadlines = trying()
    engine = engine_of(session)
    flying: list[int] = []
    monkeypatch.setattr(session, "flying", flying.append)
    call = attempts.call_for(session, step_of(seen), "k-1", 1)
    before: Any = CallScope("who calls")
    CURRENT.set(before)

    given, order, scope = await attempts.attempt_call(session, step_of(seen), call)

    assert (given, order) == (call, "o-1")
    assert isinstance(scope, CallScope)
    assert (scope.tool_name, CURRENT.get()) == ("charge", before)
    assert (deadlines.set_for, deadlines.dropped, flying) == ([1.5], [deadlines.one], [1, -1])
    assert await attempts.attempt_call(session, step_of(plain), None) == "o-1"
    given_on: list[Any] = []

    async def in_thread(*given: Any) -> Any:
        given_on.append(given[:3])
        return given[3]()

    engine.in_thread = in_thread  # type: ignore[attr-defined]
    step = step_of(blocking)
    assert await attempts.attempt_call(session, step, call) == "o-1"
    assert given_on == [(session, step, call)]
    assert await attempts.attempt_call(session, step_of(blocking_seen), call) == (call, "o-1")


def hanging(ends: BaseException | None = None) -> tuple[Any, asyncio.Event]:
    """Return a tool that waits, and what says that it has begun. Cancelled it raises `ends`, or says nothing of it."""
    begun = asyncio.Event()

    @mp.tool(name="charge", effect="keyed", key_ttl="1h", version="1", timeout="1500ms")
    async def act(order: str) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if ends is not None:
                raise ends from None
        return "kept"

    return act, begun


async def ended(
    ends: BaseException | None, *, rings: bool, cancelled: bool
) -> tuple[BaseException | str, int, Deadlines]:
    """Let a try end by its time, by who cancels it, or both; return how, and how often its task is still cancelled."""
    session, deadlines = trying()
    tool, begun = hanging(ends)
    left = 0

    async def tries() -> BaseException | str:
        nonlocal left
        try:
            return str(await attempts.attempt_call(session, step_of(tool), None))
        except BaseException as error:  # noqa: BLE001  what it ended with is what is asked
            return error
        finally:
            left = asyncio.current_task().cancelling()  # type: ignore[union-attr]

    task = asyncio.create_task(tries())
    await begun.wait()
    if rings:
        deadlines.ring()
    if cancelled:
        task.cancel()
    error = await task
    assert (deadlines.dropped, session.inflight) == ([deadlines.one], 0)
    return error, left, deadlines


async def test_time_that_ends_is_said_and_leaves_nothing_of_it() -> None:
    error, left, _ = await ended(asyncio.CancelledError(), rings=True, cancelled=False)

    assert (type(error), str(error), left) == (attempts.TimedOut, "no answer within 1.5 s", 0)


async def test_a_tool_that_keeps_the_end_of_its_time_to_itself_has_returned() -> None:
    error, left, _ = await ended(None, rings=True, cancelled=False)

    assert (error, left) == ("kept", 0)


@pytest.mark.parametrize("rings", [False, True])
async def test_who_is_cancelled_by_somebody_else_is_cancelled_whether_its_time_ended_or_not(*, rings: bool) -> None:
    error, left, _ = await ended(asyncio.CancelledError(), rings=rings, cancelled=True)

    assert (type(error), left) == (asyncio.CancelledError, 1)


async def test_a_cancellation_that_nobody_asked_for_is_astray() -> None:
    session, _ = trying()

    @mp.tool(name="charge", effect="keyed", key_ttl="1h", version="1")
    async def act(order: str) -> str:
        raise asyncio.CancelledError

    with pytest.raises(Astray, match="it raised CancelledError, although nobody cancelled it"):
        await attempts.attempt_call(session, step_of(act), None)


async def test_a_try_inside_a_task_that_was_cancelled_before_ends_by_its_own_time_alone() -> None:
    session, deadlines = trying()
    tool, begun = hanging(asyncio.CancelledError())

    async def tries() -> BaseException | None:
        with contextlib.suppress(asyncio.CancelledError):  # it goes on, and stays a task that somebody has cancelled
            await asyncio.Event().wait()
        try:
            await attempts.attempt_call(session, step_of(tool), None)
        except BaseException as error:  # noqa: BLE001  what it ended with is what is asked
            return error
        return None

    task = asyncio.create_task(tries())
    await asyncio.sleep(0)
    task.cancel()
    await begun.wait()
    deadlines.ring()

    assert isinstance(await task, attempts.TimedOut)


# ---------------------------------------------------------------- its secrets


def with_secret(session: Session, value: str) -> Any:
    engine: Any = session.engine
    asked: list[str] = []

    def secrets(name: str) -> str:
        asked.append(name)
        return value

    engine.secrets = secrets
    engine.before_bytes = lambda of, entry: of.put(entry)
    call = attempts.call_for(session, step_of(seen), "k-1", 1)
    assert call is not None
    assert call.secret("stripe") == value
    assert asked == ["stripe"]
    return call


def test_a_secret_s_mark_is_recorded_once_before_a_byte_leaves() -> None:
    session, _ = trying()

    with_secret(session, "s-1").secret("stripe")

    mark = hmac.new(b"store", b"s-1", sha256).hexdigest()[:16]
    (append,) = engine_of(session).appends
    assert [codec.decode(body) for body in append.entries] == [
        e.CredentialUsed(at=NOW, step=STEP, name="stripe", fingerprint=mark)
    ]


def test_a_resend_with_another_secret_is_not_sent() -> None:
    session, _ = trying()
    with_secret(session, "s-1")

    with pytest.raises(gates.CredentialChanged, match="secret 'stripe' changed since the first attempt"):
        with_secret(session, "s-2")


def test_a_free_read_s_secret_leaves_no_mark() -> None:
    session, _ = trying(e.ReadReturned(at=5, step=STEP, path=s.PATH, tool="charge", digest="d", result=s.NULL))

    with_secret(session, "s-1")

    assert engine_of(session).appends == []


# ---------------------------------------------------------------- when it is made again


@pytest.mark.parametrize(
    ("after", "delay"), [(None, 0), ("2s", 2_000), ("soon", 0), (object(), 0), (timedelta(seconds=1.5), 1_500)]
)
def test_a_provider_s_delay_is_kept_where_it_can_be_read(after: Any, delay: int) -> None:
    error = NotSent("no")
    error.retry_after = after

    assert gates.asked_delay(error) == delay


def response(status: int, **headers: str) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "http://127.0.0.1/")
    return httpx.HTTPStatusError("x", request=request, response=httpx.Response(status, headers=headers))


@pytest.mark.parametrize(
    ("error", "attempt", "delay"),
    [
        (RuntimeError("x"), 1, 750),
        (RuntimeError("x"), 2, 1_500),
        (RuntimeError("x"), 3, None),
        (NotSent("x", retry_after="9s"), 1, 9_000),
        (NotSent("x"), 2, 1_500),
        (response(401), 1, None),
        (response(404), 1, 750),
        (response(429, **{"retry-after": "9"}), 1, 9_000),
    ],
)
def test_a_read_that_failed_is_tried_again_as_its_error_and_its_tool_say(
    error: Exception, attempt: int, delay: int | None
) -> None:
    session, _ = trying()
    tool = mp.tool(name="look", effect="read", retry=mp.Retry(attempts=3, first="1s"))(plain.fn)

    assert gates.retry_delay(session, tool, attempt, error) == delay


def test_a_read_may_be_tried_again_at_once() -> None:
    session, _ = trying()
    engine_of(session).clock.chance = lambda: 0.0
    tool = mp.tool(name="look", effect="read", retry=mp.Retry(first="1ms"))(plain.fn)

    assert gates.retry_delay(session, tool, 1, RuntimeError("x")) == 0

"""A secret that a tool was given is found nowhere: not in the file, its log, what is logged, nor in an error."""

import base64
import logging
from collections.abc import Callable
from urllib.parse import quote

import pydantic
import pytest

import milepost as mp
from tests.runtime.stage import Stage, parked, status_of

CANARY = "canary/4f7c+91=zz9"
FORMS = (
    CANARY.encode(),
    quote(CANARY, safe="").encode(),
    base64.b64encode(CANARY.encode())[:-4],
    CANARY.encode().hex().encode(),
    b"hunter2",
)


def leak(secret: str) -> str:
    """Return what an error of a careless library says."""
    encoded = base64.b64encode(b"user:" + secret.encode()).decode()
    return (
        f"GET https://me:hunter2@bank.example/?q={quote(secret, safe='')}&api_key=hunter2 with {secret!r}, "
        f"Authorization: Basic {encoded}, {secret.encode().hex()}"
    )


def found(data: bytes) -> list[bytes]:
    return [form for form in FORMS if form in data]


Raise = Callable[[str], Exception]
KINDS: dict[str, Raise] = {
    "unknown": lambda secret: RuntimeError(leak(secret)),
    "not sent": lambda secret: mp.NotSent(leak(secret)),
    "rejected": lambda secret: mp.Rejected(leak(secret)),
}


def _caused(secret: str) -> Exception:
    error = ValueError(leak(secret))
    error.__cause__ = KeyError(secret)
    error.add_note(leak(secret))
    return error


def provide(name: str) -> str:
    """Give every name the same secret."""
    return CANARY


def _quiet(stage: Stage, caplog: pytest.LogCaptureFixture, *errors: BaseException) -> None:
    assert found(stage.bytes_on_disk()) == []
    assert found(caplog.text.encode()) == []
    for error in errors:
        assert found(str(error).encode()) == []


KINDS["with its cause"] = _caused


async def _end(handle: mp.Handle[str]) -> BaseException:
    try:
        await handle.result(timeout="30s")
    except mp.MilepostError as error:
        return error
    raise AssertionError("it has a result")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("effect", ["read", "irreversible"])
async def test_what_a_tool_raises_with_a_secret_in_it_is_recorded_and_logged_without_it(
    stage: Stage, caplog: pytest.LogCaptureFixture, kind: str, effect: str
) -> None:
    caplog.set_level(logging.DEBUG)
    raised: list[str] = []

    @mp.tool(effect=effect, retry=mp.Retry(1), name="leaking")  # type: ignore[call-overload,untyped-decorator]
    async def leaking(call: mp.Call) -> str:
        raise KINDS[kind](call.secret("bank"))

    @mp.workflow(version="1", name="careless", tools=[leaking])
    async def careless(run: mp.Run) -> str:
        try:
            return str(await leaking())
        except mp.StepFailed as failed:
            raised.append(str(failed))
            raise RuntimeError(f"it failed: {failed}") from failed

    async with stage.app(careless, secrets=provide) as app:
        handle = await app.start(careless)
        waits = await handle_rests(app, handle)
        _quiet(stage, caplog, *waits)
        recorded = stage.bytes_on_disk()
    assert b"[secret bank]" in recorded
    assert b"[masked]@bank.example" in recorded
    assert found("".join(raised).encode()) == []
    _quiet(stage, caplog)


async def handle_rests(app: mp.App, handle: mp.Handle[str]) -> list[BaseException]:
    """Wait until a run has ended, or waits for a person; return what asking for its result raises."""
    view = await status_of(handle, "failed", "blocked", "parked", "done")
    return [] if view.status == "parked" else [await _end(handle)]


async def test_a_segment_a_reconciler_and_an_event_leak_nothing_either(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    kept: list[str] = []

    @mp.tool(effect="queryable", visible_within="1s", name="asking")
    async def asking(call: mp.Call) -> str:
        kept.append(call.secret("bank"))
        raise RuntimeError(leak(kept[0]))

    @asking.reconcile
    async def _found(call: mp.Call) -> mp.Finding[str]:
        return mp.rejected(leak(kept[0]))

    @mp.workflow(version="1", name="chatty", tools=[asking])
    async def chatty(run: mp.Run) -> str:
        try:
            return str(await asking())
        except mp.StepFailed:
            run.emit({"said": leak(kept[0]), "deep": [kept[0]]})
            raise ValueError(leak(kept[0])) from None

    async with stage.app(chatty, secrets=provide) as app:
        error = await _end(await app.start(chatty))
        assert b"[secret bank]" in stage.bytes_on_disk()
    _quiet(stage, caplog, error)


async def test_a_workflow_that_ends_its_run_with_a_secret_in_the_reason_says_it_without(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[str] = []

    @mp.tool(effect="read")
    async def look(call: mp.Call) -> str:
        kept.append(call.secret("bank"))
        return "seen"

    @mp.workflow(version="1", name="ending", tools=[look])
    async def ending(run: mp.Run) -> str:
        await look()
        raise mp.StepFailed("ending/look#1", leak(kept[0]))

    async with stage.app(ending, secrets=provide) as app:
        error = await _end(await app.start(ending))
    _quiet(stage, caplog, error)


async def test_a_secret_is_known_from_the_moment_it_is_read_also_in_a_thread(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    @mp.tool(effect="keyed", key_ttl="1h", retry=mp.Retry(1))
    def leaking(call: mp.Call) -> str:
        raise mp.Rejected(leak(call.secret("bank")))

    @mp.workflow(version="1", name="threaded", tools=[leaking])
    async def threaded(run: mp.Run) -> str:
        return str(await leaking())

    async with stage.app(threaded, secrets=provide) as app:
        error = await _end(await app.start(threaded))
    _quiet(stage, caplog, error)


async def test_a_result_that_cannot_be_stored_leaks_nothing_when_it_says_why(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    class Receipt(pydantic.BaseModel):
        token: str

        @pydantic.field_serializer("token")
        def _never(self, value: str) -> str:
            raise ValueError(leak(value))

    @mp.tool
    async def pay(call: mp.Call) -> Receipt:
        return Receipt(token=call.secret("bank"))

    @mp.workflow(version="1", name="receipts", tools=[pay])
    async def receipts(run: mp.Run) -> None:
        await pay()

    async with stage.app(receipts, secrets=provide) as app:
        handle = await app.start(receipts)
        await parked(handle, "unknown")
        assert b"it returned what cannot be stored" in stage.bytes_on_disk()
        assert b"[secret bank]" in stage.bytes_on_disk()
    _quiet(stage, caplog)

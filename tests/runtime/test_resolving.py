"""A person settles what nothing automatic can, and late evidence is kept whatever was said before."""

import threading

import pytest

import milepost as mp
from tests.runtime.stage import Stage, has_entry, names, outcome, parked, status_of


class Outside:
    """A mail server that drops the line on some mails, and knows what it has taken."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.drops = 1


@pytest.fixture
def outside() -> Outside:
    return Outside()


def mailing(outside: Outside, **options: object) -> mp.Workflow[str, str]:
    @mp.tool(**options)  # type: ignore[call-overload, untyped-decorator]
    async def mail(call: mp.Call, to: str) -> str:
        outside.taken.append(f"{to} {call.attempt}")
        if outside.drops:
            outside.drops -= 1
            raise RuntimeError("line broke")
        return f"sent {to}"

    @mp.workflow(version="1", name="flow", tools=[mail])
    async def flow(run: mp.Run, to: str) -> str:
        return str(await mail(to))

    return flow


async def test_an_irreversible_effect_that_is_unknown_goes_to_a_person_at_once(stage: Stage, outside: Outside) -> None:
    """Requirement 26. Requirement 39. Requirement 46. It is the default class."""
    flow = mailing(outside)
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        waiting = await parked(handle, "unknown")
        assert waiting.until is None
        assert f"milepost resolve {handle.id} flow/mail#1 --happened VALUE | --did-not-happen" in waiting.ask
        assert (await app.inspect.open_effects())[0].person == "it can be neither repeated nor looked up"
    async with stage.app(flow) as app:
        await parked(app.handle(handle.id), "unknown")
        assert outside.taken == ["ann 1"]


async def test_resolved_as_happened_the_segment_gets_the_value_that_the_person_gave(
    stage: Stage, outside: Outside
) -> None:
    flow = mailing(outside)
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "unknown")
        await app.resolve(handle.id, "flow/mail#1", mp.happened("seen in the outbox"), by="bo", why="looked")
        assert await handle.result(timeout="30s") == "seen in the outbox"
        confirmed = [line.fields for line in await app.inspect.journal(handle.id) if line.name == "effect_confirmed"]
        assert (confirmed[0]["by"], confirmed[0]["why"]) == ("person bo", "looked")
        assert outside.taken == ["ann 1"]


async def test_resolved_as_did_not_happen_it_is_tried_again(stage: Stage, outside: Outside) -> None:
    """On a person's word only: the same effect, its next attempt."""
    flow = mailing(outside)
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "unknown")
        await app.resolve(handle.id, "flow/mail#1", mp.did_not_happen(), by="bo", why="not in the outbox")
        assert await handle.result(timeout="30s") == "sent ann"
        assert outside.taken == ["ann 1", "ann 2"]


async def test_resolved_as_rejected_it_has_failed_for_good(stage: Stage, outside: Outside) -> None:
    """Requirement 30."""
    flow = mailing(outside)
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "unknown")
        await app.resolve(handle.id, "flow/mail#1", mp.rejected("they refused it"), by="bo", why="bounced")
        with pytest.raises(mp.RunFailed, match="bounced"):
            await handle.result(timeout="30s")
        assert outside.taken == ["ann 1"]


async def test_only_what_is_unknown_can_be_resolved(stage: Stage, outside: Outside) -> None:
    flow = mailing(outside)
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "unknown")
        with pytest.raises(mp.UnknownStep):
            await app.resolve(handle.id, "flow/mail#2", mp.happened("x"), by="bo", why="")
        with pytest.raises(mp.UnknownStep, match="settles nothing"):
            await app.resolve(handle.id, "flow/mail#1", mp.still_unknown(), by="bo", why="")
        with pytest.raises(mp.UnknownRun):
            await app.resolve("nobody", "flow/mail#1", mp.happened("x"), by="bo", why="")
        await app.resolve(handle.id, "flow/mail#1", mp.happened("x"), by="bo", why="")
        await handle.result(timeout="30s")
        with pytest.raises(mp.UnknownStep):
            await app.resolve(handle.id, "flow/mail#1", mp.happened("y"), by="bo", why="")


async def test_a_value_of_another_type_does_not_settle_the_effect(stage: Stage, outside: Outside) -> None:
    flow = mailing(outside)
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "unknown")
        await app.resolve(handle.id, "flow/mail#1", mp.happened({"not": "text"}), by="bo", why="typed it wrong")
        await has_entry(app, handle.id, "message_refused")
        await parked(handle, "unknown")
        await app.resolve(handle.id, "flow/mail#1", mp.happened("text"), by="bo", why="typed it right")
        assert await handle.result(timeout="30s") == "text"


async def test_a_killed_runs_unknown_effect_can_be_resolved(stage: Stage, outside: Outside) -> None:
    flow = mailing(outside)
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "unknown")
        await app.kill(handle.id, why="enough")
        assert len(await app.inspect.open_effects()) == 1
        await app.resolve(handle.id, "flow/mail#1", mp.happened("sent"), by="bo", why="looked")
        await has_entry(app, handle.id, "effect_confirmed")
        assert await app.inspect.open_effects() == []
        assert (await handle.status()).status == "killed"


def late_mailer(outside: Outside, go_on: threading.Event) -> mp.Workflow[None, str]:
    """Return a workflow whose tool runs in a thread past its timeout, and returns when it is let go."""

    @mp.tool(timeout="100ms")
    def mail(to: str) -> str:
        outside.taken.append(to)
        go_on.wait(60)
        return f"sent {to}"

    flow = mp.Workflow("flow", version="1", input=type(None), result=str, tools=[mail])

    @flow.segment
    async def first(run: mp.Run, _: None) -> mp.Next[str]:
        try:
            got = await mail("ann")
        except mp.StepFailed as failed:
            got = failed.why
        await run.receive("go", int)
        return mp.done(got)

    return flow


async def test_what_a_thread_returns_after_its_timeout_settles_the_unknown_effect(
    stage: Stage, outside: Outside
) -> None:
    go_on = threading.Event()
    flow = late_mailer(outside, go_on)
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "unknown")
        go_on.set()
        await parked(handle, "signal")
        assert await outcome(app, handle.id, "first/mail#1") == "confirmed"
        await app.send(handle.id, "go", 1)
        assert await handle.result(timeout="30s") == "sent ann"


async def test_evidence_of_success_after_a_final_failure_blocks_the_run_and_holds_the_tool(
    stage: Stage, outside: Outside
) -> None:
    """Requirement 39. A terminal outcome is written once; what contradicts it stands beside it."""
    go_on = threading.Event()
    flow = late_mailer(outside, go_on)
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "unknown")
        await app.resolve(handle.id, "first/mail#1", mp.rejected("bounced"), by="bo", why="bounced")
        await parked(handle, "signal")
        go_on.set()
        await status_of(handle, "blocked")
        seen = await names(app, handle.id)
        assert "contradicted" in seen
        assert await outcome(app, handle.id, "first/mail#1") == "failed"
        assert [switch.scope for switch in await app.inspect.switches()] == ["tool:mail"]
        outside.taken.clear()
        other = await app.start(flow)
        await parked(other, "person")
        assert outside.taken == []
        await app.cancel(other.id, why="not needed")
        await app.send(handle.id, "go", 1)
        with pytest.raises(mp.RunBlocked):
            await handle.result(timeout="30s")
        await app.resolve(handle.id, "first/mail#1", mp.happened("sent ann"), by="bo", why="told the customer")
        await status_of(handle, "done")
        assert await app.inspect.switches() == []


async def test_evidence_of_a_run_that_another_app_took_is_kept_and_used(stage: Stage, outside: Outside) -> None:
    """Requirement 66. A fenced worker cannot move the state, and what it saw is not lost."""
    go_on = threading.Event()
    flow = late_mailer(outside, go_on)
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "unknown")  # released: whoever claims it next raises the epoch
        async with stage.app(flow) as other:
            await other.send(handle.id, "nothing", 1)
            await has_entry(other, handle.id, "signal_sent")
            go_on.set()
            await has_entry(other, handle.id, "effect_confirmed")
        confirmed = [line.fields for line in await app.inspect.journal(handle.id) if line.name == "effect_confirmed"]
        assert confirmed[0]["by"] == "evidence"
        assert outside.taken == ["ann"]

"""Attached runs: the host decides what and when, the record says what has been done."""

import asyncio

import pytest

import milepost as mp
from tests.runtime.stage import Stage, has_entry, names, status_of


class Outside:
    def __init__(self) -> None:
        self.sent: list[str] = []


@pytest.fixture
def outside() -> Outside:
    return Outside()


def tools_of(outside: Outside) -> dict[str, mp.Tool[[str], str]]:
    @mp.tool(effect="keyed", key_ttl="1h")
    async def charge(order: str) -> str:
        outside.sent.append(f"charge {order}")
        return f"receipt {order}"

    @mp.tool
    async def mail(to: str) -> str:
        outside.sent.append(f"mail {to}")
        if to == "lost":
            raise RuntimeError("line broke")
        if to == "nobody":
            raise mp.Rejected("no such address")
        return f"sent {to}"

    @mp.tool(effect="keyed", key_ttl="1h", repeatable=True)
    async def ping(to: str) -> str:
        outside.sent.append(f"ping {to}")
        return f"pong {to}"

    @mp.tool(effect="read")
    async def look(what: str) -> str:
        outside.sent.append(f"look {what}")
        return f"seen {what}"

    @mp.tool(approval=True)
    async def publish(text: str) -> str:
        outside.sent.append(f"publish {text}")
        return "up"

    return {"charge": charge, "mail": mail, "ping": ping, "look": look, "publish": publish}


async def test_an_attempt_is_confirmed_and_the_same_id_gives_the_same_outcome(stage: Stage, outside: Outside) -> None:
    """Requirement 59. Requirement 51. Over a restart of the host."""
    tools = tools_of(outside)
    app = mp.App(stage.url, tools=list(tools.values()))
    for _ in range(3):
        async with app.attach(key="thread-7") as run:
            assert await run.attempt("call_1", tools["charge"], "o-1") == mp.Confirmed("receipt o-1")
            assert await run.attempt("call_1", tools["charge"], "o-1") == mp.Confirmed("receipt o-1")
            assert await run.call("call_2", tools["look"], "x") == "seen x"
    assert outside.sent == ["charge o-1", "look x"]


async def test_a_failed_attempt_is_failed_and_stays_so(stage: Stage, outside: Outside) -> None:
    tools = tools_of(outside)
    app = mp.App(stage.url, tools=list(tools.values()))
    for _ in range(2):
        async with app.attach(key="thread-7") as run:
            assert await run.attempt("call_1", tools["mail"], "nobody") == mp.Failed("no such address")
            with pytest.raises(mp.StepFailed, match="no such address") as failed:
                await run.call("call_1", tools["mail"], "nobody")
            assert failed.value.path == "@call_1"
    assert outside.sent == ["mail nobody"]


async def test_what_must_wait_is_returned_by_attempt_and_raised_by_call(stage: Stage, outside: Outside) -> None:
    """Requirement 46. It never looks like a failure to the host."""
    tools = tools_of(outside)
    app = mp.App(stage.url, tools=list(tools.values()))
    async with app.attach(key="thread-7") as run:
        waiting = await run.attempt("call_1", tools["mail"], "lost")
        assert isinstance(waiting, mp.Waiting)
        assert waiting.reason == "unknown"
        assert f"milepost resolve {run.id}" in waiting.ask
        with pytest.raises(mp.Parked) as parked:
            await run.call("call_1", tools["mail"], "lost")
        assert parked.value.waiting.reason == "unknown"
        assert await run.attempt("call_2", tools["charge"], "o-1") == mp.Confirmed("receipt o-1")
        await app.resolve(run.id, "@call_1", mp.happened("sent lost"), by="bo", why="looked")
    async with app.attach(key="thread-7") as run:
        assert await run.attempt("call_1", tools["mail"], "lost") == mp.Confirmed("sent lost")
    assert outside.sent == ["mail lost", "charge o-1"]


async def test_an_approval_is_waited_for_across_attachments(stage: Stage, outside: Outside) -> None:
    tools = tools_of(outside)
    app = mp.App(stage.url, tools=list(tools.values()))
    async with app.attach(key="thread-7") as run:
        waiting = await run.attempt("call_1", tools["publish"], "news")
        assert isinstance(waiting, mp.Waiting)
        assert waiting.reason == "approval"
        await app.approve((await app.inspect.approvals())[0].id, by="ann")
    async with app.attach(key="thread-7") as run:
        assert await run.attempt("call_1", tools["publish"], "news") == mp.Confirmed("up")
    assert outside.sent == ["publish news"]


async def test_a_new_id_with_equal_arguments_parks_unless_the_tool_is_repeatable(
    stage: Stage, outside: Outside
) -> None:
    """Requirement 47. The host has probably forgotten what it did."""
    tools = tools_of(outside)
    app = mp.App(stage.url, tools=list(tools.values()))
    async with app.attach(key="thread-7") as run:
        await run.attempt("call_1", tools["charge"], "o-1")
        again = await run.attempt("call_2", tools["charge"], "o-1")
        assert isinstance(again, mp.Waiting)
        assert "call_1" in again.ask
        assert await run.attempt("call_3", tools["charge"], "o-2") == mp.Confirmed("receipt o-2")
        assert await run.attempt("call_4", tools["ping"], "x") == mp.Confirmed("pong x")
        assert await run.attempt("call_5", tools["ping"], "x") == mp.Confirmed("pong x")
        await run.checkpoint()
        still = await run.attempt("call_6", tools["charge"], "o-1")
        assert isinstance(still, mp.Waiting)
    assert outside.sent == ["charge o-1", "charge o-2", "ping x", "ping x"]


async def test_a_recorded_id_with_another_tool_or_arguments_diverges(stage: Stage, outside: Outside) -> None:
    tools = tools_of(outside)
    app = mp.App(stage.url, tools=list(tools.values()))
    for checkpoint in (False, True):
        key = f"thread-{checkpoint}"
        async with app.attach(key=key) as run:
            await run.attempt("call_1", tools["charge"], f"o-{checkpoint}")
            if checkpoint:
                await run.checkpoint()
        async with app.attach(key=key) as run:
            with pytest.raises(mp.Diverged):
                await run.attempt("call_1", tools["charge"], "o-other")
        async with app.attach(key=key) as run:
            with pytest.raises(mp.Diverged):
                await run.attempt("call_1", tools["ping"], "x")
    assert outside.sent == ["charge o-False", "charge o-True"]


async def test_a_checkpoint_is_made_after_a_hundred_steps_and_recovery_reads_only_what_follows(
    stage: Stage, outside: Outside
) -> None:
    """Requirement 62. Requirement 85."""
    tools = tools_of(outside)
    app = mp.App(stage.url, tools=list(tools.values()))
    async with app.attach(key="long") as run:
        for n in range(105):
            await run.attempt(f"call_{n}", tools["look"], str(n))
        assert (await names(app, run.id)).count("checkpointed") == 1
        tail = await app._need_engine().store.tail(run.id)
        assert len(tail.entries) < 20
    async with app.attach(key="long") as run:
        assert await run.attempt("call_3", tools["look"], "3") == mp.Confirmed("seen 3")
        assert await run.attempt("call_104", tools["look"], "104") == mp.Confirmed("seen 104")
    assert len(outside.sent) == 105


async def test_an_attached_run_that_is_finished_is_done_with_its_result(stage: Stage, outside: Outside) -> None:
    tools = tools_of(outside)
    app = mp.App(stage.url, tools=list(tools.values()))
    async with app.attach(key="thread-7") as run:
        await run.attempt("call_1", tools["charge"], "o-1")
        await run.finish({"ok": True})
    async with app.client():
        handle = app.handle(run.id)
        assert (await handle.status()).status == "done"
        assert await handle.result(timeout="30s") == {"ok": True}


async def test_a_run_is_held_by_one_host_at_a_time(stage: Stage, outside: Outside) -> None:
    tools = tools_of(outside)
    app = mp.App(stage.url, tools=list(tools.values()))
    other = mp.App(stage.url, tools=list(tools.values()))
    async with app.attach(key="thread-7") as run:
        with pytest.raises(mp.RunHeld, match="alive"):
            async with other.attach(key="thread-7"):
                raise AssertionError("never entered")
        async with other.attach(key="thread-8") as elsewhere:
            assert elsewhere.id != run.id
    async with other.attach(key="thread-7") as again:
        assert again.id == run.id


async def test_a_client_attaches_no_run(stage: Stage, outside: Outside) -> None:
    """Requirement 59. It has no name: its death could never be proven, and what nobody signed would count."""
    tools = tools_of(outside)
    app = mp.App(stage.url, tools=list(tools.values()))
    async with app.client():
        with pytest.raises(mp.InvalidDeclaration, match="a client drives nothing"):
            async with app.attach(key="thread-7"):
                raise AssertionError("never entered")
        assert await app.inspect.counts() == {}
    async with app.attach(key="thread-7") as run:
        assert await run.attempt("call_1", tools["look"], "x") == mp.Confirmed("seen x")


async def test_a_worker_settles_what_an_attached_run_left_unknown(stage: Stage) -> None:
    sent: list[str] = []

    @mp.tool(effect="queryable", visible_within="1s")
    async def charge(order: str) -> str:
        sent.append(order)
        raise RuntimeError("line broke")

    asked: list[str] = []

    @charge.reconcile
    async def find(order: str) -> mp.Finding[str]:
        asked.append(order)
        return mp.happened("receipt") if len(asked) > 1 else mp.still_unknown(ask_again="5s")

    app = mp.App(stage.url, tools=[charge], clock=stage.clock)
    async with app.attach(key="thread-7") as run:
        waiting = await run.attempt("call_1", charge, "o-1")
        assert isinstance(waiting, mp.Waiting)
        assert waiting.reason == "unknown"
    stage.clock.advance("5s")
    async with app:
        await has_entry(app, run.id, "effect_confirmed")
    async with app.attach(key="thread-7") as run:
        assert await run.attempt("call_1", charge, "o-1") == mp.Confirmed("receipt")
    assert sent == ["o-1"]


async def test_calls_of_one_host_may_run_at_once(stage: Stage, outside: Outside) -> None:
    tools = tools_of(outside)
    app = mp.App(stage.url, tools=list(tools.values()))
    async with app.attach(key="thread-7") as run:
        got = await asyncio.gather(*(run.attempt(f"c{n}", tools["charge"], f"o-{n}") for n in range(5)))
        assert got == [mp.Confirmed(f"receipt o-{n}") for n in range(5)]


async def test_an_unlisted_tool_fails_in_an_attached_run_too(stage: Stage, outside: Outside) -> None:
    tools = tools_of(outside)
    app = mp.App(stage.url, tools=[tools["look"]])
    async with app.attach(key="thread-7") as run:
        outcome = await run.attempt("call_1", tools["charge"], "o-1")
        assert isinstance(outcome, mp.Failed)
        assert "not listed" in outcome.why
    assert outside.sent == []


async def test_authority_and_budget_hold_for_an_attached_run(stage: Stage) -> None:
    @mp.tool(effect="keyed", key_ttl="1h", scopes=["pay"], cost={"usd": 2})
    async def pay(order: str) -> str:
        return f"receipt {order}"

    app = mp.App(stage.url, tools=[pay])
    async with app.attach(key="a", authority=mp.Authority("bot", scopes=["pay"]), budget={"usd": 2}) as run:
        assert await run.attempt("1", pay, "o-1") == mp.Confirmed("receipt o-1")
        poor = await run.attempt("2", pay, "o-2")
        assert isinstance(poor, mp.Waiting)
        assert poor.reason == "budget"
    async with app.attach(key="b") as run:
        bare = await run.attempt("1", pay, "o-3")
        assert isinstance(bare, mp.Waiting)
        assert bare.reason == "authority"


async def test_to_look_at_a_call_begins_nothing_and_tells_what_an_attempt_would(stage: Stage, outside: Outside) -> None:
    tools = tools_of(outside)
    app = mp.App(stage.url, tools=list(tools.values()))
    async with app.attach(key="thread-7") as run:
        assert [await run.look(f"call_{name}", tools[name], "x") for name in ("charge", "mail", "look")] == [None] * 3
        assert await names(app, run.id) == ["run_created", "claimed"]
        await run.attempt("call_charge", tools["charge"], "x")
        await run.attempt("call_mail", tools["mail"], "lost")
        await run.attempt("call_none", tools["mail"], "nobody")

        assert await run.look("call_charge", tools["charge"], "x") == mp.Confirmed("receipt x")
        assert await run.look("call_none", tools["mail"], "nobody") == mp.Failed("no such address")
        unknown = await run.look("call_mail", tools["mail"], "lost")
        again = await run.look("call_other", tools["charge"], "x")
        asked = await run.look("call_publish", tools["publish"], "hi")
        reasons = [one.reason for one in (unknown, again, asked) if isinstance(one, mp.Waiting)]
        assert reasons == ["unknown", "person", "approval"]
        approvals = await app.inspect.approvals()
        await app.approve(approvals[0].id, by="ann")
        assert await run.look("call_publish", tools["publish"], "hi") is None
    assert outside.sent == ["charge x", "mail lost", "mail nobody"]


async def test_a_host_can_ask_how_far_a_call_came_by_its_id_or_by_what_it_asks_for(
    stage: Stage, outside: Outside
) -> None:
    """Also of what a checkpoint covers. What failed stands in nobody's way; what is open comes before what is done."""
    tools = tools_of(outside)
    app = mp.App(stage.url, tools=list(tools.values()))
    async with app.attach(key="thread-7") as run:
        assert run.recorded("call_1") is None
        assert run.earlier(tools["ping"], "x") is None
        await run.attempt("call_1", tools["ping"], "x")
        await run.attempt("call_2", tools["ping"], "x")
        await run.attempt("call_3", tools["look"], "x")
        await run.attempt("call_4", tools["mail"], "nobody")
        for checkpoint in (False, True):
            if checkpoint:
                await run.checkpoint()
            known = [run.recorded(f"call_{n}") for n in range(1, 6)]
            assert known == ["confirmed", "confirmed", "confirmed", "failed", None]
            assert run.earlier(tools["ping"], "x") == ("call_2", "confirmed")
            assert run.earlier(tools["mail"], "nobody") is None
        await run.attempt("call_5", tools["mail"], "lost")
        await run.attempt("call_6", tools["mail"], "ann")
        assert (run.recorded("call_5"), run.earlier(tools["mail"], "lost")) == ("open", ("call_5", "open"))
        await run.attempt("call_7", tools["publish"], "news")
        assert run.earlier(tools["publish"], "news") == ("call_7", "open")


async def test_a_host_waits_for_a_worker_that_takes_the_run_to_hear_of_something(
    stage: Stage, outside: Outside
) -> None:
    """The app's own worker is woken by a person's answer, and may be quicker than the host that asks for it."""
    tools = tools_of(outside)
    async with mp.App(stage.url, tools=list(tools.values())) as app:
        for n in range(5):
            async with app.attach(key=f"thread-{n}") as run:
                await run.attempt("call_1", tools["publish"], f"news {n}")
            await app.deny((await app.inspect.approvals("asked"))[0].id, by="ann", why="no")
            async with app.attach(key=f"thread-{n}") as run:
                assert await run.attempt("call_1", tools["publish"], f"news {n}") == mp.Failed("denied by ann: no")


async def test_a_new_id_does_not_go_beside_an_equal_call_that_is_tried_again(stage: Stage) -> None:
    """It failed for certain, and its next try is due later: under two ids it would be sent twice."""
    sent: list[str] = []

    @mp.tool(effect="keyed", key_ttl="1h", retry=mp.Retry(3, first="1h", most="1h"))
    async def pay(call: mp.Call, order: str) -> str:
        if call.attempt == 1:
            raise mp.NotSent("busy")
        sent.append(f"{order} {call.key}")
        return "paid"

    app = mp.App(stage.url, tools=[pay], clock=stage.clock)
    async with app.attach(key="thread-7") as run:
        first = await run.attempt("call_1", pay, "o-1")
        again = await run.attempt("call_2", pay, "o-1")
        assert isinstance(first, mp.Waiting)
        assert isinstance(again, mp.Waiting)
        assert (first.reason, again.reason) == ("time", "person")
        assert "equals @call_1" in again.ask
        stage.clock.advance("1h")
        assert await run.attempt("call_1", pay, "o-1") == mp.Confirmed("paid")
        assert isinstance(await run.attempt("call_2", pay, "o-1"), mp.Waiting)
    assert len(sent) == 1


async def test_a_run_that_was_cancelled_ends_also_where_its_host_never_comes_back(
    stage: Stage, outside: Outside
) -> None:
    """Whether it was asked for while a host held the run, or while nobody did."""
    mail = tools_of(outside)["mail"]
    app = mp.App(stage.url, tools=[mail])
    async with app:
        for while_held in (True, False):
            async with app.attach(key=str(while_held)) as run:
                await run.attempt("c1", mail, "ann")
                if while_held:
                    await app.cancel(run.id, by="ann", why="enough")
                    await has_entry(app, run.id, "cancel_asked")
            if not while_held:
                await app.cancel(run.id, by="ann", why="enough")

            await status_of(app.handle(run.id), "cancelled")
            async with app.attach(key=str(while_held)) as again:
                assert await again.attempt("c1", mail, "ann") == mp.Confirmed("sent ann")
                with pytest.raises(mp.RunEnded):
                    await again.attempt("c2", mail, "bob")
    assert outside.sent == ["mail ann", "mail ann"]


async def test_what_is_asked_after_a_checkpoint_and_another_attachment_is_a_question_of_its_own(stage: Stage) -> None:
    """A number that came again could be the key of two things."""
    app = mp.App(stage.url)
    numbers: list[object] = []

    for _ in range(3):
        async with app.attach(key="thread-7") as run:
            numbers += [run.uuid(), run.uuid()]
            await run.checkpoint()
            numbers += [run.uuid(), run.uuid()]

    assert len(set(numbers)) == len(numbers)

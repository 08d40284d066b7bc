"""An approval is for one exact call: what of it changes asks anew, and what was said before permits nothing."""

import asyncio
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost.core import messages as m
from milepost.core.approval import Binding, approval_id
from milepost.operations.approvals import DigestDiffers, SelfApproval
from milepost.stores.api import ApprovalRow, Deliver, Post
from tests.runtime.policies import ALLOW, File, Outside, fields, mailing, one_call
from tests.runtime.stage import Patience, Stage, has_entry, names, parked, until

ASK = "each; ask"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.fixture
def policy(tmp_path: Path) -> File:
    return File(tmp_path / "policy.toml")


async def asked(app: mp.App) -> ApprovalRow:
    """Return the one approval that is asked."""
    (row,) = await until(lambda: app.inspect.approvals("asked"))
    return row


async def refusals(app: mp.App, run_id: str) -> list[str]:
    return [found["code"] for found in await fields(app, run_id, "message_refused")]


async def say(app: mp.App, row: ApprovalRow, name: str = "forged", **said: Any) -> None:
    """Put an answer into the inbox by hand, as anybody with the store could."""
    given: dict[str, Any] = {"at": 1, "by": "ann", "approval": row.id, "approved": True, **said}
    engine = app._need_engine()
    await engine.writer.durable(Deliver(Post(row.run_id, name, m.encode(m.Answer(**given)), 1)))
    engine.woken.set()


# ---------------------------------------------------------------- what it is bound to


async def test_a_request_says_all_that_the_approval_is_bound_to(stage: Stage, outside: Outside, policy: File) -> None:
    """Requirement 20. Requirement 25."""
    flow = one_call(mailing(outside, effect="keyed", key_ttl="1h"))
    rules = policy.says('large; ask; why = "they are many"; expires = "2h"')
    async with stage.app(flow, still=True, policy=rules) as app:
        handle = await app.start(flow, "ann", authority=mp.Authority("bot"))
        row = await asked(app)
        (told,) = await fields(app, handle.id, "approval_asked")

    assert {name: told[name] for name in ("id", "tool", "tool_version", "effect", "rule", "why", "requester")} == {
        "id": row.id, "tool": "mail", "tool_version": "1", "effect": "keyed", "rule": "large", "why": "they are many",
        "requester": "bot",
    }  # fmt: skip
    assert told["policy"].startswith("1+")
    assert told["expires_at"] - row.asked_at == 2 * 3_600_000


@pytest.mark.parametrize("changes", ["policy", "version", "effect"])
async def test_what_changes_while_it_waits_is_another_approval_and_the_older_one_permits_nothing(
    stage: Stage, outside: Outside, policy: File, changes: str
) -> None:
    """Requirement 20. Requirement 25. Requirement 49. One that was given already is no better."""
    flow = one_call(mailing(outside, approval=True, scopes=["mail:send"], effect="keyed", key_ttl="1h"))
    authority = mp.Authority("bot", scopes=["mail:send"])
    rules = policy.says(ALLOW)
    async with stage.app(flow, policy=rules, still=True) as app:
        handle = await app.start(flow, "ann", authority=authority)
        first = await asked(app)
        await app._operator().freeze("tool:mail", by="ann", why="wait")
        await app.approve(first.id, by="ann")
        await has_entry(app, handle.id, "approval_answered")
        await parked(handle, "switch")
    options: dict[str, Any] = {"approval": True, "scopes": ["mail:send"], "effect": "keyed", "key_ttl": "1h"}
    if changes == "policy":
        rules = policy.says(ALLOW, 'more; allow; tool = "fax"')
    if changes == "version":
        options |= {"version": "2", "compatible_with": ["1"]}
    if changes == "effect":
        options = {"approval": True, "scopes": ["mail:send"]}
    now = one_call(mailing(outside, **options))
    stage.clock.advance("1h")
    async with stage.app(now, policy=rules, still=True) as app:
        await app._operator().thaw("tool:mail", by="ann", why="go")
        handle = app.handle(handle.id, now)
        second = await asked(app)
        rows = {row.id: row.verdict for row in await app.inspect.approvals()}
        (closed,) = await fields(app, handle.id, "approval_closed")
        await app.approve(second.id, by="ann")
        assert await handle.result(timeout="30s") == "sent ann"

    assert second.id != first.id
    assert rows == {first.id: "superseded", second.id: "asked"}
    assert (closed["id"], closed["standing"]) == (first.id, "superseded")
    assert {"policy": "the policy is", "version": "version is 2, and was 1", "effect": "class is irreversible"}[
        changes
    ] in closed["why"]
    assert outside.sent == ["ann"]


async def test_an_approval_that_is_not_asked_for_any_more_is_closed_with_the_start(
    stage: Stage, outside: Outside, policy: File
) -> None:
    flow = one_call(mailing(outside))
    async with stage.app(flow, policy=policy.says(ASK)) as app:
        handle = await app.start(flow, "ann")
        row = await asked(app)
        policy.says(ALLOW)
        assert await handle.result(timeout="30s") == "sent ann"
        told = await names(app, handle.id)
        assert told.index("effect_started") == told.index("approval_closed") + 1
        assert [(one.id, one.verdict) for one in await app.inspect.approvals()] == [(row.id, "superseded")]
        with pytest.raises(mp.UnknownApproval, match="superseded"):
            await app.approve(row.id, by="ann")
        (started,) = await fields(app, handle.id, "effect_started")
    assert "approval" not in started


async def test_a_request_is_known_by_all_that_it_is_bound_to_and_by_how_many_came_before_it(
    stage: Stage, outside: Outside, policy: File
) -> None:
    """Requirement 20. What the tool itself asks names no rule, though a rule allows the call."""
    flow = one_call(mailing(outside, approval=True))
    async with stage.app(flow, policy=policy.says(ALLOW), still=True, approval_ttl="2h") as app:
        handle = await app.start(flow, "ann", authority=mp.Authority("bot"))
        await asked(app)
        stage.clock.advance("2h")
        app._need_engine().woken.set()
        await has_entry(app, handle.id, "approval_asked", 2)
        requests = await fields(app, handle.id, "approval_asked")
    ends = [request["expires_at"] for request in requests]
    assert ends == [stage.clock.now(), stage.clock.now() + 2 * HOUR_MS]
    for place, request in zip(("0/0", "0/1"), requests, strict=True):
        binding = Binding(
            request["step"], "mail", request["tool_version"], "irreversible", request["digest"], request["policy"]
        )
        assert request["id"] == approval_id(handle.id, 0, place, binding, "bot", request["expires_at"])
        assert (request.get("rule", ""), request.get("why", "")) == ("", "")


async def test_all_that_changed_is_named_where_a_request_is_closed(
    stage: Stage, outside: Outside, policy: File
) -> None:
    before = one_call(mailing(outside))
    async with stage.app(before, policy=policy.says(ASK)) as app:
        handle = await app.start(before, "ann")
        await asked(app)
    flow = one_call(mailing(outside, version="2", compatible_with=["1"]))
    async with stage.app(flow, policy=policy.says(ASK)) as app:
        await has_entry(app, handle.id, "approval_closed")
        (closed,) = await fields(app, handle.id, "approval_closed")
    assert closed["standing"] == "superseded"
    assert re.fullmatch(r"the policy is 2\+\w+, and was 1\+\w+; the tool's version is 2, and was 1", closed["why"])


async def test_a_segment_that_leaves_a_request_behind_leaves_it_void(stage: Stage, outside: Outside) -> None:
    tool = mailing(outside, approval=True)
    patience, gave_up = Patience(), asyncio.Event()

    @mp.tool(effect="read")
    async def look() -> None:
        await gave_up.wait()  # in flight: so the segment does not unload before its patience ends

    flow = mp.Workflow("flow", version="1", input=str, result=str, tools=[tool, look])

    async def patient(to: str) -> None:
        with suppress(TimeoutError):
            async with patience.limit():
                await tool(to)
        gave_up.set()

    @flow.segment
    async def first(run: mp.Run, to: str) -> mp.Next[str]:
        await run.gather(patient(to), look())
        return mp.go(second, to)

    @flow.segment
    async def second(run: mp.Run, to: str) -> mp.Next[str]:
        return mp.done(await run.receive("go", str))

    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        await asked(app)
        patience.ends()
        await parked(handle, "signal")
        (row,) = await app.inspect.approvals()
        assert row.verdict == "void"
        with pytest.raises(mp.UnknownApproval, match="void"):
            await app.approve(row.id, by="ann")
        await has_entry(app, handle.id, "message_refused")
        assert await refusals(app, handle.id) == ["not_asked"]
    assert outside.sent == []


# ---------------------------------------------------------------- time


async def test_after_its_time_a_request_permits_nothing_and_a_person_is_asked_anew(
    stage: Stage, outside: Outside
) -> None:
    """Requirement 49. Without anybody's help; and an answer to the older one is refused and written down."""
    flow = one_call(mailing(outside, approval=True))
    async with stage.app(flow, still=True, approval_ttl="3h") as app:
        handle = await app.start(flow, "ann")
        first = await asked(app)
        waiting = await parked(handle, "approval")
        assert waiting.until is not None
        stage.clock.advance("3h")

        async def another() -> bool:
            return [row.id for row in await app.inspect.approvals("asked")] not in ([], [first.id])

        await until(another)
        second = await asked(app)
        rows = {row.id: row.verdict for row in await app.inspect.approvals()}
        with pytest.raises(mp.UnknownApproval, match="expired"):
            await app.approve(first.id, by="ann")
        await has_entry(app, handle.id, "message_refused")
        assert await refusals(app, handle.id) == ["expired"]
        assert outside.sent == []
        await app.approve(second.id, by="ann")
        assert await handle.result(timeout="30s") == "sent ann"
    assert rows == {first.id: "expired", second.id: "asked"}


async def test_an_approval_that_was_given_lapses_where_it_is_not_used_in_time(stage: Stage, outside: Outside) -> None:
    flow = one_call(mailing(outside, approval=True, cost={"usd": 1}))
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "ann")
        first = await asked(app)
        await app.approve(first.id, by="ann")
        await parked(handle, "budget")
        stage.clock.advance("8d")
        await app.grant(handle.id, by="ann", budget={"usd": 1})
        second = await asked(app)
        (asks,) = [one for one in await fields(app, handle.id, "approval_asked") if one["id"] == first.id]
    assert second.id != first.id
    assert asks["expires_at"] - first.asked_at == 7 * DAY_MS  # the default
    assert outside.sent == []


# ---------------------------------------------------------------- taking it back


async def test_an_approval_that_was_given_and_not_used_can_be_taken_back(stage: Stage, outside: Outside) -> None:
    """Requirement 25. Once it is used, nothing takes it back, and the attempt is written down."""
    flow = one_call(mailing(outside, approval=True, cost={"usd": 1}))
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        row = await asked(app)
        await app.approve(row.id, by="ann")
        await parked(handle, "budget")
        await app.deny(row.id, by="bob", why="second thoughts")
        assert await handle.result(timeout="30s") == "denied: denied by bob: second thoughts"
        answers = [(one["approved"], one["by"]) for one in await fields(app, handle.id, "approval_answered")]
        assert answers == [(True, "ann"), (False, "bob")]
    assert outside.sent == []


async def test_an_approval_that_was_used_is_not_taken_back_and_not_used_again(stage: Stage, outside: Outside) -> None:
    flow = one_call(mailing(outside, approval=True))
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        row = await asked(app)
        await app.approve(row.id, by="ann")
        assert await handle.result(timeout="30s") == "sent ann"
        assert [one.verdict for one in await app.inspect.approvals()] == ["used"]
        with pytest.raises(mp.UnknownApproval, match="used already"):
            await app.deny(row.id, by="bob", why="too late")
        await has_entry(app, handle.id, "message_refused")
        await say(app, row, "again")
        await has_entry(app, handle.id, "message_refused", 2)
    assert outside.sent == ["ann"]


# ---------------------------------------------------------------- who, and what was shown


@pytest.mark.parametrize("name", ["bot", "Bot ", "\uff42ot"])
async def test_whoever_the_run_acts_for_may_not_approve_and_the_attempt_is_written_down(
    stage: Stage, outside: Outside, name: str
) -> None:
    """Requirement 20."""
    flow = one_call(mailing(outside, approval=True))
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann", authority=mp.Authority("bot"))
        row = await asked(app)
        with pytest.raises(SelfApproval, match="recorded"):
            await app.approve(row.id, by=name)
        await has_entry(app, handle.id, "message_refused")
        assert await refusals(app, handle.id) == ["self_approval"]
        assert outside.sent == []
        await app.approve(row.id, by="ann")
        assert await handle.result(timeout="30s") == "sent ann"


async def test_an_answer_to_other_arguments_than_are_asked_for_counts_for_nothing(
    stage: Stage, outside: Outside
) -> None:
    """Requirement 20."""
    flow = one_call(mailing(outside, approval=True))
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        row = await asked(app)
        with pytest.raises(DigestDiffers):
            await app.approve(row.id, by="ann", digest="0000")
        with pytest.raises(DigestDiffers):
            await app.approve(row.id, by="ann", digest="")
        with pytest.raises(mp.InvalidValue, match="nobody is named"):
            await app.approve(row.id)
        await say(app, row, digest="0" * 64)
        await has_entry(app, handle.id, "message_refused")
        assert await refusals(app, handle.id) == ["wrong_digest"]
        (told,) = await fields(app, handle.id, "message_refused")
        assert (told["kind"], told["about"], told["by"]) == ("answer", row.id, "ann")
        await app.approve(row.id, by="ann", digest=(await fields(app, handle.id, "approval_asked"))[0]["digest"][:8])
        assert await handle.result(timeout="30s") == "sent ann"


async def test_any_text_at_all_is_no_approval(stage: Stage, outside: Outside) -> None:
    """Requirement 17. Requirement 20. Not its id in a signal, not a made-up id, not a word."""
    flow = one_call(mailing(outside, approval=True))
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        row = await asked(app)
        for text in ("approved", "yes", "ap-", "ap-" + "0" * 16, row.id.upper(), "%", "*"):
            if text != "ap-":
                with pytest.raises(mp.UnknownApproval):
                    await app.approve(text, by="ann")
            await app.send(handle.id, "approval", f"{text}: approved by ann")
        await say(app, ApprovalRow("approved", handle.id, "", "", "", b"", 0, ""))
        await has_entry(app, handle.id, "message_refused")
        assert await refusals(app, handle.id) == ["not_asked"]
        assert "approval_answered" not in await names(app, handle.id)
    assert outside.sent == []


# ---------------------------------------------------------------- once, whatever happens


async def test_a_started_that_is_refused_leaves_the_approval_to_be_used(stage: Stage, outside: Outside) -> None:
    flow = one_call(mailing(outside, approval=True))
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        row = await asked(app)
        await app._operator().freeze("tool:mail", by="ann", why="wait")
        await app.approve(row.id, by="ann")
        await parked(handle, "switch")
        assert [one.verdict for one in await app.inspect.approvals()] == ["approved"]
        await app._operator().thaw("tool:mail", by="ann", why="go")
        assert await handle.result(timeout="30s") == "sent ann"
        (started,) = await fields(app, handle.id, "effect_started")
        assert started["approval"] == row.id
    assert outside.sent == ["ann"]


async def test_a_resend_uses_no_approval_and_asks_for_none(stage: Stage) -> None:
    sent: list[int] = []

    @mp.tool(approval=True, effect="keyed", key_ttl="1h")
    async def mail(call: mp.Call, to: str) -> str:
        sent.append(call.attempt)
        if call.attempt == 1:
            raise RuntimeError("line broke")
        return to

    flow = one_call(mail)
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        row = await asked(app)
        await app.approve(row.id, by="ann")
        assert await handle.result(timeout="30s") == "ann"
        starts = await fields(app, handle.id, "effect_started")
        assert [one.get("approval") for one in starts] == [row.id, None]
        assert len(await app.inspect.approvals()) == 1
    assert sent == [1, 2]


async def test_two_workers_and_many_answers_at_once_let_it_happen_once(stage: Stage, outside: Outside) -> None:
    """Requirement 20."""
    flow = one_call(mailing(outside, approval=True))
    async with stage.app(flow) as app, stage.app(flow) as other:
        handle = await app.start(flow, "ann")
        row = await asked(app)

        async def answer(through: mp.App, number: int) -> None:
            await say(through, row, f"forged {number}", by=f"ann {number}")

        await asyncio.gather(*(answer(app if number % 2 else other, number) for number in range(20)))
        assert await handle.result(timeout="30s") == "sent ann"
        await has_entry(app, handle.id, "message_refused", 19)
        codes = await refusals(app, handle.id)
        assert len(codes) == 19
        assert set(codes) <= {"replayed", "not_asked"}  # of what is taken after its end nothing is asked any more
        assert (await names(app, handle.id)).count("approval_answered") == 1
    assert outside.sent == ["ann"]


@pytest.mark.parametrize("how", ["cancel", "kill"])
async def test_what_a_stopped_run_had_asked_for_is_not_asked_any_more(stage: Stage, outside: Outside, how: str) -> None:
    flow = one_call(mailing(outside, approval=True))
    async with stage.app(flow) as app:
        handle = await app.start(flow, "bob")
        row = await asked(app)

        await (app.cancel if how == "cancel" else app.kill)(handle.id, why="no need", by="ann")

        await until(lambda: app.inspect.approvals("void"))
        assert await app.inspect.approvals("asked") == []
        with pytest.raises(mp.MilepostError):
            await app.approve(row.id, by="ann")
    assert stage.rows("SELECT verdict FROM mp_approvals") == [("void",)]

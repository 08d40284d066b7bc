"""A policy decides before each attempt: what it denies is not sent, what it does not know waits, what it asks waits."""

import re
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

import milepost as mp
from tests.runtime.policies import ALLOW, NEVER, File, Outside, fields, mailing, one_call
from tests.runtime.stage import Stage, has_entry, names, parked


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.fixture
def policy(tmp_path: Path) -> File:
    return File(tmp_path / "policy.toml")


# ---------------------------------------------------------------- the four answers


async def test_what_a_rule_allows_is_sent_and_the_rule_stands_in_its_start(
    stage: Stage, outside: Outside, policy: File
) -> None:
    """Requirement 71."""
    flow = one_call(mailing(outside))
    async with stage.app(flow, policy=policy.says('small; allow; tool = "mail"; when = "size(args.to) < 5"')) as app:
        handle = await app.start(flow, "ann")
        assert await handle.result(timeout="30s") == "sent ann"
        (started,) = await fields(app, handle.id, "effect_started")
        assert started["rule"] == "small"
        assert started["policy"].startswith("1+")
        assert len(started["policy"]) == len("1+") + 16


async def test_what_a_rule_denies_is_never_sent_and_the_segment_sees_why_each_time(
    stage: Stage, outside: Outside, policy: File
) -> None:
    """Requirement 71. Identically on re-entry, under whatever policy: settled outcomes stay."""
    tool, seen = mailing(outside), []

    @mp.workflow(version="1", tools=[tool])
    async def flow(run: mp.Run) -> str:
        try:
            await tool("ann")
        except mp.Denied as denied:
            seen.append((denied.path, denied.why))
        return await run.receive("go", str)

    async with stage.app(flow, policy=policy.says(ALLOW, NEVER)) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
        (failed,) = await fields(app, handle.id, "effect_failed")
        assert (failed["by"], failed["reason"], failed["final"]) == ("policy never", "denied", True)
        assert failed["policy"].startswith("1+")
        policy.says(ALLOW)
        await app.send(handle.id, "go", "on")
        assert await handle.result(timeout="30s") == "on"
    assert seen == [("flow/mail#1", "denied by policy rule 'never': no mail today")] * 2
    assert outside.sent == []


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ([], "no rule allows it"),
        (['pay; allow; tool = "charge"'], "no rule allows it"),
        (['small; allow; when = "args.cents < 100"'], "rule 'small' cannot be answered: there is no cents"),
        (['unlike; deny; when = "args.to > 100"', ALLOW], "rule 'unlike' cannot be answered: TypeError"),
        (['cheap; allow; when = "budget.cost.usd < 5.0"'], "rule 'cheap' cannot be answered: there is no usd"),
    ],
    ids=["no rule", "a capability that is not listed", "an amount is missing", "a rule errs", "no cost is declared"],
)  # fmt: skip
async def test_what_no_rule_answers_waits_and_says_what_to_type(
    rules: list[str], why: str, stage: Stage, outside: Outside, policy: File
) -> None:
    """Requirement 71. Requirement 17. An unlisted capability, or a missing amount, is no permission."""
    flow = one_call(mailing(outside))
    path = policy.says(*rules)
    async with stage.app(flow, policy=path) as app:
        handle = await app.start(flow, "ann")
        waiting = await parked(handle, "authority")
        assert waiting.ask.startswith(f"milepost policy check {path}: flow/mail#1 is denied under version 1: {why}")
        assert await names(app, handle.id) == ["run_created", "claimed", "effect_planned", "run_parked"]
    assert outside.sent == []


async def test_a_rule_sees_whom_the_run_acts_for_and_until_when(stage: Stage, outside: Outside, policy: File) -> None:
    flow = one_call(mailing(outside))
    until = datetime(2030, 1, 1, tzinfo=UTC)
    acting = mp.Authority("bot", tenant="acme", scopes=("mail",), expires=until)
    sees = (
        f"authority.principal == 'bot' && authority.tenant == 'acme' && authority.scopes == ['mail'] "
        f"&& authority.expires_at == {int(until.timestamp() * 1_000)}"
    )
    async with stage.app(flow, policy=policy.says(f'whose; allow; when = "{sees}"')) as app:
        assert await (await app.start(flow, "ann", authority=acting)).result(timeout="30s") == "sent ann"


@pytest.mark.parametrize("text", ["version = ", 'version = "1"\n[[rule]]\nname = "x"\nverdict = "alow"\n', None])
async def test_a_policy_that_cannot_be_read_lets_nothing_start_and_a_mended_one_lets_it_go_on(
    text: str | None, stage: Stage, outside: Outside, policy: File
) -> None:
    """Requirement 71. No verb is needed: today's policy holds for those that wait."""
    flow = one_call(mailing(outside))
    if text is not None:
        policy.holds(text)
    async with stage.app(flow, policy=str(policy.path)) as app:
        handle = await app.start(flow, "ann")
        assert f"milepost policy check {policy.path}" in (await parked(handle, "authority")).ask
        assert outside.sent == []
        policy.says(ALLOW)
        assert await handle.result(timeout="30s") == "sent ann"


async def test_what_waits_for_the_policy_is_looked_at_again_by_the_next_worker(
    stage: Stage, outside: Outside, policy: File
) -> None:
    """Requirement 40. The file may change while no process lives to see it."""
    flow = one_call(mailing(outside))
    async with stage.app(flow, policy=policy.says()) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "authority")
    policy.says(ALLOW)
    async with stage.app(flow, policy=str(policy.path)) as app:
        assert await app.handle(handle.id, flow).result(timeout="30s") == "sent ann"


async def test_a_run_tells_that_its_policy_became_another_one_while_it_waited(
    stage: Stage, outside: Outside, policy: File
) -> None:
    """Requirement 34. Requirement 44. The manifest has its version and fingerprint."""
    flow = one_call(mailing(outside))
    async with stage.app(flow, policy=policy.says(NEVER.replace("mail", "fax"))) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "authority")
    policy.says(ALLOW)
    async with stage.app(flow, policy=str(policy.path)) as app:
        await app.handle(handle.id, flow).result(timeout="30s")
        (changed,) = [line for line in await app.inspect.journal(handle.id) if line.name == "code_changed"]

    (said,) = changed.fields["changes"]
    assert re.fullmatch(r"the policy was 1\+[0-9a-f]{16}, is now 2\+[0-9a-f]{16}", said)


def test_a_script_is_told_what_to_type_and_goes_on_once_that_is_done(
    stage: Stage, outside: Outside, policy: File
) -> None:
    flow = one_call(mailing(outside))
    with pytest.raises(mp.NeedsPerson, match="milepost policy check"):
        stage.app(flow, policy=policy.says()).run(flow, "ann", key="k")
    with pytest.raises(mp.NeedsPerson, match="under version 2"):
        stage.app(flow, policy=policy.says(NEVER.replace("mail", "fax"))).run(flow, "ann", key="k")

    assert stage.app(flow, policy=policy.says(ALLOW)).run(flow, "ann", key="k") == "sent ann"
    assert outside.sent == ["ann"]


async def test_a_missing_scope_is_asked_for_before_the_policy_is(stage: Stage, outside: Outside, policy: File) -> None:
    flow = one_call(mailing(outside, scopes=["mail:send"]))
    async with stage.app(flow, policy=policy.says(ALLOW, NEVER)) as app:
        handle = await app.start(flow, "ann")
        assert "milepost grant" in (await parked(handle, "authority")).ask
        await app.grant(handle.id, by="ann", scopes=["mail:send"])
        assert "denied" in await handle.result(timeout="30s")


async def test_without_a_policy_everything_is_as_the_tools_declare_it(stage: Stage, outside: Outside) -> None:
    flow = one_call(mailing(outside))
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        assert await handle.result(timeout="30s") == "sent ann"
        (started,) = await fields(app, handle.id, "effect_started")
        assert "rule" not in started
        assert "policy" not in started


# ---------------------------------------------------------------- rules that ask


ASK = 'large; ask; tool = "mail"; expires = "24h"'


async def test_a_rule_that_asks_needs_an_approval_of_exactly_this_effect(
    stage: Stage, outside: Outside, policy: File
) -> None:
    """Requirement 71."""
    flow = one_call(mailing(outside))
    async with stage.app(flow, policy=policy.says(ALLOW, ASK)) as app:
        handle = await app.start(flow, "ann")
        waiting = await parked(handle, "approval")
        (row,) = await app.inspect.approvals("asked")
        (asked,) = await fields(app, handle.id, "approval_asked")
        assert waiting.ask == f"milepost approve {row.id}, or milepost deny {row.id} --why … (policy rule 'large')"
        assert (asked["rule"], asked["policy"][:2]) == ("large", "1+")
        assert outside.sent == []
        await app.approve(row.id, by="ann")
        assert await handle.result(timeout="30s") == "sent ann"
        (started,) = await fields(app, handle.id, "effect_started")
        assert (started["rule"], started["approval"]) == ("large", row.id)


async def test_an_approval_a_rule_asked_for_holds_for_the_effect_s_further_attempts(
    stage: Stage, outside: Outside, policy: File
) -> None:
    flow = one_call(mailing(outside, retry=mp.Retry(3, first="1ms")))
    async with stage.app(flow, policy=policy.says(ASK)) as app:
        handle = await app.start(flow, "flaky")
        await parked(handle, "approval")
        await app.approve((await app.inspect.approvals("asked"))[0].id, by="ann")
        assert await handle.result(timeout="30s") == "sent flaky"
        assert outside.sent == ["flaky", "flaky"]
        assert len(await app.inspect.approvals()) == 1


async def test_a_person_may_deny_what_a_rule_asks(stage: Stage, outside: Outside, policy: File) -> None:
    flow = one_call(mailing(outside))
    async with stage.app(flow, policy=policy.says(ASK)) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "approval")
        await app.deny((await app.inspect.approvals("asked"))[0].id, by="bob", why="not now")
        assert await handle.result(timeout="30s") == "denied: denied by bob: not now"


async def test_a_policy_that_asks_no_more_lets_what_waits_for_an_approval_go_on(
    stage: Stage, outside: Outside, policy: File
) -> None:
    flow = one_call(mailing(outside))
    async with stage.app(flow, policy=policy.says(ASK)) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "approval")
        policy.says(ALLOW)
        assert await handle.result(timeout="30s") == "sent ann"


async def test_a_policy_that_denies_now_ends_what_waits_for_an_approval_and_answers_it(
    stage: Stage, outside: Outside, policy: File
) -> None:
    """Requirement 40."""
    flow = one_call(mailing(outside))
    async with stage.app(flow, policy=policy.says(ASK)) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "approval")
        policy.says(NEVER)
        assert "denied by policy rule 'never'" in await handle.result(timeout="30s")
        (row,) = await app.inspect.approvals()
        assert row.verdict == "denied"
        (answered,) = await fields(app, handle.id, "approval_answered")
        assert answered["by"] == "policy never"
    assert outside.sent == []


async def test_a_denial_answers_the_question_about_its_own_call_alone(
    stage: Stage, outside: Outside, policy: File
) -> None:
    tool = mailing(outside)

    @mp.workflow(version="1", name="flow", tools=[tool])
    async def flow(run: mp.Run) -> list[str]:
        async def told(to: str) -> str:
            try:
                return await tool(to)
            except mp.Denied:
                return f"not to {to}"

        return list(await run.gather(told("ann"), told("bob")))

    async with stage.app(flow, policy=policy.says(ASK)) as app:
        handle = await app.start(flow)
        await has_entry(app, handle.id, "approval_asked", 2)
        asked = await fields(app, handle.id, "approval_asked")
        policy.says(ASK, NEVER.replace('"mail"', '"mail"; when = "args.to == \'ann\'"'))
        await has_entry(app, handle.id, "effect_failed")
        (answered,) = await fields(app, handle.id, "approval_answered")
        (failed,) = await fields(app, handle.id, "effect_failed")
        assert [one["id"] for one in asked if one["step"] == failed["step"]] == [answered["id"]]
        assert answered["why"] == "denied by policy rule 'never': no mail today"
        assert (await names(app, handle.id)).count("effect_planned") == 2
        (row,) = await app.inspect.approvals("asked")
        assert row.id not in {one["id"] for one in asked}, "under another policy it is another question"
        await app.approve(row.id, by="ann")
        assert await handle.result(timeout="30s") == ["not to ann", "sent bob"]


async def test_an_approval_given_under_a_policy_that_denies_by_now_is_not_used(
    stage: Stage, outside: Outside, policy: File
) -> None:
    """Requirement 40. A person's yes does not outrank today's rule."""
    flow = one_call(mailing(outside))
    async with stage.app(flow, policy=policy.says(ASK)) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "approval")
        approval = (await app.inspect.approvals("asked"))[0].id
    policy.says(NEVER)
    async with stage.app(flow, policy=str(policy.path)) as app:
        with suppress(mp.UnknownApproval):  # where the rule was quicker, and answered it
            await app.approve(approval, by="ann")
        assert "denied by policy rule" in await app.handle(handle.id, flow).result(timeout="30s")
    assert outside.sent == []


# ---------------------------------------------------------------- each attempt is looked at anew


async def test_a_policy_tightened_between_two_attempts_stops_the_second(
    stage: Stage, outside: Outside, policy: File
) -> None:
    """Requirement 40. Requirement 68."""
    flow = one_call(mailing(outside, retry=mp.Retry(3, first="1h", most="1h")))
    async with stage.app(flow, still=True, policy=policy.says(ALLOW)) as app:
        handle = await app.start(flow, "flaky")
        await has_entry(app, handle.id, "effect_failed")
        policy.says(ALLOW, NEVER)
        stage.clock.advance("2h")
        assert "denied by policy rule 'never'" in await handle.result(timeout="30s")
        first, last = await fields(app, handle.id, "effect_failed")
        assert (first["final"], last["final"], last["attempt"], last["by"]) == (False, True, 1, "policy never")
    assert outside.sent == ["flaky"]


async def test_what_a_rule_denied_sets_its_business_identity_free(stage: Stage, outside: Outside, policy: File) -> None:
    tool = mailing(outside, once="to", retry=mp.Retry(3, first="1h", most="1h"))
    flow = one_call(tool)
    async with stage.app(flow, still=True, policy=policy.says(ALLOW)) as app:
        first = await app.start(flow, "flaky")
        await has_entry(app, first.id, "effect_failed")
        policy.says(NEVER)
        stage.clock.advance("2h")
        assert "denied" in await first.result(timeout="30s")
        policy.says(ALLOW)
        second = await app.start(flow, "flaky")
        await has_entry(app, second.id, "effect_failed")
    assert outside.sent == ["flaky", "flaky"]


async def test_what_tries_of_a_read_may_have_cost_is_booked_when_a_rule_ends_it(stage: Stage, policy: File) -> None:
    tried = []

    @mp.tool(effect="read", cost={"usd": 3}, retry=mp.Retry(3, first="1h", most="1h"))
    async def ask(text: str) -> str:
        tried.append(text)
        raise ConnectionResetError

    @mp.workflow(version="1", tools=[ask])
    async def flow(run: mp.Run) -> str:
        try:
            return await ask("x")
        except mp.Denied:
            return "denied"

    async with stage.app(flow, still=True, policy=policy.says(ALLOW)) as app:
        handle = await app.start(flow, budget={"usd": 10})
        await has_entry(app, handle.id, "effect_failed")
        policy.says('no-model; deny; class = "read"')
        stage.clock.advance("2h")
        assert await handle.result(timeout="30s") == "denied"
        assert (await app.inspect.detail(handle.id)).spent == {"usd": "3"}
    assert tried == ["x"]


async def test_a_transactional_tool_that_a_rule_denies_writes_nothing(stage: Stage, policy: File) -> None:
    @mp.tool(effect="transactional")
    def book(tx: mp.Tx, text: str) -> int:
        tx.execute("CREATE TABLE book (text TEXT)")
        return 1

    @mp.workflow(version="1", tools=[book])
    async def flow(run: mp.Run) -> str:
        with pytest.raises(mp.Denied):
            await book("x")
        return "denied"

    async with stage.app(flow, policy=policy.says('never; deny; class = "transactional"')) as app:
        assert await (await app.start(flow)).result(timeout="30s") == "denied"
    assert not stage.has_table("book")

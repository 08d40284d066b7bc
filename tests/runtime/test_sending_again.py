"""The bounded resends: the same key and bytes, while the provider still knows the key."""

import pytest

import milepost as mp
from tests.runtime.bank import Bank, paying, tool_of
from tests.runtime.stage import Stage, has_entry, has_outcome, names, parked, until


async def test_a_keyed_effect_is_sent_again_with_the_same_key_and_applied_once(stage: Stage) -> None:
    """Requirement 13. Requirement 33. Requirement 47. Requirement 55."""
    bank = Bank("loses the answer", "answers")
    bank.dedups = True
    flow = paying(tool_of(bank, stage.clock.now, effect="keyed", key_ttl="24h", asks=False))
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "effect_unknown")
        stage.clock.advance("1s")
        assert await handle.result(timeout="30s") == "receipt o-1"
        assert len(bank.applied) == 1
        assert [attempt for _, attempt in bank.calls] == [1, 2]
        assert len({key for key, _ in bank.calls}) == 1
        second = [line.fields for line in await app.inspect.journal(handle.id) if line.name == "effect_started"][1]
        assert second["resend"] is True


async def test_a_key_that_may_have_expired_is_not_sent_again(stage: Stage) -> None:
    """Requirement 18. After a long pause the provider may have forgotten the key: a person decides."""
    bank = Bank("loses the answer", "answers")
    flow = paying(tool_of(bank, stage.clock.now, effect="keyed", key_ttl="24h", asks=False))
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "effect_unknown")
        stage.clock.advance("25h")
        waiting = await parked(handle, "unknown")
        assert "milepost resolve" in waiting.ask
    assert len(bank.calls) == 1


async def test_after_its_key_expired_an_effect_is_asked_about(stage: Stage) -> None:
    bank = Bank("loses the answer", "answers")
    flow = paying(tool_of(bank, stage.clock.now, effect="keyed", key_ttl="1h", visible_within="1m", retry=mp.Retry(9)))
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "effect_unknown")
        stage.clock.advance("2h")
        assert await handle.result(timeout="30s") == "receipt o-1"
        assert len(bank.calls) == 1
        assert len(bank.asked) == 1


async def test_a_key_without_a_declared_life_is_never_sent_again(stage: Stage) -> None:
    bank = Bank("loses the answer")
    flow = paying(tool_of(bank, stage.clock.now, effect="keyed", asks=False))
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        assert "milepost resolve" in (await parked(handle, "unknown")).ask
        assert len(bank.calls) == 1


async def test_resends_whose_process_lived_are_bounded(stage: Stage) -> None:
    """Requirement 68. Requirement 60."""
    bank = Bank("loses the answer")
    flow = paying(tool_of(bank, stage.clock.now, effect="keyed", key_ttl="24h", asks=False, retry=mp.Retry(3)))
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        for attempt in range(1, 4):
            await has_entry(app, handle.id, "effect_unknown", attempt)
            stage.clock.advance("5s")
        assert "milepost resolve" in (await parked(handle, "unknown")).ask
        assert len(bank.calls) == 3


async def test_not_sent_in_a_resend_settles_that_attempt_only(stage: Stage) -> None:
    """Requirement 31. The effect stays unknown while its first attempt is unsettled."""
    bank = Bank("loses the answer", "is away", "answers")
    bank.dedups = True
    flow = paying(tool_of(bank, stage.clock.now, effect="keyed", key_ttl="24h", asks=False))
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "effect_unknown")
        stage.clock.advance("1s")
        await has_entry(app, handle.id, "attempt_settled")
        assert [view.outcome for view in await app.inspect.effects(handle.id)] == ["unknown"]
        stage.clock.advance("5s")
        assert await handle.result(timeout="30s") == "receipt o-1"
        assert len(bank.applied) == 1


async def test_rejected_in_a_resend_does_not_say_that_the_first_attempt_failed(stage: Stage) -> None:
    bank = Bank("loses the answer", "refuses")
    flow = paying(tool_of(bank, stage.clock.now, effect="keyed", key_ttl="24h", asks=False))
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "effect_unknown")
        stage.clock.advance("1s")
        await has_entry(app, handle.id, "attempt_settled")
        waiting = await parked(handle, "unknown")
        await until(lambda: _asks(handle))
        assert waiting.reason == "unknown"
        assert len(bank.calls) == 2
        assert [view.outcome for view in await app.inspect.effects(handle.id)] == ["unknown"]


async def _asks(handle: mp.Handle[str]) -> bool:
    waiting = (await handle.status()).waiting
    return waiting is not None and bool(waiting.ask)


async def test_rejected_in_a_resend_is_asked_about_where_it_can_be(stage: Stage) -> None:
    bank = Bank("loses the answer", "refuses")
    flow = paying(tool_of(bank, stage.clock.now, effect="keyed", key_ttl="24h", visible_within="10s"))
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "effect_unknown")
        stage.clock.advance("1s")
        assert await handle.result(timeout="30s") == "receipt o-1"
        assert len(bank.calls) == 2
        assert len(bank.applied) == 1


async def test_an_absolute_effect_is_sent_again_with_its_precondition(stage: Stage) -> None:
    """A PUT with If-Match: the same again changes nothing more, and a newer writer is not overwritten."""

    class Page:
        text, version = "old", 1

    page = Page()
    calls: list[int] = []

    @mp.tool(effect="absolute")
    async def put(text: str, if_match: int) -> int:
        calls.append(if_match)
        if page.version != if_match:
            raise mp.Rejected("changed meanwhile")
        page.text = text
        if len(calls) == 1:
            raise RuntimeError("connection reset")
        page.version += 1
        return page.version

    @mp.workflow(version="1", tools=[put])
    async def flow(run: mp.Run) -> int:
        return await put("new", 1)

    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        await has_entry(app, handle.id, "effect_unknown")
        stage.clock.advance("1s")
        assert await handle.result(timeout="30s") == 2
        assert (page.text, calls) == ("new", [1, 1])


async def test_an_absolute_effect_whose_precondition_is_refused_goes_to_a_person(stage: Stage) -> None:
    calls: list[int] = []

    @mp.tool(effect="absolute")
    async def put(text: str, if_match: int) -> int:
        calls.append(if_match)
        raise RuntimeError("connection reset") if len(calls) == 1 else mp.Rejected("precondition failed")

    @mp.workflow(version="1", tools=[put])
    async def flow(run: mp.Run) -> int:
        return await put("new", 1)

    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        await has_entry(app, handle.id, "effect_unknown")
        stage.clock.advance("1s")
        await has_entry(app, handle.id, "attempt_settled")
        await parked(handle, "unknown")
        await until(lambda: _asks_int(handle))
        assert len(calls) == 2


async def _asks_int(handle: mp.Handle[int]) -> bool:
    waiting = (await handle.status()).waiting
    return waiting is not None and bool(waiting.ask)


async def test_a_changed_secret_refuses_the_resend(stage: Stage) -> None:
    """Requirement 49. A resend uses the credential of the first attempt, or is not made."""
    secrets = {"bank": "first-credential-value"}
    calls: list[str] = []

    @mp.tool(effect="keyed", key_ttl="24h")
    async def charge(call: mp.Call, order: str, cents: int) -> str:
        calls.append(call.secret("bank"))
        raise RuntimeError("connection reset")

    flow = paying(charge)
    async with stage.app(flow, still=True, secrets=lambda name: secrets[name]) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "effect_unknown")
        secrets["bank"] = "second-credential-value"
        stage.clock.advance("1s")
        await has_entry(app, handle.id, "attempt_settled")
        assert calls == ["first-credential-value"]
        settled = [line.fields for line in await app.inspect.journal(handle.id) if line.name == "attempt_settled"]
        assert "changed since the first attempt" in settled[0]["why"]
    record = stage.bytes_on_disk()
    assert b"credential_used" in record
    assert b"credential-value" not in record


async def test_a_secret_never_enters_the_store_and_its_fingerprint_does(stage: Stage) -> None:
    """Requirement 52."""

    @mp.tool(effect="keyed", key_ttl="24h")
    def charge(call: mp.Call, order: str, cents: int) -> str:
        return f"paid with {len(call.secret('bank'))} letters"

    flow = paying(charge)
    async with stage.app(flow, secrets=lambda _: "canary-5f2b91c0d7") as app:
        handle = await app.start(flow, "o-1")
        assert await handle.result(timeout="30s") == "paid with 17 letters"
        used = [line.fields for line in await app.inspect.journal(handle.id) if line.name == "credential_used"]
        assert used[0]["name"] == "bank"
        assert len(used[0]["fingerprint"]) == 16
        order = await names(app, handle.id)
        assert order.index("effect_started") < order.index("credential_used") < order.index("effect_confirmed")
    assert b"canary-5f2b91c0d7" not in stage.bytes_on_disk()


@pytest.mark.parametrize("scopes", [["pay"], []])
async def test_a_resend_needs_the_authority_that_the_run_holds_today(stage: Stage, scopes: list[str]) -> None:
    """Requirement 20. Requirement 49."""
    bank = Bank("loses the answer", "answers")
    flow = paying(tool_of(bank, stage.clock.now, effect="keyed", key_ttl="24h", asks=False, scopes=scopes))
    async with stage.app(flow, still=True) as app:
        authority = mp.Authority("bot", scopes=["pay"], expires="1h")
        handle = await app.start(flow, "o-1", authority=authority)
        await has_entry(app, handle.id, "effect_unknown")
        stage.clock.advance("2h")
        await has_entry(app, handle.id, "person_needed")
        assert len(bank.calls) == 1
        await has_outcome(app, handle.id, "flow/charge#1", "unknown")


@pytest.mark.parametrize("answer", ["answers", "loses the answer"])
async def test_a_free_read_is_never_in_doubt(stage: Stage, answer: str) -> None:
    bank = Bank(answer, "answers")  # type: ignore[arg-type]

    @mp.tool(effect="read", retry=mp.Retry(2, first="1ms"))
    async def charge(call: mp.Call, order: str, cents: int) -> str:
        return bank.charge(call, order, cents)

    flow = paying(charge)
    async with stage.app(flow) as app:
        handle = await app.start(flow, "o-1")
        assert await handle.result(timeout="30s") == "receipt o-1"
        assert not [name for name in await names(app, handle.id) if name.startswith("effect")]

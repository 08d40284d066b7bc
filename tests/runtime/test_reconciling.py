"""What nobody knows is asked about; what is not found is not believed before it must have shown."""

import threading
from typing import Any

import pytest

import milepost as mp
from tests.runtime.bank import Bank, paying, tool_of
from tests.runtime.stage import Stage, has_entry, has_outcome, names, parked, status_of, until


def queryable(stage: Stage, bank: Bank, **options: Any) -> mp.Tool[[str, int], str]:
    return tool_of(bank, stage.clock.now, effect="queryable", **{"visible_within": "30s", **options})


async def test_a_lost_answer_is_found_and_nothing_is_sent_again(stage: Stage) -> None:
    """Requirement 32. Requirement 46. Requirement 31. Requirement 29. Requirement 14."""
    bank = Bank("loses the answer")
    flow = paying(queryable(stage, bank))
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        assert await handle.result(timeout="30s") == "receipt o-1"
        assert len(bank.calls) == len(bank.applied) == 1
        seen = [name for name in await names(app, handle.id) if name.startswith(("effect", "finding"))]
        assert seen == ["effect_started", "effect_unknown", "finding_recorded", "effect_confirmed"]


async def test_absence_counts_after_the_bound_on_two_reads_apart_and_then_the_same_key_is_sent_again(
    stage: Stage,
) -> None:
    """Requirement 32. Requirement 33. Requirement 55. Each read, its time and its answer are in the record."""
    bank = Bank("loses the request", "answers")
    flow = paying(queryable(stage, bank))
    start = stage.clock.now()
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "finding_recorded")
        waiting = await parked(handle, "unknown")
        assert waiting.ask == ""
        stage.clock.advance("30s")
        await has_entry(app, handle.id, "finding_recorded", 2)
        await parked(handle, "unknown")
        assert len(bank.calls) == 1
        stage.clock.advance("3s")
        await has_outcome(app, handle.id, "flow/charge#1", "confirmed")
        stage.clock.advance("30s")
        assert await handle.result(timeout="30s") == "receipt o-1"
    assert [at - start for at in bank.asked] == [0, 30_000, 33_000, 63_000]
    (first, one), (second, two) = bank.calls
    assert (one, two) == (1, 2)
    assert first == second
    assert len(bank.applied) == 1


async def test_what_shows_late_is_found_and_not_sent_again(stage: Stage) -> None:
    """Requirement 32. Requirement 51. Not found at once proves nothing."""
    bank = Bank("loses the answer")
    bank.hidden = True
    flow = paying(queryable(stage, bank))
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "finding_recorded")
        await parked(handle, "unknown")
        bank.hidden = False
        stage.clock.advance("30s")
        assert await handle.result(timeout="30s") == "receipt o-1"
        assert len(bank.calls) == 1


async def test_the_bound_is_fixed_once_and_goes_on_over_restarts(stage: Stage) -> None:
    """Requirement 36. The quiet moment is not set again at each claim, or it would never be over."""
    bank = Bank("loses the request", "answers")
    flow = paying(queryable(stage, bank))
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "finding_recorded")
        await parked(handle, "unknown")
    for sent, asked in ((1, 1), (2, 1), (3, 2)):  # the bound of 30 s is over in the third
        stage.clock.advance("11s")
        async with stage.app(flow, still=True) as app:
            await parked(app.handle(handle.id), "unknown")
            await app.send(handle.id, "nothing", sent)
            await has_entry(app, handle.id, "signal_sent", sent)
            await has_entry(app, handle.id, "finding_recorded", asked)
            await parked(app.handle(handle.id), "unknown")
    stage.clock.advance("3s")
    async with stage.app(flow, still=True) as app:
        await has_outcome(app, handle.id, "flow/charge#1", "confirmed")
        assert len(bank.applied) == 1
        assert len({key for key, _ in bank.calls}) == 1


async def test_absence_never_counts_where_no_bound_is_declared(stage: Stage) -> None:
    bank = Bank("loses the request")
    flow = paying(queryable(stage, bank, visible_within=None))
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        waiting = await parked(handle, "unknown")
        await until(lambda: _asks(handle))
        waiting = (await handle.status()).waiting or waiting
        assert "--did-not-happen" in waiting.ask
        assert len(bank.calls) == 1


async def _asks(handle: mp.Handle[Any]) -> bool:
    waiting = (await handle.status()).waiting
    return waiting is not None and bool(waiting.ask)


async def test_what_was_sent_again_and_is_found_twice_is_a_contradiction(stage: Stage) -> None:
    """Requirement 39. The first request landed after it was proven absent: the run blocks and the tool is held."""
    bank = Bank("loses the request", "answers")
    tool = queryable(stage, bank)
    flow = paying(tool)
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "finding_recorded")
        await parked(handle, "unknown")
        stage.clock.advance("30s")
        await has_entry(app, handle.id, "finding_recorded", 2)
        stage.clock.advance("3s")
        await has_outcome(app, handle.id, "flow/charge#1", "confirmed")
        bank.applied.append((bank.calls[0][0], "o-1", 100))  # what was on the wire lands after all
        stage.clock.advance("30s")
        with pytest.raises(mp.RunBlocked) as blocked:
            await handle.result(timeout="30s")
        assert blocked.value.reason == "contradicted"
        assert [switch.scope for switch in await app.inspect.switches()] == ["tool:charge"]
        other = await app.start(flow, "o-2")
        await parked(other, "person")
        assert len(bank.calls) == 2
        await app.resolve(handle.id, "flow/charge#1", mp.happened("receipt o-1"), by="ann", why="one was refunded")
        await status_of(handle, "done")
        assert await app.inspect.switches() == []
        stage.clock.advance("5s")
        assert await other.result(timeout="30s") == "receipt o-2"


async def test_a_reconciler_that_cannot_say_is_asked_again_when_it_says(stage: Stage) -> None:
    bank = Bank("loses the answer")
    asked: list[int] = []

    @mp.tool(effect="queryable", visible_within="30s")
    async def charge(call: mp.Call, order: str, cents: int) -> str:
        return bank.charge(call, order, cents)

    @charge.reconcile
    def find(order: str, cents: int) -> mp.Finding[str]:
        asked.append(stage.clock.now())
        return mp.still_unknown(ask_again="10m") if len(asked) == 1 else mp.happened("receipt")

    flow = paying(charge)
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "finding_recorded")
        assert (await parked(handle, "unknown")).ask == ""
        stage.clock.advance("9m")
        await parked(handle, "unknown")
        assert len(asked) == 1
        stage.clock.advance("1m")
        assert await handle.result(timeout="30s") == "receipt"


async def test_an_exception_in_a_reconciler_says_nothing_and_is_kept_as_evidence(stage: Stage) -> None:
    """Requirement 39."""
    bank = Bank("loses the answer")
    bank.broken = True
    flow = paying(queryable(stage, bank))
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "finding_recorded")
        findings = [line.fields for line in await app.inspect.journal(handle.id) if line.name == "finding_recorded"]
        assert findings[0]["answer"] == "still_unknown"
        assert findings[0]["evidence"] == "ConnectionError: the search is down"
        bank.broken = False
        stage.clock.advance("1s")
        assert await handle.result(timeout="30s") == "receipt o-1"
        assert len(bank.calls) == 1


async def test_a_finding_whose_value_cannot_be_stored_says_nothing(stage: Stage) -> None:
    bank = Bank("loses the answer")
    values: list[Any] = [7, "receipt"]

    @mp.tool(effect="queryable", visible_within="30s")
    async def charge(call: mp.Call, order: str, cents: int) -> str:
        return bank.charge(call, order, cents)

    @charge.reconcile
    async def find(call: mp.Call, order: str, cents: int) -> mp.Finding[str]:
        return mp.happened(values.pop(0))

    flow = paying(charge)
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "finding_recorded")
        stage.clock.advance("1m")
        assert await handle.result(timeout="30s") == "receipt"


async def test_a_reconciler_that_returns_no_finding_says_nothing(stage: Stage) -> None:
    bank = Bank("loses the answer")
    answers: list[Any] = [True, mp.happened("receipt")]

    @mp.tool(effect="queryable", visible_within="30s")
    async def charge(call: mp.Call, order: str, cents: int) -> str:
        return bank.charge(call, order, cents)

    @charge.reconcile
    async def find(order: str, cents: int) -> mp.Finding[str]:
        found: mp.Finding[str] = answers.pop(0)
        return found

    flow = paying(charge)
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "finding_recorded")
        stage.clock.advance("1m")
        assert await handle.result(timeout="30s") == "receipt"


async def test_a_finding_of_refusal_fails_the_step_for_good(stage: Stage) -> None:
    """Requirement 30. Positive evidence that it did not happen."""
    bank = Bank("loses the request")

    @mp.tool(effect="queryable", visible_within="30s")
    async def charge(call: mp.Call, order: str, cents: int) -> str:
        return bank.charge(call, order, cents)

    @charge.reconcile
    async def find(order: str, cents: int) -> mp.Finding[str]:
        return mp.rejected("card stolen")

    flow = paying(charge)
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        with pytest.raises(mp.RunFailed, match="card stolen"):
            await handle.result(timeout="30s")
        assert len(bank.calls) == 1


async def test_a_conflict_needs_a_person_and_holds_the_tool_until_it_is_resolved(stage: Stage) -> None:
    """Requirement 39. Requirement 46."""
    bank = Bank("loses the answer", "answers")
    bank.applied.append(("another key", "o-1", 900))

    @mp.tool(effect="queryable", visible_within="30s")
    async def charge(call: mp.Call, order: str, cents: int) -> str:
        return bank.charge(call, order, cents)

    @charge.reconcile
    async def find(call: mp.Call, order: str, cents: int) -> mp.Finding[str]:
        found = [entry for entry in bank.applied if entry[1] == order]
        return mp.happened("receipt") if len(found) == 1 else mp.conflict(found)

    flow = paying(charge)
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        waiting = await parked(handle, "unknown")
        await until(lambda: _asks(handle))
        waiting = (await handle.status()).waiting or waiting
        assert f"milepost resolve {handle.id} flow/charge#1" in waiting.ask
        other = await app.start(flow, "o-2")
        held = await parked(other, "person")
        assert "tool:charge" in held.ask
        assert len(bank.calls) == 1
        await app.resolve(handle.id, "flow/charge#1", mp.happened("receipt o-1"), by="ann", why="counted by hand")
        assert await handle.result(timeout="30s") == "receipt o-1"
        stage.clock.advance("5s")
        assert await other.result(timeout="30s") == "receipt o-2"
        system = stage.rows("SELECT body FROM mp_journal WHERE run = 0 ORDER BY seq")
        assert [b"switch_set" in system[0][0], b"switch_lifted" in system[1][0]] == [True, True]


async def test_resolving_another_unknown_of_the_tool_does_not_lift_the_hold(stage: Stage) -> None:
    flow = paying(tool_of(Bank("loses the answer"), stage.clock.now, effect="irreversible", asks=False))
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        await parked(handle, "unknown")
        stage.write("INSERT INTO mp_switches VALUES ('tool:charge', 'hold', 'x', 'a conflict', 'another run', 0)")
        await app.resolve(handle.id, "flow/charge#1", mp.happened("receipt"), by="ann", why="looked")
        assert await handle.result(timeout="30s") == "receipt"
        assert [switch.scope for switch in await app.inspect.switches()] == ["tool:charge"]


async def test_an_attempt_whose_thread_still_runs_is_not_quiet_so_its_absence_proves_nothing(stage: Stage) -> None:
    """A request that has not ended may still land, however long it takes."""
    bank = Bank("loses the request", "answers")
    go_on = threading.Event()

    @mp.tool(effect="queryable", visible_within="30s", timeout="100ms", retry=mp.Retry(5))
    def charge(call: mp.Call, order: str, cents: int) -> str:
        if call.attempt == 1:
            go_on.wait(60)
        return bank.charge(call, order, cents)

    @charge.reconcile
    async def find(call: mp.Call, order: str, cents: int) -> mp.Finding[str]:
        return bank.find(call, stage.clock.now())

    flow = paying(charge)
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "effect_unknown")
        for minutes in range(1, 4):
            stage.clock.advance("1h")
            await has_entry(app, handle.id, "finding_recorded", minutes)
        assert bank.calls == []
        assert "attempt_quieted" not in await names(app, handle.id)
        assert len(bank.asked) < 50
        go_on.set()
        await has_entry(app, handle.id, "attempt_quieted")
        quiet = stage.clock.now()

        async def sent_again() -> bool:
            stage.clock.advance("100ms")
            return len(bank.calls) > 1

        await until(sent_again)
        assert stage.clock.now() >= quiet + 33_000
        assert len(bank.calls) == 2
        assert len({key for key, _ in bank.calls}) == 1

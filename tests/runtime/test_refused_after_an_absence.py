"""A refusal after an earlier attempt was proven absent speaks for itself alone: the absent one may still land."""

import milepost as mp
from tests.runtime.bank import Bank, paying, tool_of
from tests.runtime.stage import Stage, has_entry, names, parked

LARGE = 300 * 1024


async def test_a_refusal_after_an_absence_settles_its_own_attempt_and_it_is_asked_again(stage: Stage) -> None:
    """Requirement 31. Requirement 32."""
    bank = Bank("loses the request", "refuses")
    flow = paying(tool_of(bank, stage.clock.now, effect="queryable", visible_within="30s"))
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "o-1")
        await has_entry(app, handle.id, "finding_recorded")
        stage.clock.advance("30s")
        await has_entry(app, handle.id, "finding_recorded", 2)
        stage.clock.advance("3s")

        await has_entry(app, handle.id, "attempt_settled")

        lines = await app.inspect.journal(handle.id)
        failed = [line.fields["reason"] for line in lines if line.name == "effect_failed"]
        settled = [(line.fields["attempt"], line.fields["reason"]) for line in lines if line.name == "attempt_settled"]
        assert (failed, settled) == (["absent"], [(2, "rejected")])
        assert [view.outcome for view in await app.inspect.effects(handle.id)] == ["unknown"]


async def test_a_large_outcome_that_was_taken_over_is_there_after_a_restart(stage: Stage) -> None:
    @mp.tool(effect="keyed", key_ttl="1h", once="order")
    async def print_invoice(order: str) -> str:
        return order * LARGE

    @mp.workflow(version="1", name="invoicing", tools=[print_invoice])
    async def invoicing(run: mp.Run) -> int:
        invoice = await print_invoice("a")
        await run.receive("go", int)
        return len(invoice)

    async with stage.app(invoicing) as app:
        first, second = [await app.start(invoicing) for _ in range(2)]
        for handle in (first, second):
            await parked(handle, "signal")
    async with stage.app(invoicing) as app:
        for handle in (first, second):
            await app.send(handle.id, "go", 1)
            assert await app.handle(handle.id, invoicing).result(timeout="30s") == LARGE
            assert (await names(app, handle.id)).count("effect_confirmed") == 1

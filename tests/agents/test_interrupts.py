"""An agent whose authority expires, or that an operator stops: what was asked and done is not asked or done again."""

import pytest

import milepost as mp
from milepost import agents
from tests.agents.desks import PLENTY, Desk
from tests.runtime.stage import Stage, parked

REFUND = agents.call("refund", order="o-1", cents=300)
BOTH = agents.together(REFUND, agents.call("write_to", to="ann"))


def scoped(desk: Desk) -> list[mp.Tool[..., object]]:
    """Return the desk's tools, and one that needs a scope."""

    @mp.tool(scopes=["mail:send"])
    async def write_to(to: str) -> str:
        """Write to a customer."""
        desk.done.append(f"write_to {to}")
        return "written"

    return [*desk.tools, write_to]


async def test_an_authority_that_expires_between_two_turns_sends_nothing_more_and_leaves_a_known_state(
    stage: Stage,
) -> None:
    """Requirement 18. Requirement 49. The credential's expiry: what was done is on record, what waits was not sent."""
    desk = Desk()

    def later(_: agents.Request) -> agents.Reply:
        stage.clock.advance("2h")
        return BOTH

    agent = desk.agent(agents.call("write_to", to="bob"), later, "never said", tools=scoped(desk))
    authority = mp.Authority("desk", scopes=["mail:send"], expires="1h")
    async with stage.app(agent.workflow, still=True) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=PLENTY, authority=authority)
        waiting = await parked(handle, "authority")
        assert "expired" in waiting.ask
    async with stage.app(agent.workflow, still=True) as app:
        await app.grant(handle.id, scopes=["mail:send"], by="me")  # of what has expired there is no more
        await parked(app.handle(handle.id), "authority")
        outcomes = [(one.tool, one.outcome) for one in await app.inspect.effects(handle.id)]
        await app.cancel(handle.id, why="start again", by="me")

    assert [(tool, came) for tool, came in outcomes if not tool.startswith("ask.")] == [
        ("write_to", "confirmed"), ("refund", "not_started"), ("write_to", "not_started"),
    ]  # fmt: skip
    assert desk.done == ["write_to bob"]
    assert len(desk.asked) == 2


async def test_an_operator_who_holds_a_tool_stops_its_calls_alone_and_the_batch_goes_on_when_it_is_let_go(
    stage: Stage,
) -> None:
    """Requirement 18. The interrupt outlives the process, and neither the model nor the sibling is asked again."""
    desk = Desk()
    agent = desk.agent(BOTH, "Done.", tools=scoped(desk))
    authority = mp.Authority("desk", scopes=["mail:send"])
    async with stage.app(agent.workflow) as app:
        await app.freeze("tool:write_to", by="me", why="too many mails")
        handle = await app.start(agent.workflow, agents.Task("x"), budget=PLENTY, authority=authority)
        await parked(handle, "switch")
        assert desk.done == ["refund o-1 300"]
    async with stage.app(agent.workflow) as app:
        await app.thaw("tool:write_to", by="me", why="enough read")

        assert await app.handle(handle.id, agent.workflow).result(timeout="60s") == "Done."
    assert desk.done == ["refund o-1 300", "write_to ann"]
    assert len(desk.asked) == 2


async def test_an_operator_who_cancels_while_a_call_waits_leaves_what_was_done_on_record_and_asks_nothing_more(
    stage: Stage,
) -> None:
    """Requirement 18. Requirement 60."""
    desk = Desk()
    agent = desk.agent(BOTH, "never said", tools=scoped(desk))
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=PLENTY)  # it holds no scope, and waits
        await parked(handle, "authority")
        await app.cancel(handle.id, why="enough", by="me")
        with pytest.raises(mp.RunCancelled, match="enough"):
            await handle.result(timeout="60s")

        effects = {one.tool: one.outcome for one in await app.inspect.effects(handle.id)}
        assert (effects["refund"], effects["write_to"]) == ("confirmed", "not_started")
    assert desk.done == ["refund o-1 300"]
    assert len(desk.asked) == 1

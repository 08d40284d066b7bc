"""A real agent host behind the gateway, unchanged: the OpenAI Agents SDK, its own MCP client and scripted model."""

from typing import Any

from agents import Agent, RunConfig, Runner
from agents.mcp import MCPServerStreamableHttp
from agents.testing import ScriptedModel, assistant_message, function_call

from tests.adapters.mcp.town import TOKENS, Town


async def played(address: str, order: str) -> tuple[list[str], str]:
    """Let the agent make two calls at once, and answer; return what the tools told it, and its answer."""
    model = ScriptedModel(
        [
            [
                function_call("bank_charge", {"order": order, "cents": 5}, call_id="call_1"),
                function_call("bank_mail", {"to": order}, call_id="call_2"),
            ],
            [assistant_message("all done")],
        ]
    )
    headers = {"Authorization": f"Bearer {TOKENS['DESK_TOKEN']}"}
    async with MCPServerStreamableHttp(
        {"url": address, "headers": headers}, client_session_timeout_seconds=30
    ) as server:
        agent = Agent(name="clerk", model=model, mcp_servers=[server])
        result = await Runner.run(agent, "charge it", run_config=RunConfig(tracing_disabled=True))
    outputs: list[Any] = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    return [str(output) for output in outputs], str(result.final_output)


async def test_an_agent_host_that_forgot_its_turn_and_plays_it_again_does_nothing_twice(
    town: Town, address: str, order: str
) -> None:
    """Requirement 16. Requirement 53. The turn is lost with its transcript; what was done is not."""
    first, second = await played(address, order), await played(address, order)

    assert (first[1], second[1]) == ("all done", "all done")
    assert f"receipt {order}" in first[0][0]
    assert ["nothing was done now" in told for told in (*first[0], *second[0])] == [False, False, True, True]
    assert f"receipt {order}" in second[0][0]
    assert (len(town.ledger("charge", order)), len(town.ledger("mail", order))) == (1, 1)

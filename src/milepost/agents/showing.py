"""A conversation as it stands now, also in the middle of a turn and after the end.

A call that is not settled is shown as what it is, under an outcome of its own and in words that invite nobody to repeat
it, and never as a failure. What `history` returns is always a history that a provider would take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from milepost.agents.messages import Answer, CallOutcome, Conversation, Message, Reply, ToolCall
from milepost.agents.results import FINAL
from milepost.agents.turns import TOO_EARLY, denied, failed, invalid, unknown_tool
from milepost.errors import InvalidArguments

if TYPE_CHECKING:
    from milepost.agents.agent import Agent
    from milepost.app import App
    from milepost.operations.inspection import StepView

TURN = "turn"
SAYS: dict[str, str] = {
    "not_started": "It has not been made yet: it waits, or its turn has not come.",
    "started": "It is being made. Its outcome is not known yet.",
    "unknown": "Nobody knows yet whether it was done. That is being found out; it must not be made again.",
}


async def history(app: App, agent: Agent[Any], run_id: str) -> list[Message]:
    """Return the conversation of a run of an agent, from its verified record; empty before the first turn.

    A final answer is in it as the model gave it. Raises UnknownRun, Damaged; the app has to be open.
    """
    visit = await app.inspect.visit(await app.inspect.id(run_id), TURN)
    if visit is None:
        return []
    messages = list(msgspec.convert(visit.state, Conversation).messages)
    asked = next((step for step in visit.steps if step.tool == agent.asks and step.outcome == "confirmed"), None)
    if asked is None:
        return messages
    reply = msgspec.convert(asked.result, Reply)
    made = {step.step: step for step in visit.steps if step is not asked}
    ending = {
        call.id: _ending(agent, call, alone=len(reply.calls) == 1)
        for call in reply.calls
        if agent.ends_by_call and call.tool == FINAL
    }
    arms = iter(range(len(reply.calls)))  # the calls that are made are arms of the turn's `map`, in order
    return [
        *messages,
        reply,
        *(
            ending[call.id] if call.id in ending else _answer(agent, call, made.get(f"1.{next(arms)}:0"))
            for call in reply.calls
        ),
    ]


def _ending(agent: Agent[Any], call: ToolCall, *, alone: bool) -> Answer:
    """Return how a call of the final answer came out: the turn takes it, or sends it back."""
    why = agent.refusal(call.arguments) if alone else TOO_EARLY
    return Answer(call.id, FINAL, "invalid" if why else "confirmed", why or "That is the result.")


def _answer(agent: Agent[Any], call: ToolCall, step: StepView | None) -> Answer:
    tool = agent.workflow.tools.get(call.tool)
    if tool is None:
        return unknown_tool(call, agent.tools)
    if step is None:
        try:
            tool.arguments.from_json(call.arguments)
        except InvalidArguments as error:
            return invalid(call, error)
        return Answer(call.id, call.tool, "not_started", SAYS["not_started"])
    if step.outcome == "failed":
        return denied(call, step.why) if step.denied else failed(call, step.why)
    if step.outcome == "confirmed":
        text = step.result if isinstance(step.result, str) else msgspec.json.encode(step.result).decode()
        return Answer(call.id, call.tool, "confirmed", text)
    return Answer(call.id, call.tool, cast("CallOutcome", step.outcome), SAYS[step.outcome])

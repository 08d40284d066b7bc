"""A refund desk as an agent, its tools over a list that stands for the outside world."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import milepost as mp
from milepost import agents
from milepost.agents.scripted import Line

PLENTY: dict[str, int] = {"turns": 50}


@dataclass
class Decision:
    """What the desk decides."""

    refunded: bool
    why: str


@dataclass
class Desk:
    """What a desk did, what its model was asked, and its tools."""

    done: list[str] = field(default_factory=list)
    asked: list[agents.Request] = field(default_factory=list)
    tools: list[mp.Tool[..., Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the tools."""

        @mp.tool(effect="read")
        async def look_up(order: str) -> dict[str, int]:
            """Look an order up."""
            self.done.append(f"look_up {order}")
            if order == "none":
                raise mp.Rejected("no such order")
            return {"cents": 300}

        @mp.tool(effect="keyed", key_ttl="24h")
        async def refund(order: str, cents: int) -> str:
            """Pay an order back."""
            self.done.append(f"refund {order} {cents}")
            return "paid back"

        @mp.tool(approval=True)
        async def mail(to: str, body: str) -> None:
            """Write to a customer."""
            self.done.append(f"mail {to}")

        self.tools = [look_up, refund, mail]

    def script(self, *lines: Line) -> agents.ScriptedModel:
        """Return a model with these lines that remembers what it was asked."""

        def heard(line: Line) -> Line:
            def answer(request: agents.Request) -> str | agents.Reply:
                self.asked.append(request)
                said: Any = line
                if isinstance(said, list):
                    said = said[min(request.attempt, len(said)) - 1]
                if isinstance(said, Exception):
                    raise said
                heard_: str | agents.Reply = said(request) if callable(said) else said
                return heard_

            return answer

        return agents.ScriptedModel(*(heard(line) for line in lines))

    def agent(self, *lines: Line, **options: Any) -> agents.Agent[Any]:
        """Return the desk's agent, whose model says these lines."""
        given = {"version": "1", "result": str, "tools": self.tools, "instructions": "Be kind.", **options}
        given.setdefault("retry", mp.Retry(3, first="1ms"))
        return agents.Agent("refund-desk", **{"model": self.script(*lines), **given})


def answers(request: agents.Request) -> list[agents.Answer]:
    """Return the answers that a model was shown."""
    return [message for message in request.messages if isinstance(message, agents.Answer)]


def with_usage(reply: agents.Reply, given: agents.Usage) -> Callable[[agents.Request], agents.Reply]:
    """Return a line that used so many tokens."""
    return lambda _: agents.Reply(reply.text, reply.calls, usage=given)

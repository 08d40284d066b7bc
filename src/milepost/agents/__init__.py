"""Agents: a model that calls tools, turn by turn, as a run that may be killed at any instruction.

    desk = agents.Agent("refund-desk", version="1", model="anthropic:…", result=Decision, tools=[look_up, refund])
    app = mp.App("sqlite:///milepost.db", workflows=[desk.workflow])
    decision = app.run(desk.workflow, agents.Task("…"), key="ticket-42", budget=desk.budget)

A turn is a segment: the model is asked (a read that costs, recorded before any of its calls is planned), its calls are
made at once, each as a step, and a checkpoint says what came of them. Models come through pydantic-ai's model classes
(extra `agents`), or are anything with one method, `Model.ask`; `ScriptedModel` needs no extra.
"""

from milepost.agents.agent import Agent
from milepost.agents.limits import Limits, Price
from milepost.agents.messages import (
    Answer,
    Conversation,
    Message,
    Reply,
    Task,
    ToolCall,
    TranscriptOnly,
    Usage,
    Words,
)
from milepost.agents.models import (
    ContextTooLong,
    Model,
    ModelFailed,
    ModelRefused,
    ModelUnauthorized,
    ModelUnpaid,
    Request,
    Said,
    ToolSpec,
)
from milepost.agents.results import ResultInvalid
from milepost.agents.scripted import ScriptedModel, call, final, together
from milepost.agents.showing import history
from milepost.agents.streaming import Screen

__all__ = [
    "Agent",
    "Answer",
    "ContextTooLong",
    "Conversation",
    "Limits",
    "Message",
    "Model",
    "ModelFailed",
    "ModelRefused",
    "ModelUnauthorized",
    "ModelUnpaid",
    "Price",
    "Reply",
    "Request",
    "ResultInvalid",
    "Said",
    "Screen",
    "ScriptedModel",
    "Task",
    "ToolCall",
    "ToolSpec",
    "TranscriptOnly",
    "Usage",
    "Words",
    "call",
    "final",
    "history",
    "together",
]

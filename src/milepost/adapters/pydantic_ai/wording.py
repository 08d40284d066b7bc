"""Between the framework's values and the record's: what was asked, what a tool gave, what a response cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, ToolCallPart
from pydantic_ai.tools import ToolDefinition
from pydantic_core import to_jsonable_python

from milepost.adapters.calls import digest_of, numbered

SAID = ("part_kind", "content", "tool_name", "args", "tool_call_id")
RETURNED = {"tool_return", "tool_content_result"}
WANTS_APPROVAL = "approval_required"
HANDED_OVER = "call_deferred"


def asked(operation: str, messages: Sequence[ModelMessage]) -> str:
    """Return the digest of a question: what was said so far, without times, ids of runs, and standing instructions.

    Instructions are often made anew (today's date), and do not make another question of the same conversation.
    """
    said = [
        [{name: part[name] for name in SAID if name in part} for part in message["parts"] if _is_said(part)]
        for message in ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    ]
    return digest_of(operation, said)


def _is_said(part: Mapping[str, Any]) -> bool:
    return bool(part["part_kind"] != "system-prompt")


def call_id(id_: str, messages: Sequence[ModelMessage]) -> str:
    """Return the model's id of a call; where a model gives one id again in a conversation, the calls are numbered."""
    calls = (part for one in messages if isinstance(one, ModelResponse) for part in one.parts)
    made = sum(isinstance(part, ToolCallPart) and part.tool_call_id == id_ for part in calls)
    return numbered(id_, made)


def arguments_of(definition: ToolDefinition | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments as JSON, one a property of the tool's schema.

    The framework lets a function take one model for all of them.
    """
    arguments: dict[str, Any] = to_jsonable_python(dict(given))
    properties = (definition.parameters_json_schema if definition else {}).get("properties", {})
    if len(arguments) == 1 and not arguments.keys() & properties.keys():
        only = next(iter(arguments.values()))
        return only if isinstance(only, dict) else arguments
    return arguments


def plain(payload: Any) -> Any:
    """Return what is recorded of a tool's return: its bare result, as a person who settles it would write it."""
    if payload.get("kind") == "tool_return" and payload.keys() == {"kind", "result"}:
        result = payload["result"]
        if not (isinstance(result, dict) and "kind" in result):
            return result
    return payload


def payload_of(recorded: Any) -> Any:
    """Return the framework's form of what is recorded."""
    if isinstance(recorded, dict) and isinstance(recorded.get("kind"), str):
        return recorded
    return {"kind": "tool_return", "result": recorded}


def measured(response: ModelResponse) -> dict[str, Decimal | int]:
    """Return what a response cost per unit, as far as that is known."""
    usage = response.usage
    found: dict[str, Decimal | int] = {"requests": 1}
    if usage.has_values():
        tokens = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        found.update(tokens, tokens=usage.total_tokens)
    with suppress(AssertionError, LookupError, ValueError):  # a model without a known price: the worst case stands
        found["usd"] = response.cost().total_price
    return found

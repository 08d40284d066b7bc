"""Asking another tool of the same server whether an attempt happened.

    [server.bank.tool.charge.reconcile]
    tool = "find_charge"                      # a tool that only reads
    arguments = { order = "$args.order" }     # $args.NAME is what was sent, $key is our key
    happened = { "structured.found" = true }  # all of these
    absent = { "structured.found" = false }
    same = { "structured.cents" = "$args.cents" }

A path goes into the answer: `structured` is its structured content, `text` its text, `json` that text read as JSON;
then names, and numbers into lists. What fits neither `happened` nor `absent`, and an error, means *still unknown*. What
happened with another value than `same` says is a conflict: a person decides. The answer of the asked tool stands as the
result of the one whose answer was lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from milepost.adapters.mcp import sending
from milepost.definitions import call as findings

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from milepost.adapters.mcp.connection import Connection
    from milepost.adapters.mcp.gateway.config import Asked
    from milepost.definitions.call import Call, Finding

MISSING = object()
ARGUMENT = "$args."


def reconciler(connection: Connection, asked: Asked) -> Callable[..., Any]:
    """Return what asks for one attempt; it is given the call and the arguments of the tool."""

    async def find(call: Call, **arguments: Any) -> Finding[Any]:
        given = {name: filled(value, call.key, arguments) for name, value in asked.arguments.items()}
        async with connection.use() as client:
            answer = await client.call_tool(asked.tool, given, read_timeout_seconds=30)
        return judged(asked, answer, call.key, arguments)

    return find


def judged(asked: Asked, answer: CallToolResult, key: str, arguments: Mapping[str, Any]) -> Finding[Any]:
    """Return what an answer says of the attempt with this key and these arguments."""
    if answer.is_error:
        return findings.still_unknown()
    seen = view(answer)

    def holds(conditions: Mapping[str, Any]) -> bool:
        return all(_same(at(seen, path), filled(value, key, arguments)) for path, value in conditions.items())

    happened, absent = holds(asked.happened), bool(asked.absent) and holds(asked.absent)
    if happened and absent:
        return findings.still_unknown()
    if happened:
        return findings.happened(sending.as_json(answer)) if holds(asked.same) else findings.conflict(seen)
    return findings.did_not_happen() if absent else findings.still_unknown()


def _same(found: Any, wanted: Any) -> bool:
    """Say whether two values are the same JSON; what is not there is the same as nothing, and true is not 1."""
    if found is MISSING or wanted is MISSING or isinstance(found, bool) is not isinstance(wanted, bool):
        return False
    return bool(found == wanted)


def view(answer: CallToolResult) -> dict[str, Any]:
    """Return an answer as paths see it."""
    text = sending.text_of(answer)
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    return {"structured": answer.structured_content, "text": text, "json": parsed}


def at(value: Any, path: str) -> Any:
    """Return what a path leads to; MISSING where it leads nowhere."""
    for part in path.split("."):
        if isinstance(value, dict):
            value = value.get(part, MISSING)
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return MISSING
    return value


def filled(value: Any, key: str, arguments: Mapping[str, Any]) -> Any:
    """Return a value of the file, where it is a text that names something, what it names."""
    if value == "$key":
        return key
    if isinstance(value, str) and value.startswith(ARGUMENT):
        return at(dict(arguments), value.removeprefix(ARGUMENT))
    return value

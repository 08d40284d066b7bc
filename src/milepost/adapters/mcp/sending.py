"""One call of an MCP tool, and what its answer proves.

A logical call may be several messages: the client answers what a server asks back, and sends once more after a header
that did not fit. All of them carry the same key in `_meta`, because the call is what is wrapped, not the message.

| what comes back | what it proves | so |
|---|---|---|
| a result | that the tool ran | confirmed |
| a result with `isError` | that the server is unhappy; not that nothing was done | unknown, unless declared otherwise |
| an error of the protocol | no more: a tool may raise it halfway | unknown |
| nothing: a timeout, a broken connection | nothing | unknown |
| no connection could be made | that nothing was sent | not sent, and tried again |

Who knows that a server refuses before it acts declares `errors="rejected"`: then `isError` is a refusal, and final.
In a read every one of these is simply a failure, and the call may be made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.validators import validator_for
from mcp_types import CallToolResult, TextContent
from pydantic import ValidationError
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, UnknownDialect

from milepost.errors import InvalidArguments, InvalidDeclaration, MilepostError, Rejected

if TYPE_CHECKING:
    from milepost.adapters.mcp.connection import Connection
    from milepost.definitions.call import Call
    from milepost.definitions.tools import Tool

KEY = "milepost/key"
ATTEMPT = "milepost/attempt"
SAID_MAX = 500
TO_CONNECT = 0.9  # of an attempt's time: then nothing was sent for certain, before its time is up

Errors = Literal["unknown", "rejected"]


class NoProof(MilepostError):
    """A server answered with an error, which does not prove that nothing was done."""

    code = "no_proof"

    def __init__(self, server: str, tool: str, said: str) -> None:
        super().__init__(
            f"{server} answered {tool} with an error, which does not prove that nothing was done: {said}. If this "
            'server always refuses before it acts, declare the tool with errors="rejected".'
        )


async def send(
    connection: Connection, tool: str, arguments: Mapping[str, Any], call: Call, *, errors: Errors = "unknown"
) -> dict[str, Any]:
    """Send one call and return its result as JSON. Raises NotSent, Rejected; what else it raises proves nothing."""
    meta: Any = {KEY: call.key, ATTEMPT: call.attempt}
    async with connection.use(_left_s(call) * TO_CONNECT) as client:
        result = await client.call_tool(tool, dict(arguments), read_timeout_seconds=_left_s(call), meta=meta)
    if result.is_error:
        said = text_of(result) or "no reason given"
        if errors == "rejected":
            raise Rejected(said)
        raise NoProof(connection.name, tool, said)
    return as_json(result)


def _left_s(call: Call) -> float:
    return max((call.deadline - datetime.now(UTC)).total_seconds(), 0.001)


def fitting(tool: Tool[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArguments where arguments do not fit the schema of a tool, before anything is recorded or sent.

    Its server would say so too, but an error from there proves nothing.
    """
    schema = dict(tool.parameters)
    try:
        wrong = best_match(_dialect(schema)(schema, registry=Registry()).iter_errors(dict(arguments)))
    except RecursionError as error:
        raise InvalidArguments(tool.name, "they are nested too deeply") from error
    if wrong is not None:
        where = ".".join(str(part) for part in wrong.absolute_path)
        said = wrong.message if len(wrong.message) <= SAID_MAX else f"{wrong.message[:SAID_MAX]}…"
        raise InvalidArguments(tool.name, f"{where}: {said}" if where else said)


def checked_schema(schema: Mapping[str, Any], tool: str) -> None:
    """Raise InvalidDeclaration for a schema by which no arguments can be checked.

    One that points outside of itself is none: nothing is fetched for it, as its server could name any address.
    """
    whole = dict(schema)
    try:
        dialect = _dialect(whole)
        dialect.check_schema(whole, format_checker=dialect.FORMAT_CHECKER)
        resolver = Registry().resolver_with_root(Resource.from_contents(whole, default_specification=DRAFT202012))
        for points_to in _references(whole):
            resolver.lookup(points_to)
    except (SchemaError, Unresolvable, UnknownDialect, RecursionError) as error:
        said = error.message if isinstance(error, SchemaError) else f"cannot be followed: {error}"
        raise InvalidDeclaration(f"the schema of tool {tool} is no JSON schema by itself: {said}.") from error


def _dialect(schema: Mapping[str, Any]) -> Any:
    return validator_for(schema, default=Draft202012Validator)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        parts: Any = [part for word, part in schema.items() if word not in {"const", "enum", "default", "examples"}]
    else:
        parts = schema if isinstance(schema, list) else []
    for part in parts:
        yield from _references(part)


def as_json(result: CallToolResult) -> dict[str, Any]:
    """Return a result as it is recorded: the wire's own JSON, without what the transport added."""
    recorded: dict[str, Any] = result.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta"})
    return recorded


def from_json(recorded: Any) -> CallToolResult:
    """Return the result that was recorded. What a person typed who resolved the call need not look like one."""
    if isinstance(recorded, dict) and "content" in recorded:
        with suppress(ValidationError):
            return CallToolResult.model_validate(recorded)
    text = recorded if isinstance(recorded, str) else msgspec.json.encode(recorded).decode()
    structured = recorded if isinstance(recorded, dict) else None
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=structured)


def text_of(result: CallToolResult) -> str:
    """Return what a result says in words."""
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))

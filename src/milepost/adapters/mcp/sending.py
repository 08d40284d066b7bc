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

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from mcp_types import CallToolResult, TextContent

from milepost.errors import InvalidArguments, MilepostError, Rejected

if TYPE_CHECKING:
    from milepost.adapters.mcp.connection import Connection
    from milepost.definitions.call import Call
    from milepost.definitions.tools import Tool

KEY = "milepost/key"
ATTEMPT = "milepost/attempt"

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
    client = await connection.client()
    meta: Any = {KEY: call.key, ATTEMPT: call.attempt}
    left = max((call.deadline - datetime.now(UTC)).total_seconds(), 0.001)
    try:
        result = await client.call_tool(tool, dict(arguments), read_timeout_seconds=left, meta=meta)
    except BaseException:
        connection.broken(client)
        raise
    if result.is_error:
        said = text_of(result) or "no reason given"
        if errors == "rejected":
            raise Rejected(said)
        raise NoProof(connection.name, tool, said)
    return as_json(result)


def fitting(tool: Tool[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArguments where arguments do not fit the schema of a tool, before anything is recorded or sent.

    Its server would say so too, but an error from there proves nothing.
    """
    wrong = best_match(Draft202012Validator(dict(tool.parameters)).iter_errors(dict(arguments)))
    if wrong is not None:
        where = ".".join(str(part) for part in wrong.absolute_path)
        raise InvalidArguments(tool.name, f"{where}: {wrong.message}" if where else wrong.message)


def as_json(result: CallToolResult) -> dict[str, Any]:
    """Return a result as it is recorded: the wire's own JSON, without what the transport added."""
    recorded: dict[str, Any] = result.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta"})
    return recorded


def from_json(recorded: Mapping[str, Any]) -> CallToolResult:
    """Return the result that was recorded."""
    return CallToolResult.model_validate(dict(recorded))


def text_of(result: CallToolResult) -> str:
    """Return what a result says in words."""
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))

"""What a host is told: a recorded result as it was, and all else in words that invite nobody to try again.

A call that waits is no failure, so it does not look like one (`isError` is false): hosts try failures again. What a
program wants to know stands in `_meta`: `milepost/outcome` (confirmed, failed, or waiting), `milepost/reason`,
`milepost/run`, `milepost/call`, and `milepost/recorded` where nothing was sent for this request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp_types import CallToolResult, TextContent

from milepost.adapters.mcp import sending
from milepost.adapters.saying import to_model, to_person
from milepost.definitions.call import Confirmed, Failed
from milepost.errors import Diverged, InvalidArguments, MilepostError, RunBlocked, RunEnded, RunHeld

if TYPE_CHECKING:
    from milepost.adapters.mcp.gateway.calls import Attempted

META = "milepost/"


def answer(attempted: Attempted, tool: str) -> CallToolResult:
    """Return what the host is told of a call."""
    outcome = attempted.outcome
    meta: dict[str, Any] = {META + "run": attempted.run_id}
    if attempted.id:
        meta[META + "call"] = attempted.id
    if attempted.recorded:
        meta[META + "recorded"] = True
    if isinstance(outcome, Confirmed):
        result = sending.from_json(outcome.value)
        content = [_text(again(attempted, tool)), *result.content] if attempted.recorded else result.content
        return result.model_copy(update={"content": content, "meta": {**meta, META + "outcome": "confirmed"}})
    if isinstance(outcome, Failed):
        return told(to_model(outcome, tool), {**meta, META + "outcome": "failed"}, is_error=True)
    meta |= {META + "outcome": "waiting", META + "reason": outcome.reason}
    said = f"{to_model(outcome, tool)}\nFor the user: {to_person(attempted.run_id, outcome)}"
    return told(said, meta, is_error=False)


def again(attempted: Attempted, tool: str) -> str:
    """Return what stands before a result that was recorded earlier."""
    return (
        f"{tool} was called before with the same arguments, and it is done. This is the result of that call (run "
        f"{attempted.run_id}, call {attempted.id}); nothing was done now. Do not call it again for the same purpose."
    )


def refused(error: MilepostError, tool: str) -> CallToolResult:
    """Return what the host is told where no outcome could be had."""
    match error:
        case InvalidArguments():
            said = error.for_model()
        case RunHeld():
            said = (
                f"{tool} was not called and nothing was done: another program of the same caller is working just now. "
                "The same call may be made again in a moment."
            )
        case Diverged() | RunBlocked() | RunEnded():
            said = f"{tool} was not called and nothing was done: {error}"
        case _:  # a lost claim, a failing store: it may have been sent before that
            said = (
                f"Something went wrong while {tool} was under way, and nobody knows yet whether it happened: {error}. "
                "Do not make this call again for now, and tell the user that a person has to look."
            )
    return told(said, {META + "outcome": "refused", META + "code": error.code}, is_error=True)


def told(said: str, meta: dict[str, Any], *, is_error: bool) -> CallToolResult:
    """Return an answer in words."""
    return CallToolResult(content=[_text(said)], is_error=is_error, _meta=meta)


def _text(said: str) -> TextContent:
    return TextContent(type="text", text=said)

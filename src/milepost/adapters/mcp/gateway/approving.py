"""Approvals by elicitation: where the file says so, the host asks its user, and the answer is recorded.

The gateway cannot see who answered. So this is off unless a tool says `approval = "elicit"`, which means: the user of
whichever host may call this tool may approve it. In the record the approval is by `elicited:CALLER`, never by a
person's name that nobody checked. Where operators have keys (`trust`), such an answer has no signature and counts for
nothing, so the file is refused. Only a clear yes approves; a clear no denies; all else leaves it waiting for
`milepost approve`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from milepost.core.rendering import look_alikes, rendered
from milepost.errors import UnknownApproval

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp_types import CallToolRequestParams

    from milepost.adapters.mcp.gateway.calls import Attempted
    from milepost.app import App
    from milepost.stores.api import ApprovalRow

QUESTION = "approval"
FIELD = "approve"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {FIELD: {"type": "boolean", "title": "Let it happen", "default": False}},
    "required": [FIELD],
}


async def asked(
    app: App, caller: str, attempted: Attempted, context: ServerRequestContext[Any], params: CallToolRequestParams
) -> InputRequiredResult | bool:
    """Ask the host's user about a call that waits for approval; return whether the call is to be looked at again.

    A host of the newer protocol is answered with the question, and repeats its request with the answer in it.
    """
    row = await _waiting(app, attempted)
    if row is None:
        return False
    given = (params.input_responses or {}).get(QUESTION)
    if isinstance(given, ElicitResult) and params.request_state == row.id:
        return await _take(app, caller, row, given)
    if not _can(context):
        return False
    question = ElicitRequestFormParams(message=_question(row), requested_schema=SCHEMA)
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return InputRequiredResult(input_requests={QUESTION: ElicitRequest(params=question)}, request_state=row.id)
    try:
        said = await context.session.elicit_form(question.message, SCHEMA, context.request_id)
    except MCPError:
        return False
    return await _take(app, caller, row, said)


async def _take(app: App, caller: str, row: ApprovalRow, said: ElicitResult) -> bool:
    by = f"elicited:{caller}"
    with suppress(UnknownApproval):  # somebody else has answered meanwhile: what they said holds
        return await _said(app, by, row, said)
    return True


async def _said(app: App, by: str, row: ApprovalRow, said: ElicitResult) -> bool:
    if said.action == "accept" and (said.content or {}).get(FIELD) is True:
        await app.approve(row.id, by=by, why="the host's user said yes")
    elif said.action in {"accept", "decline"}:
        await app.deny(row.id, by=by, why="the host's user said no")
    else:
        return False
    return True


def _can(context: ServerRequestContext[Any]) -> bool:
    capabilities = context.session.client_capabilities
    elicits = None if capabilities is None else capabilities.elicitation
    return elicits is not None and (elicits.form is not None or elicits.url is None)  # one of neither means a form


async def _waiting(app: App, attempted: Attempted) -> ApprovalRow | None:
    rows = await app.inspect.approvals("asked")
    found = [row for row in rows if row.run_id == attempted.run_id and row.step == f"@{attempted.id}"]
    return found[-1] if found else None


def _question(row: ApprovalRow) -> str:
    """Return the question, with the arguments from the record as `milepost approvals` shows them: nothing is hidden."""
    arguments = "\n".join(f"  {line}" for line in rendered(row.args)) or "  (none)"
    notes = "".join(f"\nCareful: {note}" for note in look_alikes(row.args))
    return f"Let {row.tool} happen, once, with exactly these arguments?\n{arguments}{notes}\n(approval {row.id})"

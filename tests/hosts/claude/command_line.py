"""A command line of Claude Code in this process: it speaks the control protocol, and its model is a script.

It does with a batch of calls what the real one does: each is announced to the hooks; what they allow is made, a tool of
the host's server by `tools/call` with the id of the call in `_meta`, one of its own here; then the hook after it runs.
Calls of one batch go on at once.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from claude_agent_sdk import Transport

Call = tuple[str, str, dict[str, Any]]
SESSION = "5f0c1a52-session"


class CommandLine(Transport):  # type: ignore[misc]
    """It answers one prompt with one batch of calls; `told` is what the model is told, (text, is it an error).

    `own` are the tools of its own, by name. `says` are additions to its answer to `initialize`; without `ids` it does
    not tell the server which call of the model a request is. Without `at_once` its model asks for one call in each
    turn, and hears of it before it asks for the next.
    """

    def __init__(
        self,
        batch: Sequence[Call],
        own: Mapping[str, Callable[..., Awaitable[Any]]] | None = None,
        *,
        says: Mapping[str, Any] | None = None,
        ids: bool = True,
        at_once: bool = True,
        session: str = SESSION,
    ) -> None:
        self.told: list[tuple[str, bool]] = []
        self.offered: dict[str, dict[str, Any]] = {}
        self._turns = [batch] if at_once else [[call] for call in batch]
        self._own = own or {}
        self._says = {"hook_on_failure_supported": True} if says is None else says
        self._ids = ids
        self._session = session
        self._out: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._asked: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._hooks: dict[str, list[dict[str, Any]]] = {}
        self._count = itertools.count(1)
        self._turn: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Be there."""

    def is_ready(self) -> bool:
        """Be ready."""
        return True

    async def end_input(self) -> None:
        """Hear that nothing more is asked."""

    async def close(self) -> None:
        """End."""
        if self._turn is not None:
            self._turn.cancel()
        self._out.put_nowait(None)

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Say what there is to say."""
        while (message := await self._out.get()) is not None:
            yield message

    async def write(self, data: str) -> None:
        """Hear what the SDK says."""
        message = json.loads(data)
        if message["type"] == "control_request":
            self._hooks = message["request"].get("hooks") or {}
            answer = {"subtype": "success", "request_id": message["request_id"], "response": {**self._says}}
            self._out.put_nowait({"type": "control_response", "response": answer})
        elif message["type"] == "control_response":
            self._asked.pop(message["response"]["request_id"]).set_result(message["response"])
        elif message["type"] == "user":
            self._turn = asyncio.create_task(self._answer())

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        id_ = f"request_{next(self._count)}"
        self._asked[id_] = asyncio.get_running_loop().create_future()
        self._out.put_nowait({"type": "control_request", "request_id": id_, "request": request})
        return await self._asked[id_]

    async def _answer(self) -> None:
        await self._connect_server()
        for batch in self._turns:
            calls = [{"type": "tool_use", "id": id_, "name": name, "input": given} for id_, name, given in batch]
            said = {"role": "assistant", "model": "script", "content": calls}
            self._out.put_nowait(
                {"type": "assistant", "message": said, "session_id": self._session, "parent_tool_use_id": None}
            )
            self.told += await asyncio.gather(*(self._make(*call) for call in batch))
        self._out.put_nowait(
            {
                "type": "result",
                "subtype": "success",
                "duration_ms": 1,
                "duration_api_ms": 1,
                "is_error": False,
                "num_turns": len(self._turns),
                "session_id": self._session,
                "result": "",
            }
        )
        self._out.put_nowait(None)

    async def _make(self, id_: str, name: str, given: dict[str, Any]) -> tuple[str, bool]:
        """Make one call, as the hooks decide; return what the model is told, and whether as an error."""
        about = {"tool_name": name, "tool_input": given, "tool_use_id": id_}
        for answer in await self._run_hooks("PreToolUse", about):
            decided = answer["hookSpecificOutput"]
            if decided["permissionDecision"] != "allow":
                return f"{decided['permissionDecision']}: {decided['permissionDecisionReason']}", True
        if name in self._own:
            return await self._make_own(about)
        meta = {"_meta": {"claudecode/toolUseId": id_}} if self._ids else {}
        params = {"name": name.removeprefix("mcp__milepost__"), "arguments": given, **meta}
        result = await self._server("tools/call", params)
        await self._run_hooks("PostToolUse", {**about, "tool_response": result["content"]})
        return result["content"][0]["text"], bool(result.get("isError"))

    async def _make_own(self, about: dict[str, Any]) -> tuple[str, bool]:
        try:
            result = await self._own[about["tool_name"]](**about["tool_input"])
        except Exception as error:  # noqa: BLE001  the command line tells of whatever its tool raised
            answers = await self._run_hooks("PostToolUseFailure", {**about, "error": str(error)})
            return f"{error}; {_context(answers)}", True
        answers = await self._run_hooks("PostToolUse", {**about, "tool_response": result})
        return f"{result}{_context(answers)}", False

    async def _run_hooks(self, event: str, about: dict[str, Any]) -> list[dict[str, Any]]:
        """Run the hooks of an event. One that fails blocks, where it is to."""
        said = {
            "hook_event_name": event,
            "session_id": self._session,
            "transcript_path": "transcript.jsonl",
            "cwd": ".",
            **about,
        }
        answers = []
        for matcher in self._hooks.get(event, []):
            for callback in matcher["hookCallbackIds"]:
                asked = {"subtype": "hook_callback", "callback_id": callback, "input": said}
                answer = await self._ask({**asked, "tool_use_id": about["tool_use_id"]})
                if answer["subtype"] == "success":
                    answers.append(answer["response"])
                elif matcher.get("onFailure") == "block" and event == "PreToolUse":
                    answers.append(
                        {
                            "hookSpecificOutput": {
                                "permissionDecision": "blocked",
                                "permissionDecisionReason": answer["error"],
                            }
                        }
                    )
        return answers

    async def _connect_server(self) -> None:
        info = {"name": "claude-code", "version": "0"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
        await self._server("initialize", hello)
        await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        listed = await self._server("tools/list", {})
        self.offered = {tool["name"]: tool for tool in listed["tools"]}

    async def _server(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        asked = {"jsonrpc": "2.0", "id": next(self._count), "method": method, "params": params}
        answer: dict[str, Any] = (await self._send(asked))["result"]
        return answer

    async def _send(self, message: dict[str, Any]) -> dict[str, Any]:
        answer = await self._ask({"subtype": "mcp_message", "server_name": "milepost", "message": message})
        response: dict[str, Any] = answer["response"]["mcp_response"]
        return response


def _context(answers: Sequence[dict[str, Any]]) -> str:
    return "".join(answer["hookSpecificOutput"]["additionalContext"] for answer in answers if answer)

"""Hooks of the Claude Agent SDK that decide on each call, and record those that the command line makes itself.

    guard = Guard(app, built_in={"Read": "allow", "Bash": bash})
    options = guard.guarded(ClaudeAgentOptions(…))

Milepost's tools are offered by a server in this process, and their calls go through the session's run there. A tool of
the command line, or of another MCP server, is

    not declared      denied; or asked about, if the guard says so
    one word          allowed, denied, asked about or deferred, each time, without a record
    a foreign tool    a call on record: the hook before it appends that it is started, and lets it go; the hook after it
                      records the result. What is denied, by a policy or a missing approval, never begins. What has
                      begun and was not heard of is not known: an interrupt and a kill run no hook. Neither is what
                      failed: an error of a shell command says nothing about what was done before it.

A hook that raises, or gives no answer, blocks the call (`on_failure="block"`; a command line that cannot do so is
refused by the SDK). Effects are never made in a hook: another hook might still deny the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher

from milepost.adapters.anew import Attempted, Calls, Said, refused, said
from milepost.adapters.claude.serving import server_of
from milepost.adapters.foreign import ForeignTool
from milepost.adapters.threads import LINGER, PATIENCE, Threads
from milepost.app import App
from milepost.core.authority import Authority
from milepost.core.duration import Duration
from milepost.definitions.call import Call, Confirmed
from milepost.definitions.tools import Cost, Tool
from milepost.errors import InvalidDeclaration, MilepostError, NotSent

Word: TypeAlias = Literal["allow", "deny", "ask", "defer"]
KEPT = 1_000  # calls whose end no hook told of (an interrupt, a second hook that denied): what is older is let go


class ToolErred(Exception):
    """The command line says that its tool failed: what was done is not known."""


@dataclass(frozen=True)
class Begun:
    """A call that the command line makes, from its hook before to its hook after."""

    tool: ForeignTool
    going: asyncio.Task[Attempted]
    ended: asyncio.Future[Any]


class Guard:
    """The hooks and the server of one app. Several clients may use one guard, each session has a run of its own.

    `built_in` declares tools of the command line, or of other MCP servers (`mcp__server__tool`), by the name that the
    model uses: a word, or a tool made by `foreign`, which has to be one of the app's. All other tools of the app are
    offered to the model, by a server called `server`. `undeclared` is what happens to every other tool.

    `key` names the run; without it that is the session's id. Give your own where sessions are forked: a fork has
    another id, and would not know what was done before. `authority` and `budget` are what a run begins with, `patience`
    is how long a call waits in place for what moves by itself. Raises InvalidDeclaration.
    """

    def __init__(
        self,
        app: App,
        *,
        built_in: Mapping[str, Word | Tool[..., Any]] | None = None,
        undeclared: Literal["deny", "ask"] = "deny",
        key: str | None = None,
        server: str = "milepost",
        authority: Authority | None = None,
        budget: Cost | None = None,
        patience: Duration = PATIENCE,
    ) -> None:
        self._calls = Calls(Threads(app, authority=authority, budget=budget, patience=patience, linger=LINGER))
        self._rules: dict[str, Word | ForeignTool] = {
            name: _checked(name, rule, app) for name, rule in (built_in or {}).items()
        }
        if undeclared not in {"deny", "ask"}:
            raise InvalidDeclaration(f'undeclared={undeclared!r}: write "deny" or "ask".')
        self._undeclared: Word = undeclared
        recorded = {rule.name for rule in self._rules.values() if isinstance(rule, Tool)}
        offered = [tool for tool in app.tools.values() if tool.name not in recorded]
        self._key = key
        self._name = server
        self._ours = {f"mcp__{server}__{tool.name}" for tool in offered}
        self._sessions: dict[str, str] = {}  # by the id of a call of ours that is announced and has not ended
        self._only: str | None = None  # the session that was heard of, while there was no other
        self._several = False
        self._begun: dict[str, Begun] = {}
        self.server = server_of(server, offered, self._make)
        self.hooks: dict[Any, list[HookMatcher]] = {
            "PreToolUse": [HookMatcher(hooks=[self._before], on_failure="block")],
            "PostToolUse": [HookMatcher(hooks=[self._after], on_failure="block")],
            "PostToolUseFailure": [HookMatcher(hooks=[self._after], on_failure="block")],
        }

    def guarded(self, options: ClaudeAgentOptions) -> ClaudeAgentOptions:
        """Return a copy of the options with the hooks and the server. Raises InvalidDeclaration for a taken name."""
        servers = options.mcp_servers
        if not isinstance(servers, dict):
            raise InvalidDeclaration("mcp_servers is a file: load it, and give a dict of servers.")
        if self._name in servers:
            raise InvalidDeclaration(f'mcp_servers has a {self._name!r} already: name ours by Guard(server="…").')
        hooks = dict(options.hooks or {})
        for event, matchers in self.hooks.items():
            hooks[event] = [*hooks.get(event, []), *matchers]
        return replace(options, mcp_servers={**servers, self._name: self.server}, hooks=hooks)

    # ------------------------------------------------------------ hooks

    async def _before(self, told: Any, _id: str | None, _context: Any) -> dict[str, Any]:
        """Decide on a call."""
        name, id_, session = told["tool_name"], told["tool_use_id"], told["session_id"]
        self._heard_of(session)
        if name in self._ours:
            self._sessions[id_] = session
            if len(self._sessions) > KEPT:
                del self._sessions[next(iter(self._sessions))]
            return _decision("allow", "the call goes through Milepost, which decides on it")
        rule = self._rules.get(name, self._undeclared)
        if isinstance(rule, ForeignTool):
            return await self._begin(rule, self._key or session, id_, told["tool_input"])
        why = "declared so" if name in self._rules else "no such tool is declared to Milepost's guard"
        return _decision(rule, f"{name}: {why}")

    def _heard_of(self, session: str) -> None:
        """Take note of a session. Raises TypeError for what is no id."""
        if not isinstance(session, str):
            raise TypeError(session)
        self._several = self._several or self._only not in {None, session}
        self._only = None if self._several else session

    async def _begin(self, tool: ForeignTool, key: str, id_: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Let a call begin once that is on record, else deny it and say what came of it instead."""
        loop = asyncio.get_running_loop()
        started: asyncio.Future[None] = loop.create_future()
        ended: asyncio.Future[Any] = loop.create_future()

        async def send(_call: Call, _arguments: dict[str, Any]) -> Any:
            if started.done():
                raise NotSent("only the command line sends it, and only once")
            started.set_result(None)
            return await ended

        try:
            if self._calls.under_way(key, tool, arguments):
                return _decision("deny", f"An equal call of {tool.name} is being made right now. Wait for its result.")
            going = asyncio.ensure_future(self._calls.attempt(key, id_, tool, arguments, send))
            waited: set[asyncio.Future[Any]] = {going, started}
            try:
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                going.cancel()  # the command line has given the call up
                raise
            if started.done() and not going.done():
                self._note(id_, Begun(tool, going, ended))
                return _decision("allow", f"{tool.name} is on record as started")
            attempted = await going
            done = attempted.equals is None and isinstance(attempted.outcome, Confirmed)
            before = f"{tool.name} is done, and was not called again. Its result: " if done else ""
            return _decision("deny", before + said(attempted, tool).text)
        except MilepostError as error:
            return _decision("deny", refused(error, tool).text)

    def _note(self, id_: str, begun: Begun) -> None:
        """Keep a call for its hook after it; what has timed out meanwhile is kept for a while."""
        self._begun[id_] = begun
        if len(self._begun) > KEPT:
            over = next((one for one, earlier in self._begun.items() if earlier.going.done()), None)
            if over is not None:
                del self._begun[over]

    async def _after(self, told: Any, _id: str | None, _context: Any) -> dict[str, Any]:
        """Record what came of a call that the command line made."""
        self._sessions.pop(told["tool_use_id"], None)
        begun = self._begun.pop(told["tool_use_id"], None)
        if begun is None:
            return {}
        if not begun.ended.done():
            if told["hook_event_name"] == "PostToolUse":
                begun.ended.set_result(told["tool_response"])
            else:
                begun.ended.set_exception(ToolErred(told["error"]))
        try:
            attempted = await begun.going
            if isinstance(attempted.outcome, Confirmed):
                return {}
            context = said(attempted, begun.tool).text
        except MilepostError as error:
            context = refused(error, begun.tool).text
        return {"hookSpecificOutput": {"hookEventName": told["hook_event_name"], "additionalContext": context}}

    # ------------------------------------------------------------ calls of our own tools

    async def _make(self, tool: Tool[..., Any], id_: str | None, arguments: dict[str, Any]) -> Said:
        """Make a call for the server."""
        try:
            key = self._key_of(id_)
        except InvalidDeclaration as error:
            return refused(error, tool)
        return await self._calls.told(key, id_, tool, arguments)

    def _key_of(self, id_: str | None) -> str:
        """Return the key of the run that a call belongs to. Raises InvalidDeclaration where nothing tells it."""
        if self._key is not None:
            return self._key
        if id_ in self._sessions:
            return self._sessions[id_]
        if self._only is not None:
            return self._only
        raise InvalidDeclaration(
            "no hook has told which session this call belongs to: give the guard's hooks to the client as well "
            '(guard.guarded(options)), or name the run: Guard(app, key="…").'
        )


def _checked(name: str, rule: Any, app: App) -> Word | ForeignTool:
    if isinstance(rule, ForeignTool):
        if app.tools.get(rule.name) is not rule:
            raise InvalidDeclaration(f"{name}: the app does not know this tool. Give it to App(tools=[…]) as well.")
        return rule
    if rule not in get_args(Word):
        raise InvalidDeclaration(f"{name}: {rule!r} is none of {', '.join(get_args(Word))}, nor a tool of foreign().")
    word: Word = rule
    return word


def _decision(word: Word, why: str) -> dict[str, Any]:
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": word,
            "permissionDecisionReason": why,
        }
    }

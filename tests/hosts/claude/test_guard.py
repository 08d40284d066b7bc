"""The guard: what the hooks decide, that they fail closed, what the server offers, how calls get their ids and runs."""

import asyncio
from typing import Any, cast

import pytest
from claude_agent_sdk import ClaudeAgentOptions, CLIConnectionError, HookMatcher, query

import milepost as mp
from milepost.adapters.claude import Guard, guarding
from milepost.adapters.foreign import foreign
from milepost.errors import InvalidDeclaration
from milepost.stores.api import Query
from tests.hosts.claude.command_line import SESSION, Call, CommandLine
from tests.runtime.stage import Stage

SHELL: dict[str, Any] = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
bash = foreign("Bash", SHELL)


@mp.tool
async def pay(order: str, cents: int = 5) -> dict[str, int]:
    """Pay an order."""
    return {"paid": cents}


@mp.tool(effect="read")
async def price(order: str) -> int:
    """Look a price up."""
    return 5


@mp.tool(approval=True)
async def publish(text: str) -> str:
    """Publish a text."""
    return text


class Shell:
    """A tool of the command line's own."""

    def __init__(self, answer: Any = "ok") -> None:
        self.ran: list[str] = []
        self.answer = answer

    async def __call__(self, **given: Any) -> Any:
        self.ran.append(given.get("command", ""))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def told_by(
    guard: Guard, *batch: Call, options: ClaudeAgentOptions | None = None, **line: Any
) -> list[tuple[str, bool]]:
    """Let a model ask for a batch; return what it was told."""
    command_line = CommandLine(batch, **line)
    async for _ in query(prompt="go", options=guard.guarded(options or ClaudeAgentOptions()), transport=command_line):
        pass
    return command_line.told


async def on_record(stage: Stage) -> dict[str, dict[str, str]]:
    """Return the outcomes by the key of the run and the id of the call."""
    looking = mp.App(stage.url)
    async with looking.client():
        return {
            run.key or "": {effect.path: effect.outcome for effect in await looking.inspect.effects(run.id)}
            for run in await looking.inspect.runs(Query())
        }


async def test_a_tool_that_is_not_declared_is_denied_and_asked_about_only_where_the_guard_says_so(stage: Stage) -> None:
    app, shell = mp.App(stage.url, tools=[pay]), Shell()
    call: Call = ("toolu_1", "Bash", {"command": "rm"})

    ((denied, _),) = await told_by(Guard(app), call, own={"Bash": shell})
    ((asked, _),) = await told_by(Guard(app, undeclared="ask"), call, own={"Bash": shell})

    assert denied == "deny: Bash: no such tool is declared to Milepost's guard"
    assert asked.startswith("ask: Bash")
    assert shell.ran == []


async def test_a_word_decides_on_a_built_in_tool_each_time_and_leaves_no_record(stage: Stage) -> None:
    app, shell = mp.App(stage.url), Shell()
    guard = Guard(app, built_in={"Read": "allow", "Write": "deny", "WebFetch": "defer"})
    own = dict.fromkeys(("Read", "Write", "WebFetch"), shell)

    told = await told_by(guard, *((f"toolu_{n}", name, {}) for n, name in enumerate(own)), own=own)

    assert [text.split(":")[0] for text, _ in told] == ["ok", "deny", "defer"]
    assert shell.ran == [""]
    assert await on_record(stage) == {}


async def test_a_hook_that_fails_blocks_the_call(stage: Stage) -> None:
    shell = Shell()
    guard = Guard(mp.App(stage.url, tools=[bash]), built_in={"Bash": bash})
    broken = cast("Any", {"command": object()})
    hook = guard.hooks["PreToolUse"][0].hooks[0]

    assert [matcher.on_failure for matchers in guard.hooks.values() for matcher in matchers] == ["block"] * 3
    with pytest.raises(KeyError):
        await hook(cast("Any", {"tool_name": "Bash", "tool_input": broken}), None, {"signal": None})
    ((said, _),) = await told_by(
        guard, ("toolu_1", "Bash", {"command": "ls"}), own={"Bash": shell}, session=cast("Any", [])
    )
    assert said.startswith("blocked")
    assert shell.ran == []


async def test_a_command_line_that_cannot_fail_closed_is_refused(stage: Stage) -> None:
    guard = Guard(mp.App(stage.url, tools=[pay]))

    with pytest.raises(CLIConnectionError, match="on_failure"):
        await told_by(guard, ("toolu_1", "mcp__milepost__pay", {"order": "o"}), says={})


async def test_the_server_offers_the_tools_of_the_app_and_says_which_only_read(stage: Stage) -> None:
    line = CommandLine([])
    guard = Guard(mp.App(stage.url, tools=[pay, price, bash]), built_in={"Bash": bash})

    async for _ in query(prompt="go", options=guard.guarded(ClaudeAgentOptions()), transport=line):
        pass

    assert {name: tool["annotations"]["readOnlyHint"] for name, tool in line.offered.items()} == {
        "pay": False,
        "price": True,
    }
    assert line.offered["pay"]["description"] == "Pay an order."
    assert set(line.offered["pay"]["inputSchema"]["properties"]) == {"order", "cents"}


async def test_a_call_is_on_record_under_the_sessions_id_and_the_models_id_of_it(stage: Stage) -> None:
    app = mp.App(stage.url, tools=[pay])

    told = await told_by(Guard(app), ("toolu_1", "mcp__milepost__pay", {"order": "o", "cents": 7}))

    assert told == [('{"paid":7}', False)]
    assert await on_record(stage) == {SESSION: {"@toolu_1": "confirmed"}}


async def test_a_key_of_ones_own_names_the_run_of_every_session(stage: Stage) -> None:
    app = mp.App(stage.url, tools=[pay])

    for session in ("one", "its fork"):
        await told_by(Guard(app, key="desk-7"), ("toolu_1", "mcp__milepost__pay", {"order": "o"}), session=session)

    assert await on_record(stage) == {"desk-7": {"@toolu_1": "confirmed"}}


async def test_a_command_line_that_tells_no_ids_has_equal_calls_taken_for_one(stage: Stage) -> None:
    app = mp.App(stage.url, tools=[pay])
    call: Call = ("toolu_1", "mcp__milepost__pay", {"order": "o"})

    told = await told_by(Guard(app), call, ("toolu_2", *call[1:]), ids=False)

    assert [text for text, _ in told] == ['{"paid":5}', '{"paid":5}']
    ((path, outcome),) = (await on_record(stage))[SESSION].items()
    assert (path[:5], outcome) == ("@pay.", "confirmed")


async def test_a_call_whose_session_nothing_tells_is_refused_before_anything_is_recorded(stage: Stage) -> None:
    app = mp.App(stage.url, tools=[pay])
    guard, line = Guard(app), CommandLine([("toolu_1", "mcp__milepost__pay", {"order": "o"})])
    options = ClaudeAgentOptions(mcp_servers={"milepost": guard.server})

    async for _ in query(prompt="go", options=options, transport=line):
        pass

    ((text, is_error),) = line.told
    assert is_error
    assert "was not called, and nothing was done" in text
    assert await on_record(stage) == {}


async def test_arguments_that_do_not_fit_are_an_error_and_a_call_that_waits_is_none(stage: Stage) -> None:
    guard = Guard(mp.App(stage.url, tools=[pay, publish]))

    (_, wrong), (waits, parked) = await told_by(
        guard, ("toolu_1", "mcp__milepost__pay", {}), ("toolu_2", "mcp__milepost__publish", {"text": "t"})
    )

    assert (wrong, parked) == (True, False)
    assert "a person has to approve it first" in waits


async def test_a_built_in_tool_that_failed_or_was_not_heard_of_is_unknown_and_said_so(stage: Stage) -> None:
    """Requirement 11. What a command did before it failed, the message does not say."""
    app = mp.App(stage.url, tools=[bash])
    guard, failing = Guard(app, built_in={"Bash": bash}), Shell(OSError("exit 1"))
    call: Call = ("toolu_1", "Bash", {"command": "make"})

    ((failed, _),) = await told_by(guard, call, own={"Bash": failing})
    ((again, _),) = await told_by(guard, ("toolu_2", *call[1:]), own={"Bash": failing})

    assert "may have happened" in failed
    assert again.startswith("deny: The outcome of Bash is not known yet")
    assert failing.ran == ["make"]
    assert await on_record(stage) == {SESSION: {"@toolu_1": "unknown"}}


async def test_an_equal_command_that_is_done_is_answered_with_its_result(stage: Stage) -> None:
    guard, shell = Guard(mp.App(stage.url, tools=[bash]), built_in={"Bash": bash}), Shell({"stdout": "built"})

    told = [
        (await told_by(guard, (f"toolu_{n}", "Bash", {"command": "make"}), own={"Bash": shell}))[0] for n in range(2)
    ]

    assert told[0] == ("{'stdout': 'built'}", False)
    assert told[1][0].endswith('The result of that call: {"stdout":"built"}')
    assert shell.ran == ["make"]


async def test_the_hooks_and_servers_that_were_there_stay(stage: Stage) -> None:
    seen: list[str] = []

    async def watch(told: Any, _id: str | None, _context: Any) -> dict[str, Any]:
        seen.append(told["tool_name"])
        return {"hookSpecificOutput": {"permissionDecision": "allow", "permissionDecisionReason": ""}}

    options = ClaudeAgentOptions(hooks={"PreToolUse": [HookMatcher(hooks=[cast("Any", watch)])]})
    told = await told_by(
        Guard(mp.App(stage.url, tools=[pay])), ("toolu_1", "mcp__milepost__pay", {"order": "o"}), options=options
    )

    assert seen == ["mcp__milepost__pay"]
    assert told == [('{"paid":5}', False)]
    assert len((options.hooks or {})["PreToolUse"]) == 1


async def test_what_is_declared_wrongly_is_refused_at_once(stage: Stage) -> None:
    app = mp.App(stage.url, tools=[pay])
    taken = ClaudeAgentOptions(mcp_servers={"milepost": cast("Any", {"type": "stdio", "command": "x"})})

    for wrong in (
        lambda: Guard(app, built_in={"Bash": bash}),
        lambda: Guard(app, built_in={"Bash": cast("Any", "alow")}),
        lambda: Guard(app, built_in={"Bash": pay}),
        lambda: Guard(app, undeclared=cast("Any", "allow")),
        lambda: Guard(app).guarded(taken),
        lambda: Guard(app).guarded(ClaudeAgentOptions(mcp_servers="servers.json")),
    ):
        with pytest.raises(InvalidDeclaration):
            wrong()


async def announce(guard: Guard, session: str, id_: str, name: str) -> None:
    """Announce a call to the guard, and let it never end."""
    told = {"tool_name": name, "tool_use_id": id_, "session_id": session, "tool_input": {}}
    await guard.hooks["PreToolUse"][0].hooks[0](cast("Any", told), None, {"signal": None})


async def served(guard: Guard, id_: str) -> str:
    """Make a call through the guard's server alone; return what the model is told."""
    line = CommandLine([(id_, "mcp__milepost__pay", {"order": id_})])
    async for _ in query(
        prompt="go", options=ClaudeAgentOptions(mcp_servers={"milepost": guard.server}), transport=line
    ):
        pass
    ((text, _),) = line.told
    return text


async def test_calls_whose_end_is_never_told_do_not_gather_in_a_process_that_lives_long(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is denied leaves nothing, and of what a hook after it never told the newest are known."""
    monkeypatch.setattr(guarding, "KEPT", 3)
    guard = Guard(mp.App(stage.url, tools=[pay]))
    await announce(guard, "one", "toolu_1", "mcp__milepost__pay")
    for number in range(10):
        await announce(guard, f"session {number}", f"denied_{number}", "Bash")
    assert await served(guard, "toolu_1") == '{"paid":5}'

    for number in range(2, 5):
        await announce(guard, "two", f"toolu_{number}", "mcp__milepost__pay")

    assert "no hook has told which session" in await served(guard, "toolu_1")
    assert [await served(guard, f"toolu_{number}") for number in range(2, 5)] == ['{"paid":5}'] * 3
    assert await on_record(stage) == {
        "one": {"@toolu_1": "confirmed"},
        "two": {f"@toolu_{number}": "confirmed" for number in range(2, 5)},
    }


async def test_commands_that_timed_out_unheard_of_do_not_gather_either(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest is still told what became of it, should its hook come late."""
    monkeypatch.setattr(guarding, "KEPT", 2)
    hasty = foreign("Hasty", SHELL, timeout="1ms")
    guard = Guard(mp.App(stage.url, tools=[hasty]), built_in={"Hasty": hasty})
    before, after = (guard.hooks[event][0].hooks[0] for event in ("PreToolUse", "PostToolUse"))

    async def told(hook: Any, number: int) -> Any:
        told = {"tool_use_id": f"toolu_{number}", "session_id": SESSION, "tool_input": {"command": str(number)}}
        return await hook(
            {**told, "tool_name": "Hasty", "tool_response": "ok", "hook_event_name": "PostToolUse"}, None, {}
        )

    for number in range(4):
        await told(before, number)
        begun = guard._begun[f"toolu_{number}"]
        await asyncio.wait([begun.going])

    assert list(guard._begun) == ["toolu_2", "toolu_3"]
    assert "may have happened" in (await told(after, 3))["hookSpecificOutput"]["additionalContext"]
    assert await told(after, 0) == {}

"""Tools of an MCP server as tools of a run: in a segment, on an attached run, and over a kill."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp import Client, MCPError
from mcp.server import Server as LowServer
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, EmptyResult, ListToolsResult, TextContent, ToolAnnotations
from mcp_types import Tool as Listed

import milepost as mp
from milepost.adapters.mcp import Server
from milepost.adapters.mcp.connection import Connection
from milepost.adapters.mcp.sending import fitting, from_json
from milepost.adapters.mcp.server import tightened
from tests.adapters.mcp.town import BANK, Town, soon
from tests.polling import eventually


class Outside:
    """A server inside this process, and what reached it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.fails: BaseException | None = None
        self.release = asyncio.Event()
        self.release.set()
        server = MCPServer("outside")

        @server.tool(annotations=ToolAnnotations(read_only_hint=True))
        async def look(what: str, context: Context[Any]) -> str:
            return await self.act(what, context)

        @server.tool()
        async def act(what: str, context: Context[Any], much: int = 1) -> str:
            return await self.act(what, context)

        @server.tool(annotations=ToolAnnotations(read_only_hint=False))
        async def peek(what: str, context: Context[Any]) -> str:
            return await self.act(what, context)

        self.server = server

    async def act(self, what: str, context: Context[Any]) -> str:
        self.seen.append((what, dict(context.request_context.meta or {})))
        await self.release.wait()
        if self.fails is not None:
            raise self.fails
        return f"did {what}"

    def connect(self) -> Client:
        return Client(self.server)

    def connect_busy(self) -> Client:
        """A client of a server that answers nothing else while it works on a call."""

        async def answers(*_: Any) -> EmptyResult:
            await self.release.wait()
            return EmptyResult()

        busy: LowServer[Any] = LowServer("busy", on_ping=answers, on_list_tools=self._list, on_call_tool=self._call)
        return Client(busy, mode="legacy")

    async def _list(self, *_: Any) -> ListToolsResult:
        schema = {"type": "object", "properties": {"what": {"type": "string"}}}
        return ListToolsResult(tools=[Listed(name="act", input_schema=schema)])

    async def _call(self, _: Any, params: Any) -> CallToolResult:
        what = params.arguments["what"]
        self.seen.append((what, {}))
        if what == "slow":
            await self.release.wait()
        return CallToolResult(content=[TextContent(type="text", text=f"did {what}")])


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def text(result: CallToolResult) -> str:
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


async def test_a_call_of_a_segment_is_a_step_with_our_key_in_meta(store: str) -> None:
    """Requirement 59. The result that comes back is the client's own, from the record as well."""
    outside = Outside()
    bank = Server("bank", outside.connect, act={"effect": "keyed", "key_ttl": "1h"}, look={"effect": "read"})
    tools = list((await bank.tools()).values())

    @mp.workflow(version="1", tools=tools)
    async def work(run: mp.Run, _: None) -> list[str]:
        both = await run.gather(bank.call_tool("act", {"what": "a"}), bank.call_tool("look", {"what": "b"}))
        return [text(one) for one in both]

    async with mp.App(store, workflows=[work]) as app:
        started = await app.start(work)
        result = await started.result()
        effects = await app.inspect.effects(started.id)
    await bank.close()

    assert result == ["did a", "did b"]
    assert [(one.tool, one.outcome, one.args) for one in effects] == [("bank_act", "confirmed", {"what": "a"})]
    assert {what: meta.get("milepost/key") for what, meta in outside.seen}["a"] == effects[0].key


async def test_a_host_of_an_attached_run_repeats_a_call_and_gets_what_is_recorded(store: str) -> None:
    outside = Outside()
    bank = Server("bank", outside.connect, act={})
    tools = list((await bank.tools()).values())

    for _ in range(2):
        async with mp.App(store, tools=tools).attach(key="thread-1") as run:
            outcome = await bank.attempt(run, "call_1", "act", {"what": "a"})
            assert isinstance(outcome, mp.Confirmed)
            assert text(outcome.value) == "did a"
    await bank.close()

    assert [what for what, _ in outside.seen] == ["a"]


@pytest.mark.parametrize(
    ("declared", "fails", "outcome"),
    [
        ({}, ToolError("no money"), "unknown"),
        ({"errors": "rejected"}, ToolError("no money"), "Failed"),
        ({"errors": "rejected"}, MCPError(-32602, "halfway"), "unknown"),
        ({"effect": "read", "retry": mp.Retry(attempts=1)}, ToolError("no money"), "Failed"),
    ],
)
async def test_what_an_answer_proves_is_decided_by_what_is_declared(
    declared: dict[str, Any], fails: BaseException, outcome: str, store: str
) -> None:
    """Requirement 11. An error from a server is no proof that nothing was done."""
    outside = Outside()
    outside.fails = fails
    bank = Server("bank", outside.connect, act=declared)
    tools = list((await bank.tools()).values())

    async with mp.App(store, tools=tools).attach(key="thread-1") as run:
        came = await bank.attempt(run, "call_1", "act", {"what": "a"})
    await bank.close()

    assert (came.reason if isinstance(came, mp.Waiting) else type(came).__name__) == outcome


async def test_a_call_that_outlasts_its_timeout_is_unknown(store: str) -> None:
    """Requirement 11. The server still works on it."""
    outside = Outside()
    outside.release.clear()
    bank = Server("bank", outside.connect, act={"timeout": "1s"})
    tools = list((await bank.tools()).values())

    async with mp.App(store, tools=tools).attach(key="thread-1") as run:
        came = await bank.attempt(run, "call_1", "act", {"what": "a"})
    outside.release.set()
    await bank.close()

    assert isinstance(came, mp.Waiting)
    assert came.reason == "unknown"
    assert [what for what, _ in outside.seen] == ["a"]


async def test_a_server_that_cannot_be_reached_was_sent_nothing(store: str) -> None:
    """That is certain, so even an irreversible call has failed, and may be made again."""
    outside = Outside()
    there = Server("bank", outside.connect, act={"retry": mp.Retry(attempts=1)})
    listed = await there.listed()
    away = Server("bank", lambda: Client("http://127.0.0.1:9/mcp"), act={"retry": mp.Retry(attempts=1)})
    tools = list(away.declare(listed).values())

    async with mp.App(store, tools=tools).attach(key="thread-1") as run:
        came = await away.attempt(run, "call_1", "act", {"what": "a"})
    await away.close()
    await there.close()

    assert isinstance(came, mp.Failed)
    assert "nothing was sent" in came.why


async def test_a_server_that_is_busy_with_one_call_does_not_lose_it_to_the_next_one(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers nothing else meanwhile: the next call takes another connection, and the first one is left its own."""
    monkeypatch.setattr("milepost.adapters.mcp.connection.IDLE_S", 0)
    outside = Outside()
    outside.release.clear()
    bank = Server("bank", Connection("bank", outside.connect_busy, connect_s=1.5), act={})
    tools = list((await bank.tools()).values())

    async with mp.App(store, tools=tools).attach(key="thread-1") as run:
        first = asyncio.ensure_future(bank.attempt(run, "call_1", "act", {"what": "slow"}))
        await soon(lambda: outside.seen)
        second = await bank.attempt(run, "call_2", "act", {"what": "b"})
        outside.release.set()
        came = await first
    await bank.close()

    assert [type(one) for one in (came, second)] == [mp.Confirmed, mp.Confirmed]


async def test_calls_that_wait_for_a_connection_until_their_time_is_up_were_not_sent(store: str) -> None:
    """One after another tries to connect to a server that accepts and says nothing."""
    held: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
    address = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}/mcp"
    there = Server("bank", Outside().connect, act={})
    listed = await there.listed()
    await there.close()
    connection = Connection("bank", lambda: Client(address), connect_s=1.5)
    bank = Server("bank", connection, act={"timeout": "4s", "retry": mp.Retry(attempts=1)})
    tools = list(bank.declare(listed).values())

    async with mp.App(store, tools=tools).attach(key="thread-1") as run:
        came = await asyncio.gather(*(bank.attempt(run, f"c-{n}", "act", {"what": f"{n}"}) for n in range(3)))
    await bank.close()
    for writer in held:
        writer.close()
    silent.close()

    assert [type(one) for one in came] == [mp.Failed] * 3
    assert ["nothing was sent" in one.why for one in came if isinstance(one, mp.Failed)] == [True] * 3


@pytest.mark.parametrize(
    "argument",
    [
        {"$ref": "http://127.0.0.1:9/schema"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/nowhere"},
        {"type": "strng"},
        {"pattern": "(["},
    ],
)
def test_a_schema_by_which_nothing_can_be_checked_is_refused_and_nothing_is_fetched_for_it(
    argument: dict[str, Any],
) -> None:
    """A server could let us ask any address, or let every call end in an error after it was declared well."""
    bank = Server("bank", Outside().connect, act={})
    schema = {"type": "object", "properties": {"what": argument}}

    with pytest.raises(mp.InvalidDeclaration, match="no JSON schema by itself"):
        bank.declare([Listed(name="act", input_schema=schema)])


def test_a_schema_of_an_older_draft_and_one_that_points_into_itself_are_taken() -> None:
    bank = Server("bank", Outside().connect, act={})
    older = {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"what": {"items": [{}]}}}
    within = {"$defs": {"text": {"type": "string"}}, "properties": {"what": {"$ref": "#/$defs/text"}}}

    for schema in (older, within):
        bank.declare([Listed(name="act", input_schema={"type": "object", **schema})])
        fitting(bank._tools["act"], {})
    with pytest.raises(mp.InvalidArguments):
        fitting(bank._tools["act"], {"what": 5})


@pytest.mark.parametrize("typed", [None, "ch_1", 5, ["a"], {"id": "ch_1"}, {"content": "a"}])
def test_what_a_person_typed_who_resolved_a_call_is_a_result(typed: Any) -> None:
    result = from_json(typed)

    assert text(result) == (typed if isinstance(typed, str) else msgspec.json.encode(typed).decode())
    assert result.structured_content == (typed if isinstance(typed, dict) else None)


async def test_a_batch_with_one_call_that_waits_lets_its_siblings_finish(store: str) -> None:
    """The second of three needs a person: it parks, and the others are done and recorded."""
    outside = Outside()
    bank = Server("bank", outside.connect, act={"approval": lambda what, **_: what == "b"})
    tools = list((await bank.tools()).values())

    async with mp.App(store, tools=tools).attach(key="thread-1") as run:
        came = await asyncio.gather(*(bank.attempt(run, f"call_{what}", "act", {"what": what}) for what in "abc"))
    await bank.close()

    assert [type(one).__name__ for one in came] == ["Confirmed", "Waiting", "Confirmed"]
    assert sorted(what for what, _ in outside.seen) == ["a", "c"]


def test_a_process_killed_in_its_second_call_of_two_repeats_neither(town: Town, tmp_path: Path) -> None:
    """Requirement 7. Requirement 51. Requirement 53. The first is from the record, the second a person's to decide."""
    command = [sys.executable, str(Path(__file__).with_name("batch.py")), str(town.folder), str(BANK)]
    command.append(f"sqlite:///{tmp_path}/store.db")
    town.misbehave("hold", "batch.2")
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        eventually(lambda: town.ledger("charge", "batch.1") and town.ledger("mail", "batch.2"), saying="both arrived")
    finally:
        first.kill()
        told, _ = first.communicate()
    town.behave("hold", "batch.2")

    again = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)

    assert (first.returncode, told) == (-9, "")
    assert again.stdout.split() == ["Confirmed", "unknown"]
    assert len(town.ledger("charge", "batch.1")) == 1
    assert len(town.ledger("mail", "batch.2")) == 1


@pytest.mark.parametrize(("typed", "told"), [(None, ["null"]), ("sent", ["sent"]), ({"cents": 5}, ['{"cents":5}'])])
async def test_what_a_person_says_of_a_call_needs_not_look_like_an_answer_of_the_server(
    typed: Any, told: list[str], store: str
) -> None:
    outside = Outside()
    outside.fails = ToolError("no answer")
    bank = Server("bank", outside.connect, act={})
    tools = list((await bank.tools()).values())

    async with mp.App(store, tools=tools) as app, app.attach(key="thread-1") as run:
        assert isinstance(await bank.attempt(run, "call_1", "act", {"what": "a"}), mp.Waiting)
        await app.resolve(run.id, "@call_1", mp.happened(typed), by="ann", why="looked")
        known = await bank.attempt(run, "call_1", "act", {"what": "a"})
    await bank.close()

    assert isinstance(known, mp.Confirmed)
    assert [text(CallToolResult(content=[block])) for block in known.value.content] == told
    assert len(outside.seen) == 1


async def test_arguments_that_do_not_fit_the_schema_are_refused_before_anything_is_sent(store: str) -> None:
    outside = Outside()
    bank = Server("bank", outside.connect, act={})
    tools = list((await bank.tools()).values())

    async with mp.App(store, tools=tools).attach(key="thread-1") as run:
        with pytest.raises(mp.InvalidArguments, match="much: 'two' is not of type 'integer'"):
            await bank.attempt(run, "call_1", "act", {"what": "a", "much": "two"})
    with pytest.raises(mp.InvalidDeclaration, match="no declared tool look"):
        await bank.call_tool("look", {"what": "a"})
    await bank.close()

    assert outside.seen == []


async def test_a_misspelt_tool_and_a_key_that_has_no_argument_are_refused_when_they_are_declared() -> None:
    outside = Outside()
    for declared, why in (({"actt": {}}, "has no tool actt"), ({"act": {"key_argument": "key"}}, "no argument 'key'")):
        bank = Server("bank", outside.connect, **declared)
        with pytest.raises(mp.InvalidDeclaration, match=why):
            await bank.tools()
        await bank.close()


@pytest.mark.parametrize(
    ("declared", "hints", "holds"),
    [
        (None, None, "irreversible"),
        (None, ToolAnnotations(read_only_hint=True, idempotent_hint=True), "irreversible"),
        ("read", None, "read"),
        ("read", ToolAnnotations(read_only_hint=True), "read"),
        ("read", ToolAnnotations(read_only_hint=False), "irreversible"),
        ("absolute", ToolAnnotations(idempotent_hint=True), "absolute"),
        ("absolute", ToolAnnotations(idempotent_hint=False), "irreversible"),
        ("irreversible", ToolAnnotations(read_only_hint=True, idempotent_hint=True), "irreversible"),
        ("keyed", ToolAnnotations(idempotent_hint=False), "keyed"),
    ],
)
def test_what_a_server_says_of_a_tool_may_only_tighten_what_is_declared(
    declared: Any, hints: ToolAnnotations | None, holds: str
) -> None:
    effect, why = tightened(declared, hints)

    assert effect == holds
    assert bool(why) == (declared is not None and declared != holds)


async def test_a_contradicted_declaration_is_tightened_and_said(store: str) -> None:
    bank = Server("bank", Outside().connect, peek={"effect": "read"}, look={"effect": "read"})

    tools = await bank.tools()
    await bank.close()

    assert (tools["peek"].effect, tools["look"].effect) == ("irreversible", "read")
    assert bank.tightened == {"peek": "it is declared a read, and its server says that it is not read-only"}


def test_a_server_is_used_from_one_event_loop_after_another(store: str) -> None:
    """As a script does that runs one for each request: a connection ends with its loop, and no call is made on it."""
    outside = Outside()
    bank = Server("bank", outside.connect, act={})

    async def request(number: int) -> mp.Outcome[Any]:
        app = mp.App(store, tools=list((await bank.tools()).values()))
        async with app.attach(key="k") as run:
            return await bank.attempt(run, f"c{number}", "act", {"what": str(number)})

    for number in range(3):
        outcome = asyncio.run(asyncio.wait_for(request(number), 30))
        assert isinstance(outcome, mp.Confirmed)
        assert text(outcome.value) == f"did {number}"
    assert [what for what, _ in outside.seen] == ["0", "1", "2"]

"""Tools of LangChain agents and of ToolNodes go through the outcome protocol: killed, parked, resumed, told."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

import milepost as mp
from milepost.adapters.langgraph import Checkpointer, Halted, Outcomes, promised, this_call
from milepost.adapters.langgraph.outcomes import id_of
from milepost.errors import InvalidDeclaration, NoRun, RunHeld
from milepost.stores.api import Query
from tests.adapters import outside
from tests.adapters.langgraph.host import CONFIG, Scripted, around, live
from tests.runtime.policies import File
from tests.runtime.stage import Stage

HOST = "tests.adapters.langgraph.host"
INVITES = ("try again", "fix", "error", "retry")


@pytest.mark.parametrize("form", ["agent", "agent-sync"])
def test_an_agent_killed_in_the_middle_of_tool_two_of_two_sends_nothing_again(form: str, tmp_path: Path) -> None:
    """Requirement 7. Requirement 11. Requirement 18. A person looks, and the agent goes on with the answer."""
    outside.run(HOST, tmp_path, "two", form, kill=True)

    parked = outside.run(HOST, tmp_path, "two", form).said
    assert [(one["call"], one["waiting_for"]) for one in parked["parked"]] == [("call_2", "unknown")]
    assert "milepost resolve" in parked["parked"][0]["ask"]
    assert parked["results"] == {"call_1": "reserved"}
    assert outside.applied(tmp_path) == ["reserve", "refund"]
    assert asyncio.run(outside.outcomes(tmp_path)) == {"call_1 reserve": "confirmed", "call_2 refund": "unknown"}

    asyncio.run(outside.settle(tmp_path))
    ended = outside.run(HOST, tmp_path, "two", form, "it surely failed").said
    assert ended == {"parked": [], "results": {"call_1": "reserved", "call_2": "refunded"}, "last": "done"}
    assert outside.applied(tmp_path) == ["reserve", "refund"]
    assert outside.model_calls(tmp_path) == 2


def test_without_milepost_the_same_agent_refunds_twice_and_says_nothing_of_it(tmp_path: Path) -> None:
    outside.run(HOST, tmp_path, "two", "bare", kill=True)

    ended = outside.run(HOST, tmp_path, "two", "bare").said

    assert outside.applied(tmp_path).count("refund") == 2
    assert ended == {"parked": [], "results": {"call_1": "reserved", "call_2": "refunded"}, "last": "done"}


@pytest.mark.parametrize("form", ["agent", "agent-sync", "agent-tools", "node", "node-sync"])
def test_an_objection_to_the_second_of_three_lets_its_siblings_finish_and_be_recorded(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said at the resume decides nothing; the approval does."""
    monkeypatch.setenv("CRASH_FOLDER", str(tmp_path))

    parked = live(form, "three")

    assert [(one["call"], one["waiting_for"]) for one in parked["parked"]] == [("call_2", "approval")]
    assert sorted(outside.applied(tmp_path)) == ["note", "note", "noted", "noted"]
    assert asyncio.run(outside.outcomes(tmp_path)) == {
        "call_1 note": "confirmed", "call_2 publish": "not_started", "call_3 note": "confirmed",
    }  # fmt: skip
    still = live(form, "three", "approved")
    assert [(one["call"], one["waiting_for"]) for one in still["parked"]] == [("call_2", "approval")]
    assert "publish" not in outside.applied(tmp_path)

    asyncio.run(outside.approve(tmp_path))
    ended = live(form, "three", "rejected")
    assert ended["results"] == {"call_1": "noted", "call_2": "published", "call_3": "noted"}
    assert sorted(outside.applied(tmp_path)) == ["note", "note", "noted", "noted", "publish"]


class Bench:
    """Agents with tools of a test on one store."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CRASH_FOLDER", str(stage.folder))
        self.stage = stage
        self.done: list[Any] = []
        self.policy: str | None = None

    def app(self, kept: Sequence[mp.Tool[..., Any]]) -> mp.App:
        return mp.App(self.stage.url, tools=kept, policy=self.policy)

    async def ask(
        self,
        tools: Sequence[BaseTool],
        calls: Sequence[tuple[str, str, dict[str, Any]]],
        *,
        given: Any = None,
        handle: bool = False,
        **promises: Any,
    ) -> dict[str, ToolMessage]:
        """Let a model make these calls, or let the thread go on; return the messages of the results by id."""
        kept = promised(tools, **promises)
        outcomes = Outcomes(self.app(kept), kept)
        with Checkpointer(self.stage.url) as checkpointer:
            model = Scripted(script=list(calls))
            if handle:
                node = ToolNode(
                    tools, wrap_tool_call=outcomes.wrap_tool_call, awrap_tool_call=outcomes.awrap_tool_call,
                    handle_tool_errors=True,
                )  # fmt: skip
                agent: Any = around(model, node).compile(checkpointer=checkpointer)
            else:
                agent = create_agent(model, tools, middleware=[outcomes], checkpointer=checkpointer)
            said = await agent.ainvoke({"messages": [("user", "go")]} if given is None else given, CONFIG)
        self.parked = [one.value for one in said.get("__interrupt__", ())]
        return {one.tool_call_id: one for one in said["messages"] if isinstance(one, ToolMessage)}


@pytest.fixture
def bench(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(stage, monkeypatch)


async def test_what_failed_for_certain_is_told_and_what_is_unknown_never_looks_like_a_failure(bench: Bench) -> None:
    """Requirement 11. Requirement 46."""

    @tool
    async def refused(order: str) -> str:
        """Refuses."""
        raise mp.Rejected("no such order")

    @tool
    async def broke(order: str) -> str:
        """Breaks, nobody knows when."""
        bench.done.append(order)
        raise RuntimeError("the line broke")

    told = await bench.ask([refused, broke], [("c1", "refused", {"order": "a"}), ("c2", "broke", {"order": "b"})])

    assert told["c1"].status == "error"
    assert "certainly did not happen" in told["c1"].text
    assert "c2" not in told
    assert [(one["call"], one["waiting_for"]) for one in bench.parked] == [("c2", "unknown")]
    again = await bench.ask([refused, broke], [], given=Command(resume="it worked"))
    assert "c2" not in again
    assert bench.done == ["b"]


@pytest.mark.parametrize("handle", [False, True])
async def test_an_exception_that_a_host_would_make_a_text_for_the_model_stays_unknown(
    bench: Bench, *, handle: bool
) -> None:
    @tool
    async def broke(order: str) -> str:
        """Breaks."""
        raise RuntimeError("the line broke")

    told = await bench.ask([broke], [("c1", "broke", {"order": "a"})], handle=handle)

    assert told == {}
    assert [one["waiting_for"] for one in bench.parked] == ["unknown"]
    assert not any(word in str(bench.parked).lower() for word in INVITES)


async def test_a_call_of_a_tool_that_was_not_declared_or_does_not_fit_is_told_and_nothing_is_done(bench: Bench) -> None:
    @tool
    async def pay(cents: int) -> str:
        """Pays."""
        bench.done.append(cents)
        return "paid"

    told = await bench.ask([pay], [("c1", "steal", {}), ("c2", "pay", {"cents": "many"}), ("c3", "pay", {"cents": 7})])

    assert "certainly did not happen" in told["c1"].text
    assert "do not fit" in told["c2"].text
    assert told["c3"].text == "paid"
    assert bench.done == [7]


async def test_what_a_rule_denies_is_not_done_and_is_told_before_the_model_is_asked_again(bench: Bench) -> None:
    """Requirement 71."""

    @tool
    async def pay(cents: int) -> str:
        """Pays."""
        bench.done.append(cents)
        return "paid"

    bench.policy = File(bench.stage.folder / "policy.toml").says(
        'small; allow; when = "args.cents <= 100"', 'large; deny; when = "args.cents > 100"'
    )

    told = await bench.ask([pay], [("c1", "pay", {"cents": 7}), ("c2", "pay", {"cents": 700})])

    assert told["c1"].text == "paid"
    assert "certainly did not happen" in told["c2"].text
    assert "'large'" in told["c2"].text
    assert bench.done == [7]


async def test_what_was_done_is_known_where_the_whole_conversation_is_gone(bench: Bench) -> None:
    """Requirement 16. Requirement 53. Requirement 58. Requirement 67. Nothing rests on messages, or on checkpoints."""

    @tool
    async def note(text: str) -> str:
        """Notes."""
        bench.done.append(text)
        return f"noted {text}"

    @tool
    async def broke(order: str) -> str:
        """Breaks, nobody knows when."""
        bench.done.append(order)
        raise RuntimeError("the line broke")

    calls = [("c1", "note", {"text": "one"}), ("c2", "broke", {"order": "b"})]
    first = await bench.ask([note, broke], calls)
    with Checkpointer(bench.stage.url) as checkpointer:
        checkpointer.delete_thread("thread-7")

    again = await bench.ask([note, broke], calls)

    assert (first["c1"].text, again["c1"].text) == ("noted one", "noted one")
    assert [(one["call"], one["waiting_for"]) for one in bench.parked] == [("c2", "unknown")]
    assert sorted(bench.done) == ["b", "one"]


async def test_an_artifact_and_a_command_come_back_from_the_record_as_they_were(bench: Bench) -> None:
    @tool(response_format="content_and_artifact")
    async def look(order: str) -> tuple[str, Any]:
        """Looks."""
        bench.done.append(order)
        return "seen", {"raw": (1, 2)}

    @tool
    async def hand_over(tool_call_id: str = "c2") -> Command[Any]:
        """Hands over."""
        bench.done.append("handed")
        return Command(update={"messages": [ToolMessage("handed over", tool_call_id=tool_call_id)]})

    @tool
    async def broke(order: str) -> str:
        """Breaks, so that all of it is asked again."""
        raise RuntimeError("the line broke")

    tools = [look, hand_over, broke]
    calls = [("c1", "look", {"order": "a"}), ("c2", "hand_over", {}), ("c3", "broke", {"order": "x"})]
    first = await bench.ask(tools, calls, handle=True)
    assert first == {}
    async with (app := bench.app(promised(tools))).client():
        (run,) = await app.inspect.runs(Query())
        await app.resolve(run.id, "@c3", mp.happened("mended"), by="ann", why="looked")

    told = await bench.ask(tools, calls, given=Command(resume=1), handle=True)

    assert told["c1"].artifact == {"raw": (1, 2)}
    assert (told["c1"].text, told["c2"].text, told["c3"].text) == ("seen", "handed over", "mended")
    assert bench.done == ["a", "handed"]


async def test_a_tool_is_told_the_key_of_the_call_that_it_is_run_for(bench: Bench) -> None:
    @tool
    def charge(order: str) -> str:
        """Charges."""
        bench.done.append((this_call().key, this_call().attempt))
        return "charged"

    await bench.ask([charge], [("c1", "charge", {"order": "a"})], charge={"effect": "keyed", "key_ttl": "1h"})

    ((key, attempt),) = bench.done
    assert (len(key) >= 32, attempt) == (True, 1)
    with pytest.raises(NoRun):
        this_call()


async def test_an_id_that_a_model_gives_again_in_a_thread_is_another_call(bench: Bench) -> None:
    @tool
    async def note(text: str) -> str:
        """Notes."""
        bench.done.append(text)
        return f"noted {text}"

    await bench.ask([note], [("call_0", "note", {"text": "one"})])
    told = await bench.ask([note], [("call_0", "note", {"text": "two"})])

    assert bench.done == ["one", "two"]
    assert told["call_0"].text == "noted two"


@pytest.mark.parametrize("handle", [False, True])
async def test_a_thread_that_another_process_holds_is_not_gone_on_with_and_no_model_hears_of_it(
    bench: Bench, *, handle: bool
) -> None:
    @tool
    async def note(text: str) -> str:
        """Notes."""
        bench.done.append(text)
        return "noted"

    kept = promised([note])
    async with mp.App(bench.stage.url, tools=kept).attach(key="thread-7"):
        with pytest.raises(Halted) as halted:
            await bench.ask([note], [("c1", "note", {"text": "one"})], handle=handle)

    assert isinstance(halted.value.error, RunHeld)
    assert bench.done == []
    told = await bench.ask([note], [], given=Command(resume="later"), handle=handle)
    assert told["c1"].text == "noted"


def test_a_graph_without_a_thread_is_refused(bench: Bench) -> None:
    @tool
    def note(text: str) -> str:
        """Notes."""
        return "noted"

    kept = promised([note])
    agent: Any = create_agent(
        Scripted(script=[("c1", "note", {"text": "x"})]), [note], middleware=[Outcomes(bench.app(kept), kept)]
    )

    with pytest.raises(Halted, match="thread_id"):
        agent.invoke({"messages": [("user", "go")]})


def test_a_promise_about_a_tool_that_is_not_there_is_refused() -> None:
    @tool
    def search(text: str) -> str:
        """Searches."""
        return text

    with pytest.raises(InvalidDeclaration, match="serach"):
        promised([search], serach={"effect": "read"})
    with pytest.raises(InvalidDeclaration):
        promised([search], search={"efect": "read"})
    (undeclared,) = promised([search])
    assert undeclared.effect == "irreversible"
    assert promised([outside.TOOLS["note"]]) == [outside.TOOLS["note"]]


def test_a_call_of_a_model_is_named_by_its_id_wherever_the_messages_stand() -> None:
    message = AIMessage("", tool_calls=[{"id": "c", "name": "note", "args": {}}])

    def named(state: Any) -> str:
        request: Any = type("Request", (), {"state": state, "tool_call": {"id": "c"}})
        return id_of(request)

    assert [named(state) for state in ({"messages": [message]}, [message], {}, None)] == ["c", "c", "c", "c"]
    assert named([message, message]) == "c#2"

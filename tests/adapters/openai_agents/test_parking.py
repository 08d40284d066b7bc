"""What has to wait is an interruption, the SDK's own way, and what is beside it finishes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, ComputerTool, RunConfig, RunHooks, Runner, RunState, UserError, function_tool, handoff
from agents.agent import Agent as SomeAgent
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from agents.tool import set_function_tool_failure_error_function
from agents.tool_context import ToolContext

import milepost as mp
from milepost.adapters.openai_agents import (
    Attached,
    DurableSession,
    SnapshotResumed,
    Threads,
    current_call,
    durable,
    guarded,
    listed,
    recorded,
    run,
    tools_of,
)
from milepost.stores.api import Query
from tests.runtime.stage import until

QUIET = RunConfig(tracing_disabled=True)
Promises = dict[str, dict[str, Any]]


class Office:
    """A model that calls what a test says, then says what it was told; and what happened outside."""

    def __init__(self, folder: Path, *calls: tuple[str, str, dict[str, Any]]) -> None:
        self.store = f"sqlite:///{folder}/office.db"
        self.calls = calls
        self.asked: list[list[str]] = []
        self.sent: list[str] = []

    def answer(self, call: Any) -> ModelStep:
        returns: list[Any] = []
        for item in call.input:
            returns = [*returns, item["output"]] if item.get("type") == "function_call_output" else returns
            returns = [] if item.get("role") == "user" else returns
        self.asked.append(returns)
        if returns:
            return ModelStep(output=[assistant_message("; ".join(str(one) for one in returns))])
        return ModelStep(output=[function_call(tool, json.dumps(said), call_id=id_) for id_, tool, said in self.calls])

    def agent(self, *tools: Any, **options: Any) -> Agent[None]:
        wrapped = [function_tool(tool) if callable(tool) else tool for tool in tools]
        model = ScriptedModel([ModelStep(responder=self.answer)] * 20)
        return Agent("desk", model=model, tools=wrapped, **options)

    def threads(self, agent: Agent[None], promises: Promises | None = None, **options: Any) -> Threads:
        return Threads(mp.App(self.store, tools=listed(agent, promises=promises)), **options)


async def taken(threads: Threads, agent: Agent[None], given: Any = "go", **options: Any) -> tuple[Any, Attached]:
    """Run a guarded agent under the key that every test uses."""
    async with durable(threads, "t1") as held:
        return await run(guarded(agent), given, run_config=QUIET, **options), held


async def test_an_effect_that_turns_out_unknown_waits_until_its_siblings_are_over_and_is_an_interruption(
    tmp_path: Path,
) -> None:
    """Requirement 7. Requirement 11. The SDK itself would cancel the siblings, or tell the model to try again."""
    office = Office(tmp_path, ("c1", "mail", {"to": "ann"}), ("c2", "pay", {"cents": 5}), ("c3", "mail", {"to": "bob"}))
    lost = asyncio.Event()

    async def unknown_on_record() -> bool:
        return any(one.outcome == "unknown" for one in await threads.app.inspect.open_effects())

    async def mail(to: str) -> str:
        office.sent.append(f"mail {to}")
        await lost.wait()
        await until(unknown_on_record, "what came of pay is unknown")
        for _ in range(100):
            await asyncio.sleep(0)
        office.sent.append(f"mailed {to}")
        return f"mailed {to}"

    async def pay(cents: int) -> str:
        office.sent.append(f"pay {cents}")
        lost.set()
        raise RuntimeError("the line broke")

    agent = office.agent(mail, pay)
    threads = office.threads(agent)
    result, held = await taken(threads, agent)
    async with threads.app.client() as app:
        outcomes = {one.path: one.outcome for one in await app.inspect.effects(held.run.id)}
        await app.resolve(held.run.id, "@c2", mp.happened("paid 5"), by="ann", why="looked")
    after, _ = await taken(threads, agent)

    assert [one.call_id for one in result.interruptions] == ["c2"]
    assert "milepost resolve" in held.waits["c2"]
    assert outcomes == {"@c1": "confirmed", "@c2": "unknown", "@c3": "confirmed"}
    assert sorted(office.sent) == ["mail ann", "mail bob", "mailed ann", "mailed bob", "pay 5"]
    assert after.final_output == "mailed ann; paid 5; mailed bob"
    assert office.asked == [[], ["mailed ann", "paid 5", "mailed bob"]]


async def test_a_snapshot_is_gone_on_from_once(tmp_path: Path) -> None:
    """Requirement 67. By itself the SDK pays as often as the same snapshot is resumed."""
    office = Office(tmp_path, ("c1", "pay", {"cents": 5}))

    async def pay(cents: int) -> str:
        office.sent.append(f"pay {cents}")
        return "paid"

    agent = office.agent(function_tool(pay, needs_approval=True))
    threads = office.threads(agent)
    first, _ = await taken(threads, agent)
    kept = json.dumps(first.to_state().to_json())

    async def resumed() -> Any:
        state = await RunState.from_json(guarded(agent), json.loads(kept))
        state.approve(state.get_interruptions()[0])
        return await taken(threads, agent, state)

    together = await asyncio.gather(resumed(), resumed(), return_exceptions=True)
    with pytest.raises(SnapshotResumed, match="the snapshot that waits for c1"):
        await resumed()
    from_the_record, _ = await taken(threads, agent)

    won = [one for one in together if not isinstance(one, BaseException)]
    assert [type(one) for one in together if isinstance(one, BaseException)] == [SnapshotResumed]
    assert [result.final_output for result, _ in won] == ["paid"]
    assert from_the_record.final_output == "paid"
    assert office.sent == ["pay 5"]


async def test_a_snapshot_that_waits_for_no_call_is_gone_on_from_once_as_well(tmp_path: Path) -> None:
    office = Office(tmp_path, ("c1", "pay", {"cents": 5}))

    async def pay(cents: int) -> str:
        office.sent.append(f"pay {cents}")
        return "paid"

    agent = office.agent(pay)
    threads = office.threads(agent)
    first, _ = await taken(threads, agent)
    kept = json.dumps(first.to_state().to_json())

    async def resumed() -> Any:
        return await taken(threads, agent, await RunState.from_json(guarded(agent), json.loads(kept)))

    after, _ = await resumed()
    with pytest.raises(SnapshotResumed, match="this snapshot, which waits for no call"):
        await resumed()
    newer, _ = await taken(threads, agent, after.to_state())

    assert [result.final_output for result in (first, after, newer)] == ["paid"] * 3
    assert office.sent == ["pay 5"]


async def test_an_answer_of_the_host_is_no_approval_and_a_snapshot_that_still_waits_can_be_resumed_again(
    tmp_path: Path,
) -> None:
    """Requirement 58. Only the record can let the call start."""
    office = Office(tmp_path, ("c1", "pay", {"cents": 5}))

    async def pay(cents: int) -> str:
        office.sent.append(f"pay {cents}")
        return "paid"

    agent = office.agent(pay)
    threads = office.threads(agent, {"pay": {"approval": True}})
    first, _ = await taken(threads, agent)
    state = first.to_state()
    state.approve(state.get_interruptions()[0])
    with pytest.raises(mp.Parked, match="approval"):
        await taken(threads, agent, state)
    assert office.sent == []

    async with threads.app.client() as app:
        (asked,) = await app.inspect.approvals()
        await app.approve(asked.id, by="ann")
    after, _ = await taken(threads, agent, first.to_state())

    assert after.final_output == "paid"
    assert office.sent == ["pay 5"]


async def test_what_surely_failed_is_told_to_the_model_in_words_that_say_so(tmp_path: Path) -> None:
    office = Office(tmp_path, ("c1", "pay", {"cents": 5}), ("c2", "mail", {"to": "ann"}))

    async def pay(cents: int) -> str:
        raise mp.Rejected("the card is blocked")

    async def mail(to: str) -> str:
        raise AssertionError("never approved")

    agent = office.agent(pay, mail)
    threads = office.threads(agent, {"mail": {"approval": True}})
    await taken(threads, agent)
    async with threads.app.client() as app:
        (asked,) = await app.inspect.approvals()
        await app.deny(asked.id, by="ann", why="not today")
    after, _ = await taken(threads, agent)

    assert "pay certainly did not happen, nothing was done: the card is blocked" in after.final_output
    assert "not today" in after.final_output


async def test_a_tool_that_takes_too_long_is_unknown_and_the_model_is_not_told_a_failure(tmp_path: Path) -> None:
    """Requirement 11."""
    office = Office(tmp_path, ("c1", "pay", {"cents": 5}))

    async def pay(cents: int) -> str:
        office.sent.append(f"pay {cents}")
        await asyncio.Event().wait()
        return "never"

    agent = office.agent(function_tool(pay, timeout=1.0))
    result, held = await taken(office.threads(agent), agent)

    assert [one.call_id for one in result.interruptions] == ["c1"]
    assert "not known whether a call happened" in held.waits["c1"]
    assert office.asked == [[]]


async def test_a_session_holds_the_turns_that_ended_and_nothing_of_one_that_was_lost(tmp_path: Path) -> None:
    """Requirement 53. Requirement 58."""
    office = Office(tmp_path, ("c1", "pay", {"cents": 5}))
    breaks = [True]

    async def pay(cents: int) -> str:
        office.sent.append(f"pay {cents}")
        return "paid"

    async def tell(text: str) -> str:
        office.sent.append(f"tell {text}")
        if breaks.pop():
            raise mp.Rejected("nobody there")
        return "told"

    agent = office.agent(pay, tell)
    threads = office.threads(agent)
    session = DurableSession()
    await taken(threads, agent, "pay", session=session)
    office.calls = (("c2", "tell", {"text": "hi"}),)
    guarded_agent = guarded(agent)
    async with durable(threads, "t1"):
        before = await session.get_items()
        with pytest.raises(UserError, match="the host broke"):
            await run(guarded_agent, "tell", session=session, run_config=QUIET, hooks=Breaking())
        during = len(await session.get_items())
    async with durable(threads, "t1"):
        result = await run(guarded_agent, "tell", session=DurableSession(), run_config=QUIET)
        after = await DurableSession().get_items()
        last = await session.get_items(1)
        popped = await session.pop_item()
        rest = await session.get_items()
        await session.clear_session()
        nothing = (await session.get_items(), await session.pop_item())

    assert [item.get("role") or item["type"] for item in before] == [
        "user", "function_call", "function_call_output", "assistant",
    ]  # fmt: skip
    assert during > len(before)
    assert "nobody there" in result.final_output
    assert len(after) == 2 * len(before)
    assert after[: len(before)] == before
    assert [popped] == last == after[-1:]
    assert rest == after[:-1]
    assert nothing == ([], None)
    assert office.sent == ["pay 5", "tell hi"]
    assert len(office.asked) == 4


class Breaking:
    """Hooks of a host that breaks once a tool has ended."""

    def __new__(cls) -> Any:
        class Hooks(RunHooks[None]):
            async def on_tool_end(self, *_: Any) -> None:
                raise RuntimeError("the host broke")

        return Hooks()


async def test_a_tool_of_milepost_keeps_its_types_and_its_key_and_a_function_gets_one(tmp_path: Path) -> None:
    office = Office(tmp_path, ("c1", "charge", {"cents": 5}), ("c2", "swipe", {"cents": 6}))
    keys: list[str] = []

    @mp.tool(effect="keyed", key_ttl="1h")
    async def charge(call: mp.Call, cents: int) -> dict[str, int]:
        """Charge the card."""
        keys.append(call.key)
        return {"charged": cents}

    def swipe(cents: int) -> str:
        keys.append(current_call().key)
        return "swiped"

    agent = office.agent(*tools_of(charge), swipe)
    threads = office.threads(agent, {"swipe": {"effect": "keyed", "key_ttl": "1h"}})
    for _ in range(2):
        result, _ = await taken(threads, agent)
        assert result.final_output == "{'charged': 5}; swiped"

    assert len(set(keys)) == len(keys) == 2


async def test_outside_an_attached_run_a_guarded_agent_is_as_it_always_was(tmp_path: Path) -> None:
    office = Office(tmp_path, ("c1", "charge", {"cents": 5}), ("c2", "pay", {"cents": 5}))

    @mp.tool
    async def charge(cents: int) -> str:
        return f"charged {cents}"

    async def pay(cents: int) -> str:
        return f"paid {cents}"

    agent = guarded(office.agent(*tools_of(charge), pay))

    assert (await Runner.run(agent, "go", run_config=QUIET)).final_output == "charged 5; paid 5"
    assert (await run(agent, "go", run_config=QUIET)).final_output == "charged 5; paid 5"
    with pytest.raises(mp.NoRun):
        await run(agent, "go", run_config=QUIET, session=DurableSession())


async def test_what_an_agent_hands_off_to_is_guarded_too_also_in_a_snapshot(tmp_path: Path) -> None:
    office = Office(tmp_path)

    async def pay(cents: int) -> str:
        office.sent.append(f"pay {cents}")
        return "paid"

    pays = ModelStep(output=[function_call("pay", '{"cents": 5}', call_id="c1")])
    payer = Agent[None]("payer", model=ScriptedModel([pays] * 9), tools=[function_tool(pay)])
    for way in (payer, handoff(payer)):
        hands_off = ModelStep(output=[function_call("transfer_to_payer", "{}", call_id="h1")])
        desk = Agent[None]("desk", model=ScriptedModel([hands_off] * 3), handoffs=[way])
        threads = office.threads(desk, {"pay": {"approval": True}})
        first, _ = await taken(threads, desk)
        state = await RunState.from_json(guarded(desk), first.to_state().to_json())
        state.approve(state.get_interruptions()[0])
        with pytest.raises(mp.Parked):
            await taken(threads, desk, state)

    assert office.sent == []


async def test_arguments_that_the_sdk_cannot_read_certainly_did_nothing_and_the_model_is_told_so(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path, ("c1", "pay", {"cents": "five"}), ("c2", "nest", {"cents": 5}))

    async def pay(cents: int) -> str:
        office.sent.append(f"pay {cents}")
        return "paid"

    inner = function_tool(pay)

    async def nest(ctx: ToolContext[None], cents: int) -> Any:
        office.sent.append(f"nest {cents}")
        ctx.tool_name = "pay"
        return await set_function_tool_failure_error_function(inner, None).on_invoke_tool(ctx, '{"cents": "six"}')

    agent = office.agent(pay, nest)
    threads = office.threads(agent)
    result, held = await taken(threads, agent)

    assert [call.call_id for call in result.interruptions] == ["c2"]
    assert list(held.waits) == ["c2"], "what a tool does before it raises nobody knows"
    async with threads.app.client() as app:
        (open_,) = await app.inspect.open_effects()
        await app.resolve(open_.run_id, open_.path, mp.happened("nested"), by="ada", why="it stands in the books")
    result, _ = await taken(threads, agent)
    assert "pay certainly did not happen" in office.asked[-1][0]
    assert "Invalid JSON input" in office.asked[-1][0]
    assert office.asked[-1][1] == "nested"
    assert office.sent == ["nest 5"]


async def test_a_call_id_that_is_used_for_other_arguments_is_told_as_what_it_is(tmp_path: Path) -> None:
    office = Office(tmp_path, ("c1", "pay", {"cents": 5}))

    async def pay(cents: int) -> str:
        office.sent.append(f"pay {cents}")
        return "paid"

    agent = office.agent(pay)
    threads = office.threads(agent)
    await taken(threads, agent)
    office.calls = (("c1", "pay", {"cents": 6}),)
    with pytest.raises(mp.Diverged):
        await taken(threads, agent, "and again")
    assert office.sent == ["pay 5"]


async def test_a_call_that_cannot_be_made_any_more_lets_what_is_under_way_finish(tmp_path: Path) -> None:
    """The SDK cancels what is beside a call that raises."""
    office = Office(tmp_path, ("c1", "mail", {"to": "ann"}), ("c2", "pay", {"cents": 5}))
    begun, killed = asyncio.Event(), asyncio.Event()

    async def mail(to: str) -> str:
        begun.set()
        await killed.wait()
        for _ in range(200):
            await asyncio.sleep(0)
        office.sent.append(f"mail {to}")
        return "mailed"

    async def wants(*_: Any) -> bool:
        await begun.wait()
        async with mp.App(office.store, tools=listed(agent)).client() as app:
            (row,) = await app.inspect.runs(Query())
            await app.kill(row.id, by="ada", why="stop")
        killed.set()
        return False

    async def pay(cents: int) -> str:
        raise AssertionError("never called")

    agent = office.agent(mail, function_tool(pay, needs_approval=wants))
    threads = office.threads(agent)
    with pytest.raises(mp.MilepostError) as raised:
        await taken(threads, agent)
    assert raised.value.code in {"run_ended", "epoch_lost"}
    assert office.sent == ["mail ann"]


async def test_a_streamed_run_that_was_interrupted_is_begun_again_without_asking_again(tmp_path: Path) -> None:
    office = Office(tmp_path, ("c1", "pay", {"cents": 5}))

    async def pay(cents: int) -> str:
        office.sent.append(f"pay {cents}")
        return "paid"

    agent = office.agent(pay)
    threads = office.threads(agent, {"pay": {"approval": True}})
    other = mp.App(office.store, tools=listed(agent, promises={"pay": {"approval": True}}))

    async def streamed() -> Any:
        result = Runner.run_streamed(guarded(agent), "go", run_config=recorded(QUIET))
        async for _ in result.stream_events():
            pass
        return result

    async with durable(threads, "t1"):
        assert [call.call_id for call in (await streamed()).interruptions] == ["c1"]
        async with other.client() as app:
            (asked,) = await app.inspect.approvals()
            await app.approve(asked.id, by="ada")
        assert (await streamed()).final_output == "paid"

    assert office.asked == [[], ["paid"]]
    assert office.sent == ["pay 5"]


def test_what_cannot_be_guarded_is_refused(tmp_path: Path) -> None:
    office = Office(tmp_path)

    async def pay(cents: int) -> str:
        return "paid"

    inner = SomeAgent[None]("inner", tools=[function_tool(pay)])
    server: Any = object()
    computer = ComputerTool.__new__(ComputerTool)

    with pytest.raises(UserError, match="MCP servers"):
        guarded(SomeAgent("desk", mcp_servers=[server]))
    with pytest.raises(UserError, match="ComputerTool"):
        guarded(SomeAgent("desk", tools=[computer]))
    with pytest.raises(UserError, match="guarded\\(inner\\)"):
        guarded(office.agent(inner.as_tool("ask", "Asks.")))
    again = guarded(guarded(office.agent(guarded(inner).as_tool("ask", "Asks."), pay)))
    assert [tool.name for tool in listed(again)] == ["openai_agents.model", "openai_agents.kept", "pay"]
    with pytest.raises(mp.InvalidDeclaration, match="There are: pay"):
        listed(again, promises={"pya": {}})


async def test_a_tool_that_is_not_listed_is_not_called(tmp_path: Path) -> None:
    """Requirement 71."""
    office = Office(tmp_path, ("c1", "pay", {"cents": 5}))

    async def pay(cents: int) -> str:
        raise AssertionError("never called")

    agent = office.agent(pay)
    threads = Threads(mp.App(office.store, tools=listed(office.agent())))
    with pytest.raises(mp.InvalidDeclaration, match="pay is not listed"):
        await taken(threads, agent)

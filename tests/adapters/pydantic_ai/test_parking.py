"""What has to wait is deferred, the framework's own way, and what is beside it finishes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ApprovalRequired, DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_core import to_json

import milepost as mp
from milepost.adapters.pydantic_ai import MilepostDurability, Threads, current_call, durable, listed, toolset
from milepost.stores.api import Query

Desk = Agent[None, Any]
Promises = dict[str, dict[str, Any]]


class Office:
    """A model that calls what a test says, and what happened outside."""

    def __init__(self, folder: Path, *calls: ToolCallPart) -> None:
        self.store = f"sqlite:///{folder}/office.db"
        self.calls = calls
        self.asked: list[list[str]] = []
        self.sent: list[str] = []

    def model(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        returns = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        self.asked.append([str(part.content) for part in returns])
        if returns:
            return ModelResponse(parts=[TextPart("; ".join(str(part.content) for part in returns))])
        return ModelResponse(parts=list(self.calls))

    def agent(self, *tools: Any, output: Any = (str, DeferredToolRequests), **options: Any) -> Desk:
        durability = MilepostDurability[None]()
        model = FunctionModel(self.model)
        return Agent(model, name="desk", tools=tools, output_type=list(output), capabilities=[durability], **options)

    def threads(self, agent: Desk, promises: Promises | None = None, **options: Any) -> Threads:
        return Threads(mp.App(self.store, tools=listed(agent, promises=promises)), **options)


def call(tool: str, id_: str, **arguments: Any) -> ToolCallPart:
    return ToolCallPart(tool, arguments, id_)


def batch_of_three(folder: Path) -> tuple[Office, list[Any], asyncio.Event]:
    """Three calls at once. The first and the third finish only once the second has been objected to."""
    office = Office(folder, call("mail", "c1", to="ann"), call("pay", "c2", cents=5), call("post", "c3", text="hi"))
    objected = asyncio.Event()

    async def mail(to: str) -> str:
        office.sent.append(f"mail {to}")
        await objected.wait()
        return f"mailed {to}"

    async def pay(cents: int) -> str:
        office.sent.append(f"pay {cents}")
        return f"paid {cents}"

    async def post(text: str) -> str:
        office.sent.append(f"post {text}")
        await asyncio.sleep(0)
        objected.set()
        return f"posted {text}"

    return office, [mail, pay, post], objected


async def test_where_the_second_of_three_has_to_wait_its_siblings_finish_and_are_recorded(tmp_path: Path) -> None:
    """Requirement 7. The model is not asked again before the batch is settled."""
    office, tools, _ = batch_of_three(tmp_path)
    agent = office.agent(*tools)
    threads = office.threads(agent, {"pay": {"approval": True}})

    async with durable(threads, "t1") as run:
        first = await agent.run("go")
    async with threads.app.client() as app:
        outcomes = {one.path: one.outcome for one in await app.inspect.effects(run.id)}
        (asked,) = await app.inspect.approvals()
        await app.approve(asked.id, by="ada")
    async with durable(threads, "t1"):
        second = await agent.run("go")

    assert isinstance(first.output, DeferredToolRequests)
    assert [one.tool_call_id for one in first.output.approvals] == ["c2"]
    assert run.id in first.output.metadata["c2"]["milepost"]["ask"]
    assert outcomes == {"@c1": "confirmed", "@c2": "not_started", "@c3": "confirmed"}
    assert second.output == "mailed ann; paid 5; posted hi"
    assert office.sent == ["mail ann", "post hi", "pay 5"]
    assert office.asked == [[], ["mailed ann", "paid 5", "posted hi"]]


async def test_an_answer_of_the_host_is_no_approval(tmp_path: Path) -> None:
    """Requirement 58. The framework's own answer runs a parked call again; only the record can let it start."""
    office, tools, _ = batch_of_three(tmp_path)
    agent = office.agent(*tools)
    threads = office.threads(agent, {"pay": {"approval": True}})

    async with durable(threads, "t1"):
        first = await agent.run("go")
        again = await agent.run(
            message_history=first.all_messages(), deferred_tool_results=DeferredToolResults(approvals={"c2": True})
        )

    assert isinstance(again.output, DeferredToolRequests)
    assert office.sent == ["mail ann", "post hi"]


async def test_an_agent_that_cannot_say_that_it_waits_raises_once_the_batch_is_over(tmp_path: Path) -> None:
    office, tools, _ = batch_of_three(tmp_path)
    agent = office.agent(*tools, output=[str])
    threads = office.threads(agent, {"pay": {"approval": True}})

    async with durable(threads, "t1") as run:
        with pytest.raises(mp.Parked, match="approv"):
            await agent.run("go")

    async with threads.app.client() as app:
        outcomes = {one.path: one.outcome for one in await app.inspect.effects(run.id)}
    assert outcomes == {"@c1": "confirmed", "@c2": "not_started", "@c3": "confirmed"}


async def test_an_exception_in_an_effect_is_unknown_and_history_alone_does_not_repeat_it(tmp_path: Path) -> None:
    """Requirement 11. Requirement 58. Requirement 67. The framework by itself runs an unanswered call of a history."""
    office = Office(tmp_path, call("pay", "c1", cents=5))

    async def pay(cents: int) -> str:
        office.sent.append(f"pay {cents}")
        raise RuntimeError("the line broke")

    agent = office.agent(pay)
    threads = office.threads(agent)
    async with durable(threads, "t1"):
        first = await agent.run("go")
    history = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(first.all_messages()))

    async with durable(threads, "t1"):
        again = await agent.run(message_history=history)

    assert isinstance(first.output, DeferredToolRequests)
    assert isinstance(again.output, DeferredToolRequests)
    assert [one.tool_call_id for one in again.output.calls] == ["c1"]
    assert office.sent == ["pay 5"]
    assert office.asked == [[]]


async def test_an_id_that_a_model_gives_again_is_another_call(tmp_path: Path) -> None:
    """Some servers count the calls of each reply from zero."""
    office = Office(tmp_path)
    looks = iter(["open", "shut"])

    def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        told = [str(part.content) for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]
        office.asked.append(told)
        return ModelResponse(parts=[call("look", "call_0")] if len(told) < 2 else [TextPart(" ".join(told))])

    async def look() -> str:
        return next(looks)

    durability = MilepostDurability[None]()
    agent: Desk = Agent(FunctionModel(model), name="desk", tools=[look], capabilities=[durability])
    for _ in range(2):
        async with durable(office.threads(agent, {"look": {"effect": "read"}}), "t1"):
            assert (await agent.run("go")).output == "open shut"
    assert len(office.asked) == 3


async def test_a_call_that_cannot_be_made_any_more_lets_what_is_under_way_finish(tmp_path: Path) -> None:
    """The framework cancels what is beside a call that raises."""
    office = Office(tmp_path, call("mail", "c1", to="ann"), call("pay", "c2", cents=6))
    begun = asyncio.Event()

    async def mail(to: str) -> str:
        await begun.wait()
        async with mp.App(office.store, tools=listed(agent)).client() as app:
            (row,) = await app.inspect.runs(Query())
            await app.kill(row.id, by="ada", why="stop")
        for _ in range(100):  # meanwhile pay is to be sent again, and cannot be
            await asyncio.sleep(0.001)
        office.sent.append(f"mail {to}")
        return "mailed"

    async def pay(cents: int) -> str:
        begun.set()
        raise mp.NotSent(f"busy, {cents}")

    agent = office.agent(mail, pay)
    threads = office.threads(agent, {"pay": {"retry": mp.Retry(10_000, first="1ms", most="1ms")}})
    with pytest.raises(mp.MilepostError) as raised:
        async with durable(threads, "t1"):
            await agent.run("go")
    assert raised.value.code in {"epoch_lost", "run_ended"}
    assert office.sent == ["mail ann"]


async def test_what_surely_failed_is_told_to_the_model_and_what_is_denied_as_well(tmp_path: Path) -> None:
    office = Office(tmp_path, call("pay", "c1", cents=5), call("mail", "c2", to="ann"))

    async def pay(cents: int) -> str:
        raise mp.Rejected("the card is blocked")

    async def mail(to: str) -> str:
        raise AssertionError("never approved")

    agent = office.agent(pay, mail)
    threads = office.threads(agent, {"mail": {"approval": True}})
    async with durable(threads, "t1"):
        await agent.run("go")
    async with threads.app.client() as app:
        (asked,) = await app.inspect.approvals()
        await app.deny(asked.id, by="ada", why="not today")
    async with durable(threads, "t1"):
        again = await agent.run("go")

    assert "the card is blocked" in again.output
    assert "not today" in again.output


async def test_a_tool_that_asks_for_an_approval_itself_is_not_run_before_it_has_it(tmp_path: Path) -> None:
    office = Office(tmp_path, call("pay", "c1", cents=5))

    async def pay(ctx: RunContext[None], cents: int) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"why": "much"})
        office.sent.append(f"pay {cents}")
        return "paid"

    agent = office.agent(pay)
    threads = office.threads(agent)
    approved = DeferredToolResults(approvals={"c1": True})
    async with durable(threads, "t1"):
        first = await agent.run("go")
    async with durable(threads, "t1"):
        second = await agent.run(message_history=first.all_messages(), deferred_tool_results=approved)
    async with durable(threads, "t1"):
        third = await agent.run(message_history=first.all_messages(), deferred_tool_results=approved)

    assert first.output.metadata == {"c1": {"why": "much"}}
    assert (second.output, third.output) == ("paid", "paid")
    assert office.sent == ["pay 5"]


async def test_a_tool_of_milepost_keeps_its_types_and_its_key(tmp_path: Path) -> None:
    office = Office(tmp_path, call("charge", "c1", cents=5))
    keys: list[str] = []

    @mp.tool(effect="keyed", key_ttl="1h")
    async def charge(call: mp.Call, cents: int) -> dict[str, int]:
        """Charge the card."""
        keys.append(call.key)
        return {"charged": cents}

    agent = office.agent(toolsets=[toolset(charge)])
    app = mp.App(office.store, tools=[*listed(agent), charge])
    for _ in range(2):
        async with durable(Threads(app), "t1"):
            assert (await agent.run("go")).output == "{'charged': 5}"

    assert len(keys) == 1


async def test_a_tool_of_the_agent_gets_the_key_by_which_a_provider_drops_duplicates(tmp_path: Path) -> None:
    office = Office(tmp_path, call("charge", "c1", cents=5), call("swipe", "c2", cents=6))

    def charge(cents: int) -> str:
        return current_call().key

    async def swipe(cents: int) -> str:
        return current_call().key

    agent = office.agent(charge, swipe)
    threads = office.threads(agent, {"charge": {"effect": "keyed", "key_ttl": "1h"}})
    async with durable(threads, "t1"):
        one, other = (await agent.run("go")).output.split("; ")

    assert one != other
    with pytest.raises(mp.NoRun):
        current_call()


async def test_outside_an_attached_run_the_agent_is_as_it_always_was(tmp_path: Path) -> None:
    office = Office(tmp_path, call("charge", "c1", cents=5))

    @mp.tool
    async def charge(cents: int) -> str:
        return f"charged {cents}"

    agent = office.agent(toolsets=[toolset(charge)])

    assert (await agent.run("go")).output == "charged 5"


def test_a_promise_about_no_tool_is_refused_at_once(tmp_path: Path) -> None:
    office, tools, _ = batch_of_three(tmp_path)

    with pytest.raises(mp.InvalidDeclaration, match=r"pya.*There are: mail, pay, post"):
        office.threads(office.agent(*tools), {"pya": {"effect": "read"}})


async def test_a_tool_that_is_not_listed_is_refused_before_the_model_is_asked(tmp_path: Path) -> None:
    """Requirement 71."""
    office, tools, _ = batch_of_three(tmp_path)
    agent = office.agent(*tools)
    threads = office.threads(office.agent(*tools[:2]))

    async with durable(threads, "t1"):
        with pytest.raises(UserError, match="not listed by this app: post"):
            await agent.run("go")

    assert (office.asked, office.sent) == ([], [])


async def test_a_function_that_takes_one_model_is_recorded_by_its_fields(tmp_path: Path) -> None:
    class Payment(BaseModel):
        order: str
        cents: int

    office = Office(tmp_path, call("pay", "c1", order="7", cents=5))

    def pay(payment: Payment) -> str:
        return f"paid {payment.cents}"

    agent = office.agent(pay)
    threads = office.threads(agent)
    async with durable(threads, "t1") as run:
        assert (await agent.run("go")).output == "paid 5"
    async with threads.app.client() as app:
        (effect,) = await app.inspect.effects(run.id)

    assert effect.args == {"order": "7", "cents": 5}
    assert to_json(effect.result) == b'"paid 5"'

"""What is asked of the model is recorded, counted and paid for, over every life of the run."""

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, UsageLimitExceeded, UsageLimits
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

import milepost as mp
from milepost.adapters.pydantic_ai import MilepostDurability, Threads, durable, listed


class Asking:
    """A model that looks three times, then answers; on what it is told to break on, it breaks."""

    def __init__(self, folder: Path) -> None:
        self.store = f"sqlite:///{folder}/asking.db"
        self.asked = 0
        self.breaks: set[int] = set()
        self.hangs: set[int] = set()
        self.told: list[str] = []
        self.turns: list[int] = []
        self.days = 0
        self.reached = asyncio.Event()

    async def model(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        self.asked += 1
        self.reached.set()
        turn = len(messages) // 2
        self.turns.append(turn)
        if self.asked in self.breaks:
            raise ConnectionError("the provider is not there")
        if self.asked in self.hangs:
            await asyncio.Event().wait()
        if turn == 3:
            return ModelResponse(parts=[TextPart("found")])
        return ModelResponse(parts=[ToolCallPart("look", {"page": turn}, f"c{turn}")])

    def agent(self, model: Any = None) -> Agent[None, str]:
        agent = Agent(model or FunctionModel(self.model), name="finder", capabilities=[MilepostDurability[None]()])

        @agent.system_prompt
        def today() -> str:
            self.days += 1
            return f"day {self.days}"

        @agent.tool_plain
        async def look(page: int) -> str:
            self.told.append(f"look {page}")
            return f"page {page}"

        return agent

    def threads(self, agent: Agent[None, str], cost: mp.Cost | None = None, **options: Any) -> Threads:
        promises = {"look": {"effect": "read"}}
        return Threads(mp.App(self.store, tools=listed(agent, promises=promises, cost=cost)), **options)


async def test_usage_limits_hold_over_every_life_of_a_run(tmp_path: Path) -> None:
    """Requirement 18. The limit is reached with what was counted before the process ended."""
    asking = Asking(tmp_path)
    asking.breaks = {3}
    agent = asking.agent()
    threads = asking.threads(agent)
    limits = UsageLimits(request_limit=3)

    async with durable(threads, "t1"):
        with pytest.raises(ConnectionError):
            await agent.run("find", usage_limits=limits)
    async with durable(threads, "t1"):
        with pytest.raises(UsageLimitExceeded, match="request_limit of 3"):
            await agent.run("find", usage_limits=limits)
    async with durable(threads, "t1"):
        result = await agent.run("find", usage_limits=UsageLimits(request_limit=4))

    assert result.output == "found"
    assert result.usage.requests == 4
    assert asking.told == ["look 0", "look 1", "look 2"]
    assert asking.asked == 5


async def test_a_provider_that_is_not_there_fails_the_run_which_goes_on_from_there(tmp_path: Path) -> None:
    """Requirement 18. What it raises is raised to the host at once, in its own type."""
    asking = Asking(tmp_path)
    asking.breaks = {2, 3}
    agent = asking.agent()
    threads = asking.threads(agent)

    async with durable(threads, "t1"):
        for _ in range(2):
            with pytest.raises(ConnectionError):
                await agent.run("find")
    async with durable(threads, "t1"):
        first = await agent.run("find")
        again = await agent.run("find")

    assert (first.output, again.output) == ("found", "found")
    assert asking.turns == [0, 1, 1, 1, 2, 3, 0, 1, 2, 3]  # a run that has its result is over: the same words ask anew
    asking.told[3:] = []
    assert asking.told == ["look 0", "look 1", "look 2"]


async def test_an_operator_who_interrupts_a_question_asks_it_again_and_nothing_before_it(tmp_path: Path) -> None:
    """Requirement 18."""
    asking = Asking(tmp_path)
    asking.hangs = {2}
    agent = asking.agent()
    threads = asking.threads(agent)

    async with durable(threads, "t1"):
        running = asyncio.create_task(agent.run("find"))
        while asking.asked < 2:
            asking.reached.clear()
            await asking.reached.wait()
        running.cancel()
        await asyncio.wait([running])
    async with durable(threads, "t1"):
        assert (await agent.run("find")).output == "found"

    assert asking.asked == 5
    assert asking.told == ["look 0", "look 1", "look 2"]


async def test_a_question_costs_what_was_used_and_waits_where_the_budget_ends(tmp_path: Path) -> None:
    """A rule is asked before the model is: what the next question may cost has to be left."""
    asking = Asking(tmp_path)
    agent = asking.agent()
    cost: mp.Cost = {"requests": 1, "tokens": 1000}
    threads = asking.threads(agent, cost, budget={"requests": 3, "tokens": Decimal(1300)})

    async with durable(threads, "t1") as run:
        with pytest.raises(mp.Parked, match="budget"):
            await agent.run("find")
    spent = asking.asked
    async with threads.app.client() as app:
        await app.grant(run.id, by="ada", budget={"requests": 1})
    async with durable(threads, "t1"):
        result = await agent.run("find")

    assert (spent, asking.asked) == (3, 4)
    assert result.output == "found"


async def test_other_words_are_another_question_and_the_same_words_again_too(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    agent = asking.agent(TestModel(call_tools=[]))
    threads = asking.threads(agent)

    async def ids(*prompts: str) -> list[str]:
        async with durable(threads, "t1") as run:
            for prompt in prompts:
                await agent.run(prompt, instructions=f"today is {len(prompts)}")
        async with threads.app.client() as app:
            lines = await app.inspect.journal(run.id)
        return [line.fields["path"] for line in lines if line.name == "read_returned"]

    assert len(await ids("one", "two")) == 2
    assert len(await ids("one", "two", "one")) == 3
    assert len(await ids("one", "two", "one")) == 3


async def test_a_streamed_answer_is_recorded_whole(tmp_path: Path) -> None:
    asking = Asking(tmp_path)

    async def streamed(messages: list[ModelMessage], info: AgentInfo) -> Any:
        asking.asked += 1
        if len(messages) == 1:
            yield {0: DeltaToolCall("look", '{"page": 0}', tool_call_id="c1")}
        else:
            yield "fou"
            yield "nd"

    agent = asking.agent(FunctionModel(stream_function=streamed))
    threads = asking.threads(agent)
    for _ in range(2):
        async with durable(threads, "t1"), agent.run_stream("find") as result:
            assert await result.get_output() == "found"

    assert asking.asked == 2
    assert asking.told == ["look 0"]

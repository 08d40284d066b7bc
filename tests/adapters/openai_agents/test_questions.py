"""What is asked of the model is recorded, counted and paid for, over every life of the run."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, MaxTurnsExceeded, Model, ModelProvider, RunConfig, Runner, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from agents.usage import Usage

import milepost as mp
from milepost.adapters.openai_agents import Threads, durable, guarded, listed, recorded, run

QUIET = RunConfig(tracing_disabled=True)


class Asking:
    """A model that looks three times, then answers; on what it is told to break on, it breaks."""

    def __init__(self, folder: Path) -> None:
        self.store = f"sqlite:///{folder}/asking.db"
        self.asked = 0
        self.breaks: set[int] = set()
        self.hangs: set[int] = set()
        self.told: list[str] = []
        self.reached = asyncio.Event()

    async def answer(self, call: Any) -> ModelStep:
        self.asked += 1
        self.reached.set()
        if self.asked in self.breaks:
            raise ConnectionError("the provider is not there")
        if self.asked in self.hangs:
            await asyncio.Event().wait()
        turn = sum(item.get("type") == "function_call_output" for item in call.input)
        usage = Usage(requests=1, input_tokens=100, output_tokens=10, total_tokens=110)
        if turn == 3:
            return ModelStep(output=[assistant_message("found")], usage=usage)
        return ModelStep(output=[function_call("look", json.dumps({"page": turn}), call_id=f"c{turn}")], usage=usage)

    def model(self) -> ScriptedModel:
        return ScriptedModel([ModelStep(responder=self.answer)] * 20)

    def agent(self, model: Any = None) -> Agent[None]:
        async def look(page: int) -> str:
            self.told.append(f"look {page}")
            return f"page {page}"

        return Agent("finder", model=model or self.model(), tools=[function_tool(look)])

    def threads(self, agent: Agent[None], cost: mp.Cost | None = None, **options: Any) -> Threads:
        return Threads(
            mp.App(self.store, tools=listed(agent, promises={"look": {"effect": "read"}}, cost=cost)), **options
        )


async def test_a_limit_of_turns_and_what_was_used_hold_over_every_life_of_a_run(tmp_path: Path) -> None:
    """Requirement 18. The limit is reached with what was counted before the process ended."""
    asking = Asking(tmp_path)
    asking.breaks = {3}
    agent = asking.agent()
    threads, guarded_agent = asking.threads(agent), guarded(agent)

    async with durable(threads, "t1"):
        with pytest.raises(ConnectionError):
            await run(guarded_agent, "find", run_config=QUIET, max_turns=3)
    async with durable(threads, "t1"):
        with pytest.raises(MaxTurnsExceeded):
            await run(guarded_agent, "find", run_config=QUIET, max_turns=3)
        result = await run(guarded_agent, "find", run_config=QUIET, max_turns=4)

    usage = result.context_wrapper.usage
    assert result.final_output == "found"
    assert (usage.requests, usage.input_tokens, usage.output_tokens) == (4, 400, 40)
    assert asking.told == ["look 0", "look 1", "look 2"]
    assert asking.asked == 5


async def test_an_operator_who_interrupts_a_question_asks_it_again_and_nothing_before_it(tmp_path: Path) -> None:
    """Requirement 18."""
    asking = Asking(tmp_path)
    asking.hangs = {2}
    agent = asking.agent()
    threads = asking.threads(agent)

    async with durable(threads, "t1"):
        running = asyncio.create_task(run(guarded(agent), "find", run_config=QUIET))
        while asking.asked < 2:
            asking.reached.clear()
            await asking.reached.wait()
        running.cancel()
        await asyncio.wait([running])
    async with durable(threads, "t1"):
        assert (await run(guarded(agent), "find", run_config=QUIET)).final_output == "found"

    assert asking.asked == 5
    assert asking.told == ["look 0", "look 1", "look 2"]


async def test_a_question_costs_what_was_used_and_waits_where_the_budget_ends(tmp_path: Path) -> None:
    """A rule is asked before the model is: what the next question may cost has to be left."""
    asking = Asking(tmp_path)
    agent = asking.agent()
    threads = asking.threads(agent, {"tokens": 1000}, budget={"tokens": 1300})

    async with durable(threads, "t1") as held:
        with pytest.raises(mp.Parked, match="budget"):
            await run(guarded(agent), "find", run_config=QUIET)
    spent = asking.asked
    async with threads.app.client() as app:
        await app.grant(held.run.id, by="ada", budget={"tokens": 100})
    async with durable(threads, "t1"):
        result = await run(guarded(agent), "find", run_config=QUIET)

    assert (spent, asking.asked) == (3, 4)
    assert result.final_output == "found"


class Named(ModelProvider):
    """A provider that is asked for its models by name."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.names: list[str | None] = []

    def get_model(self, model_name: str | None) -> Model:
        self.names.append(model_name)
        return self.model


async def test_a_model_that_a_provider_brings_is_recorded_too(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    agent = asking.agent("any-model")
    threads = asking.threads(agent)
    provider = Named(asking.model())
    config = RunConfig(tracing_disabled=True, model_provider=provider)

    for _ in range(2):
        async with durable(threads, "t1"):
            assert (await run(guarded(agent), "find", run_config=config)).final_output == "found"

    assert set(provider.names) == {"any-model"}
    assert asking.asked == 4


async def test_a_streamed_answer_is_told_as_it_comes_and_recorded_whole(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    agent = asking.agent()
    threads = asking.threads(agent)
    kinds: list[list[str]] = []

    for _ in range(2):
        async with durable(threads, "t1"):
            result = Runner.run_streamed(guarded(agent), "find", run_config=recorded(QUIET))
            kinds.append(
                [event.data.type async for event in result.stream_events() if event.type == "raw_response_event"]
            )
        assert result.final_output == "found"

    live, replayed = kinds
    assert "response.output_text.delta" in live
    assert set(replayed) == {"response.completed"}
    assert live.count("response.completed") == len(replayed) == 4
    assert asking.asked == 4
    assert asking.told == ["look 0", "look 1", "look 2"]

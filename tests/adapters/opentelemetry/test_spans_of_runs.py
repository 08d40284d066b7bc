"""What the spans of a run say, and that nothing that OpenTelemetry does concerns a run."""

import asyncio
import logging
import threading
from decimal import Decimal
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import milepost as mp
from milepost import agents
from milepost.adapters.opentelemetry import Tracing
from milepost.errors import InvalidDeclaration

MODEL = "a-model"


@mp.tool(effect="read", cost={"usd": Decimal("0.01"), "input_tokens": 100, "output_tokens": 100})
async def ask_model(call: mp.Call, question: str) -> str:
    call.spent(usd=Decimal("0.005"), input_tokens=12, output_tokens=3)
    return question.upper()


@mp.tool(effect="read")
async def look_up(order: str) -> str:
    return order


@mp.tool(effect="keyed", key_ttl="24h", approval=True)
async def refund(order: str) -> str:
    return order


@mp.tool(effect="keyed", key_ttl="24h", retry=mp.Retry(2, first="1ms", most="1ms"))
async def flaky(call: mp.Call) -> int:
    if call.attempt == 1:
        raise mp.NotSent("busy")
    return call.attempt


@mp.tool
async def refused() -> None:
    raise mp.Rejected("no such account")


agent = mp.Workflow(
    "agent", version="1", input=str, result=str, tools=[ask_model, look_up, refund, flaky, refused],
    models={"ask_model": MODEL},
)  # fmt: skip


@agent.segment
async def thinking(run: mp.Run, order: str) -> mp.Next[str]:
    """Ask a model and look something up."""
    await ask_model(order)
    await look_up(order)
    await run.sleep("1ms")
    return mp.go(acting, order)


@agent.segment
async def acting(run: mp.Run, order: str) -> mp.Next[str]:
    """Act, once a person has agreed and a signal has come."""
    await flaky()
    await run.receive("go", str)
    return mp.done(await refund(order))


@mp.workflow(version="1", tools=[refused])
async def refusing(run: mp.Run) -> None:
    """Do what is refused."""
    await refused()


BUDGET = {"usd": 1, "input_tokens": 1_000, "output_tokens": 1_000}


async def driven(folder: Path, processor: SpanProcessor) -> list[str]:
    """Let the agent run to its end, answering what it waits for; return the run's statuses that were seen."""
    app = mp.App(f"sqlite:///{folder / 'agent.db'}", workflows=[agent])
    app.observe(Tracing(processor, every="1ms"))
    async with app:
        handle = await app.start(agent, "order-1", budget=BUDGET)
        await app.send(handle.id, "go", "now")
        async with asyncio.timeout(60):
            while not (asked := await app.inspect.approvals("asked")):  # noqa: ASYNC110  the store tells nobody
                await asyncio.sleep(0)
        await app.approve(asked[0].id, by="ann")
        return [await handle.result(timeout="60s")]


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> list[ReadableSpan]:
    kept = InMemorySpanExporter()
    assert asyncio.run(driven(tmp_path_factory.mktemp("agent"), SimpleSpanProcessor(kept))) == ["order-1"]
    return list(kept.get_finished_spans())


def named(spans: list[ReadableSpan], name: str) -> list[ReadableSpan]:
    return sorted((span for span in spans if span.name == name), key=lambda span: span.start_time or 0)


def test_a_costed_read_that_asks_a_model_is_a_chat_with_its_model_and_its_tokens(spans: list[ReadableSpan]) -> None:
    (chat,) = named(spans, f"chat {MODEL}")

    assert chat.attributes is not None
    assert chat.attributes["gen_ai.operation.name"] == "chat"
    assert chat.attributes["gen_ai.request.model"] == MODEL
    assert chat.attributes["gen_ai.usage.input_tokens"] == 12
    assert chat.attributes["gen_ai.usage.output_tokens"] == 3
    assert chat.attributes["milepost.spent.usd"] == 0.005


def test_each_attempt_is_a_span_of_its_own_and_linked_to_the_one_before(spans: list[ReadableSpan]) -> None:
    first, second = named(spans, "execute_tool flaky")

    assert first.status.status_code is StatusCode.ERROR
    assert first.status.description == "busy"
    assert second.status.status_code is StatusCode.UNSET
    assert [link.context.span_id for link in second.links] == [first.context.span_id]


def test_segments_steps_and_waits_stand_below_each_other(spans: list[ReadableSpan]) -> None:
    by_id = {span.context.span_id: span for span in spans}

    def above(span: ReadableSpan) -> str:
        return by_id[span.parent.span_id].name if span.parent else ""

    assert {span.name: above(span) for span in spans} == {
        "run agent": "",
        "segment thinking": "run agent",
        f"chat {MODEL}": "segment thinking",
        "execute_tool look_up": "segment thinking",
        "sleep": "segment thinking",
        "segment acting": "run agent",
        "execute_tool flaky": "segment acting",
        "receive go": "segment acting",
        "approval refund": "segment acting",
        "execute_tool refund": "segment acting",
    }
    assert all(span.start_time <= span.end_time for span in spans if span.start_time and span.end_time)


def test_an_approval_lasts_from_the_asking_to_the_answer_and_says_who(spans: list[ReadableSpan]) -> None:
    (asked,) = named(spans, "approval refund")

    assert asked.attributes is not None
    assert (asked.attributes["milepost.approved"], asked.attributes["milepost.by"]) == (True, "ann")


def test_a_run_that_fails_is_an_error_with_its_reason(tmp_path: Path) -> None:
    kept = InMemorySpanExporter()

    async def fails() -> None:
        app = mp.App(f"sqlite:///{tmp_path / 'agent.db'}", workflows=[refusing])
        app.observe(Tracing(SimpleSpanProcessor(kept), every="1ms"))
        async with app:
            with pytest.raises(mp.RunFailed):
                await (await app.start(refusing)).result(timeout="60s")

    asyncio.run(fails())
    (root,) = named(list(kept.get_finished_spans()), "run refusing")
    assert root.status.status_code is StatusCode.ERROR
    assert "no such account" in (root.status.description or "")


class Raising(SpanProcessor):
    """A processor that always fails."""

    def on_end(self, span: ReadableSpan) -> None:
        del span
        raise OSError("the collector is away")


class Hanging(SpanProcessor):
    """A processor that takes one span and never comes back."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self.released = threading.Event()

    def on_end(self, span: ReadableSpan) -> None:
        del span
        self.came.set()
        self.released.wait(60)


def test_a_processor_that_raises_fails_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "milepost"):
        assert asyncio.run(driven(tmp_path, Raising())) == ["order-1"]

    assert "a span was not taken; runs go on" in caplog.text


def test_a_processor_that_hangs_delays_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("milepost.adapters.opentelemetry.tracing.CLOSING_S", 1.0)
    hanging = Hanging()
    try:
        assert asyncio.run(driven(tmp_path, hanging)) == ["order-1"]
        assert hanging.came.is_set()
        assert "are lost; runs are not concerned" in caplog.text
    finally:
        hanging.released.set()


def test_what_a_slow_processor_cannot_take_is_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.adapters.opentelemetry.tracing.WAITING_MOST", 2)
    monkeypatch.setattr("milepost.adapters.opentelemetry.tracing.CLOSING_S", 1.0)
    hanging = Hanging()
    tracing = Tracing(hanging, every="1ms")

    async def many() -> None:
        app = mp.App(f"sqlite:///{tmp_path / 'agent.db'}", tools=[look_up])
        app.observe(tracing)
        async with app.attach(key="many") as run:
            for number in range(20):
                await run.attempt(f"call-{number}", look_up, f"order-{number}")

    try:
        asyncio.run(many())
        assert tracing.dropped > 0
    finally:
        hanging.released.set()


async def told(kept: InMemorySpanExporter, name: str, times: int = 1) -> None:
    """Wait until spans of this name were told."""
    async with asyncio.timeout(60):
        while len(named(list(kept.get_finished_spans()), name)) < times:  # noqa: ASYNC110  a thread tells them
            await asyncio.sleep(0.001)


def test_a_run_that_was_put_aside_and_grows_again_is_not_told_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.adapters.opentelemetry.tracing.FOLLOWED_MOST", 1)
    kept = InMemorySpanExporter()

    async def by_turns() -> None:
        app = mp.App(f"sqlite:///{tmp_path / 'agent.db'}", tools=[look_up])
        app.observe(Tracing(SimpleSpanProcessor(kept), every="1ms"))
        async with app, app.attach(key="one") as one, app.attach(key="two") as two:
            for number in range(6):
                await (two if number % 2 else one).attempt(f"call-{number}", look_up, f"order-{number}")
                await told(kept, "execute_tool look_up", number + 1)

    asyncio.run(by_turns())
    assert len(named(list(kept.get_finished_spans()), "execute_tool look_up")) == 6


def test_a_run_that_is_killed_from_elsewhere_is_told_with_what_was_open(tmp_path: Path) -> None:
    kept = InMemorySpanExporter()
    store = f"sqlite:///{tmp_path / 'agent.db'}"
    begun, killed = asyncio.Event(), asyncio.Event()

    @mp.tool
    async def act() -> None:
        begun.set()
        await killed.wait()

    @mp.workflow(version="1", tools=[act])
    async def acting_long(run: mp.Run) -> None:
        del run
        await act()

    async def killing() -> None:
        app = mp.App(store, workflows=[acting_long])
        app.observe(Tracing(SimpleSpanProcessor(kept), every="1ms"))
        async with app:
            handle = await app.start(acting_long)
            await begun.wait()
            async with mp.App(store).client() as other:
                await other.kill(handle.id, by="ann", why="stop")
            killed.set()
            await told(kept, "run acting_long")

    asyncio.run(killing())
    spans = list(kept.get_finished_spans())
    assert len({span.context.span_id for span in spans if span.context}) == len(spans)
    (attempt,) = named(spans, "execute_tool act")
    assert attempt.attributes is not None
    assert attempt.attributes["milepost.interrupted"] is True
    assert "milepost.outcome" not in attempt.attributes


def test_an_app_that_is_open_takes_no_observer(tmp_path: Path) -> None:
    async def late() -> None:
        app = mp.App(f"sqlite:///{tmp_path / 'agent.db'}")
        async with app.client():
            with pytest.raises(InvalidDeclaration, match="before 'async with app'"):
                app.observe(Tracing(Raising()))

    asyncio.run(late())


async def told_of_an_agent(folder: Path, kept: InMemorySpanExporter) -> None:
    """Let an agent of our own loop have one turn."""
    desk = agents.Agent(
        "desk", version="1", model=agents.ScriptedModel("Hello.", name="small"), result=str,
        limits=agents.Limits(turns=3, tokens=10_000),
    )  # fmt: skip
    app = mp.App(f"sqlite:///{folder / 'agent.db'}", workflows=[desk.workflow])
    app.observe(Tracing(SimpleSpanProcessor(kept), every="1ms"))
    async with app:
        handle = await app.start(desk.workflow, agents.Task("Hi"), budget=desk.budget)
        assert await handle.result(timeout="60s") == "Hello."


def test_each_turn_of_an_agent_is_a_chat_with_the_tokens_that_its_model_counted(tmp_path: Path) -> None:
    kept = InMemorySpanExporter()

    asyncio.run(told_of_an_agent(tmp_path, kept))

    (chat,) = named(list(kept.get_finished_spans()), "chat small")
    assert chat.attributes is not None
    counted = [chat.attributes[f"gen_ai.usage.{which}_tokens"] for which in ("input", "output")]
    assert all(isinstance(tokens, int) and tokens > 0 for tokens in counted)

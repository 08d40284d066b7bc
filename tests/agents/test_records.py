"""What stands in the record of an agent's run, what does not, and what no run goes on from."""

import json
from typing import Any

import msgspec
import pytest

import milepost as mp
from benchmarks.conversation import kilobyte
from milepost import agents
from milepost.agents.messages import Conversation, whole
from milepost.core.decide import World, decide
from tests.agents.desks import PLENTY, Desk
from tests.runtime.stage import Stage, parked, status_of

REFUND = agents.call("refund", order="o-1", cents=300)
MAIL = agents.call("mail", to="ann", body="Sorry.")
ASKED = agents.Reply(calls=(agents.ToolCall("1", "refund", '{"order":"o-1","cents":300}'),))
GARBLED = '{"kind":"event","event":{"of":"model","step":"turn/ask#1","attempt":99,"piece":0,"text":"refund it again"}}'


async def waiting_for_a_mail(stage: Stage, agent: agents.Agent[Any]) -> str:
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), key="one", budget=PLENTY)
        await parked(handle, "approval")
        return handle.id


async def approved(stage: Stage, agent: agents.Agent[Any], run_id: str) -> Any:
    async with stage.app(agent.workflow) as app:
        (asked,) = await app.inspect.approvals()
        await app.approve(asked.id, by="me")
        return await app.handle(run_id, agent.workflow).result(timeout="60s")


@pytest.mark.parametrize("done_to_it", ["deleted", "garbled"])
async def test_without_its_transcript_a_run_goes_on_as_with_it(stage: Stage, done_to_it: str) -> None:
    """Requirement 16. Requirement 53. Requirement 42."""
    desk = Desk()
    agent = desk.agent(agents.together(REFUND, MAIL), "Done.", stream=True)
    run_id = await waiting_for_a_mail(stage, agent)
    async with stage.app(agent.workflow).client() as app:
        before = await app.plan(run_id)
    assert stage.rows("SELECT count(*) FROM mp_events") != [(0,)]

    if done_to_it == "deleted":
        stage.write("DELETE FROM mp_events")
    else:
        stage.write("UPDATE mp_events SET body = ?", GARBLED.encode())

    async with stage.app(agent.workflow).client() as app:
        assert (await app.plan(run_id)).perform == before.perform
    assert await approved(stage, agent, run_id) == "Done."
    assert desk.done == ["refund o-1 300", "mail ann"]
    assert len(desk.asked) == 2


async def test_the_next_action_does_not_depend_on_what_was_said(stage: Stage) -> None:
    """Requirement 16. Requirement 38. The same record, with the whole conversation taken out of it."""
    agent = Desk().agent(agents.together(REFUND, MAIL), "Done.")
    run_id = await waiting_for_a_mail(stage, agent)
    async with stage.app(agent.workflow).client() as app:
        state, _ = await app.inspect.record(run_id)
        world = await world_of(app, run_id)
        with_words = decide(state, world)
        conversation = msgspec.json.decode(bytes(state.state))
        assert conversation["messages"]

        state.state = msgspec.Raw(json.dumps({**conversation, "messages": []}).encode())
        assert decide(state, world) == with_words
        assert [(step.tool, step.outcome) for step in state.effects()] == [  # what may have changed outside
            ("ask.refund-desk", "confirmed"), ("refund", "confirmed"), ("mail", "not_started"),
        ]  # fmt: skip


async def world_of(app: mp.App, run_id: str) -> World:
    detail = await app.inspect.detail(run_id)
    return World(detail.row.changed_at + 1_000, {}, frozenset(), (), None)


class Slipped(msgspec.Struct):
    """What looks like a task and does not look at its history."""

    text: str
    history: tuple[agents.Message, ...]


def test_a_history_with_a_call_in_the_air_is_no_task() -> None:
    """Requirement 58. What became of the refund stands in the record of its run, and in no transcript."""
    transcript = (agents.Words("Refund o-1."), ASKED)

    with pytest.raises(agents.TranscriptOnly, match=r"refund \(1\)"):
        agents.Task("go on", history=transcript)
    with pytest.raises(agents.TranscriptOnly):
        agents.Task("go on", history=(*transcript, agents.Words("?")))
    with pytest.raises(agents.TranscriptOnly):
        agents.Task("go on", history=(*transcript, agents.Answer("1", "refund", "unknown", "?")))
    agents.Task("go on", history=(*transcript, agents.Answer("1", "refund", "confirmed", "paid back")))


async def test_a_transcript_that_is_slipped_in_from_outside_starts_nothing(stage: Stage) -> None:
    """Requirement 58."""
    desk = Desk()
    agent = desk.agent("never said")
    async with stage.app(agent.workflow) as app:
        slipped: Any = Slipped("go on", (agents.Words("x"), ASKED))
        with pytest.raises(mp.InvalidValue, match="refund"):
            await app.start(agent.workflow, slipped, budget=PLENTY)
        assert desk.asked == []


async def test_a_checkpoint_that_is_a_message_history_alone_is_refused(stage: Stage) -> None:
    """Requirement 67. Requirement 58. Handed over by an older program that kept nothing but messages."""
    old = mp.Workflow("refund-desk", version="0", input=agents.Task, result=str)

    @old.segment
    async def begin(run: mp.Run, task: agents.Task) -> mp.Next[str]:
        return mp.done("never")

    async with stage.app(old).client() as app:
        handle = await app.start(old, agents.Task("Refund o-1."), budget=PLENTY)
    desk = Desk()
    agent = desk.agent("never said")

    @agent.workflow.migration(from_="0")
    def _(segment: str, state: Any) -> mp.Next[str]:
        history = (agents.Words(state["text"]), ASKED)  # and whether the refund was made, it does not say
        return mp.go(agent.workflow.segments["turn"], Conversation(history))

    async with stage.app(agent.workflow) as app:
        await status_of(app.handle(handle.id), "blocked")

        row = (await app.inspect.detail(handle.id)).row
        assert (row.why or "").startswith("condition_failed: turn: requires= does not hold")
        assert desk.asked == []
        assert desk.done == []


async def test_what_a_checkpoint_holds_says_of_every_call_how_it_came_out(stage: Stage) -> None:
    """Requirement 16. Requirement 62. Requirement 67."""
    agent = Desk().agent(REFUND, MAIL, "Done.")
    run_id = await waiting_for_a_mail(stage, agent)
    async with stage.app(agent.workflow).client() as app:
        detail = await app.inspect.detail(run_id)

    stored = msgspec.convert(detail.state, Conversation)
    assert whole(stored.messages)
    assert (stored.turn, stored.outcomes("refund")) == (2, ["confirmed"])
    assert detail.manifest["models"] == {"ask.refund-desk": "scripted"}
    assert detail.granted == {"turns": "50"}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"instructions": mp.prompt("instructions", "Be stern.", version="2")},
            "prompt 'instructions' was version '1'",
        ),
        ({"model": agents.ScriptedModel("-", "Done.", name="another")}, "model 'ask.refund-desk' was 'scripted'"),
        ({"version": "2"}, "version '1'"),
    ],
)
async def test_a_changed_prompt_or_model_blocks_a_run_that_waits_until_it_is_declared_compatible(
    stage: Stage, changed: dict[str, Any], says: str
) -> None:
    """Requirement 34. Requirement 35. Requirement 57."""
    desk = Desk()
    agent = desk.agent(REFUND, limits=agents.Limits(turns=1))
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=agent.budget)
        await parked(handle, "budget")
    options = {"model": agents.ScriptedModel("-", "Done."), **changed}
    other = desk.agent(**options)
    async with stage.app(other.workflow) as app:
        await app.grant(handle.id, budget={"turns": 9}, by="me")
        await status_of(app.handle(handle.id), "blocked")
        row = (await app.inspect.detail(handle.id)).row
        assert says in (row.why or "")
    covering = desk.agent(**{"version": "2", **options}, compatible_with=["1"])
    async with stage.app(covering.workflow) as app:
        await app.resume(handle.id, by="me", why="declared")
        await status_of(app.handle(handle.id), "done")
        assert await app.handle(handle.id, covering.workflow).result() == "Done."


async def test_a_turn_of_a_long_conversation_stores_what_is_new_and_not_the_conversation(stage: Stage) -> None:
    turns = 120

    def talk(request: agents.Request) -> agents.Reply:
        return agents.Reply(kilobyte(request.turn), agents.call("look_up", order=f"o-{request.turn}").calls)

    agent = Desk().agent(*[talk] * turns, "Done.", limits=agents.Limits(turns=turns + 1))
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=agent.budget)
        await handle.result(timeout="50s")

    sizes = [size for (size,) in stage.rows("SELECT length(body) FROM mp_chunks")]
    entries = [size for (size,) in stage.rows("SELECT length(body) FROM mp_journal")]
    said = turns * 1_300  # a kilobyte of hex, the call, the answer
    assert sum(sizes) < 4 * said
    assert sum(entries) < 6 * said
    assert said * turns / 2 > 5 * (sum(sizes) + sum(entries))  # what storing it whole each time would have cost


def test_two_agents_with_the_same_parts_have_the_same_manifest() -> None:
    desk = Desk()
    one, two = desk.agent("a"), desk.agent("b")

    assert one.workflow.fingerprint == two.workflow.fingerprint
    assert set(one.workflow.tools) == {"ask.refund-desk", "look_up", "refund", "mail"}

"""What an agent does with what its model says."""

from typing import Any

import pytest

import milepost as mp
from milepost import agents
from milepost.agents.messages import unanswered, whole
from milepost.stores.api import Query
from tests.agents.desks import PLENTY, Decision, Desk, answers
from tests.runtime.stage import Stage, names


async def ended(stage: Stage, agent: agents.Agent[Any], text: str = "Refund o-1.", **options: Any) -> Any:
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task(text), budget=PLENTY, **options)
        return await handle.result(timeout="60s")


async def why_failed(stage: Stage, agent: agents.Agent[Any]) -> str:
    with pytest.raises(mp.RunFailed):
        await ended(stage, agent)
    async with stage.app(agent.workflow).client() as app:
        (row,) = await app.inspect.runs(Query())
        return row.why or ""


async def test_what_a_model_says_when_it_calls_nothing_is_the_answer(stage: Stage) -> None:
    desk = Desk()

    assert await ended(stage, desk.agent("Hello.")) == "Hello."
    (asked,) = desk.asked
    assert (asked.instructions, asked.messages) == ("Be kind.", (agents.Words("Refund o-1."),))
    assert [tool.name for tool in asked.tools] == ["look_up", "refund", "mail"]
    assert asked.tools[1].description == "Pay an order back."
    assert asked.tools[1].parameters["required"] == ["order", "cents"]


async def test_the_calls_of_a_reply_are_steps_and_their_results_are_told_in_its_order(stage: Stage) -> None:
    desk = Desk()
    calls = agents.together(agents.call("look_up", order="o-1"), agents.call("refund", order="o-1", cents=300))

    assert await ended(stage, desk.agent(calls, "Done.")) == "Done."
    assert sorted(desk.done) == ["look_up o-1", "refund o-1 300"]
    assert [(a.tool, a.outcome, a.text) for a in answers(desk.asked[1])] == [
        ("look_up", "confirmed", '{"cents":300}'),
        ("refund", "confirmed", "paid back"),
    ]


async def test_calls_that_cannot_be_made_are_explained_and_their_siblings_are_made(stage: Stage) -> None:
    desk = Desk()
    calls = agents.together(
        agents.call("refund", order="o-1"), agents.call("fly"), agents.call("look_up", order="none"),
        agents.call("refund", order="o-1", cents=300),
    )  # fmt: skip

    await ended(stage, desk.agent(calls, "Done."))

    told = answers(desk.asked[1])
    assert [answer.outcome for answer in told] == ["invalid", "invalid", "failed", "confirmed"]
    assert "Nothing was done" in told[0].text
    assert "look_up, refund, mail" in told[1].text
    assert "no such order" in told[2].text
    assert sorted(desk.done) == ["look_up none", "refund o-1 300"]


async def test_every_history_that_a_model_is_sent_answers_every_call(stage: Stage) -> None:
    desk = Desk()
    odd = agents.Reply(calls=(agents.ToolCall("same", "look_up", '{"order":"o-1"}'),) * 2)

    await ended(stage, desk.agent(odd, odd, "Done."))

    assert all(whole(asked.messages) for asked in desk.asked)
    ids = [answer.call for answer in answers(desk.asked[2])]
    assert len(set(ids)) == 4


async def test_a_typed_answer_is_given_by_a_call_and_is_of_its_type(stage: Stage) -> None:
    desk = Desk()
    given = Decision(refunded=True, why="broken cup")

    assert await ended(stage, desk.agent(agents.final(given), result=Decision)) == given
    (asked,) = desk.asked
    assert asked.result is not None
    assert (asked.result.name, set(asked.result.parameters["properties"])) == ("final_result", {"refunded", "why"})


@pytest.mark.parametrize(("kind", "value"), [(int, 3), (list[str], ["a"]), (dict[str, int], {"a": 1})])
async def test_an_answer_of_any_type_may_be_asked_for(stage: Stage, kind: Any, value: Any) -> None:
    assert await ended(stage, Desk().agent(agents.final(value), result=kind)) == value


async def test_a_small_model_that_writes_the_answer_as_text_is_understood(stage: Stage) -> None:
    text = '{"refunded": false, "why": "too late"}'

    assert await ended(stage, Desk().agent(text, result=Decision)) == Decision(refunded=False, why="too late")


async def test_an_invalid_answer_is_sent_back_with_the_reason(stage: Stage) -> None:
    desk = Desk()
    bad = agents.Reply(calls=(agents.ToolCall("1", "final_result", '{"refunded": "perhaps"}'),))

    given = await ended(stage, desk.agent(bad, agents.final(Decision(refunded=True, why="x")), result=Decision))

    assert given.refunded is True
    (told,) = answers(desk.asked[1])
    assert told.outcome == "invalid"
    assert "refunded" in told.text


async def test_an_answer_that_the_users_own_check_refuses_is_sent_back(stage: Stage) -> None:
    desk = Desk()

    def check(answer: str) -> None:
        if "sorry" not in answer:
            raise ValueError("say sorry")

    assert await ended(stage, desk.agent("No.", "No, sorry.", check=check)) == "No, sorry."
    assert "say sorry" in str(desk.asked[1].messages[-1])


@pytest.mark.parametrize("line", ["", "nothing of that kind", agents.Reply(text="half an an", finish="length")])
async def test_repairs_are_bounded_and_then_the_run_fails_with_a_code(stage: Stage, line: Any) -> None:
    """Requirement 68."""
    desk = Desk()

    why = await why_failed(stage, desk.agent(*[line] * 9, result=Decision, repairs=2))

    assert "result_invalid" in why
    assert len(desk.asked) == 3


async def test_an_answer_given_beside_other_calls_is_not_taken_before_they_were_seen(stage: Stage) -> None:
    desk = Desk()
    both = agents.together(
        agents.call("refund", order="o-1", cents=300), agents.final(Decision(refunded=True, why="guess"))
    )

    given = await ended(stage, desk.agent(both, agents.final(Decision(refunded=True, why="seen")), result=Decision))

    assert given.why == "seen"
    assert [answer.outcome for answer in answers(desk.asked[1])] == ["confirmed", "invalid"]
    assert desk.done == ["refund o-1 300"]


async def test_a_stop_condition_ends_the_run_before_the_model_is_asked_again(stage: Stage) -> None:
    desk = Desk()

    def enough(seen: agents.Conversation) -> mp.Next[str] | None:
        return mp.done("paid") if "confirmed" in seen.outcomes("refund") else None

    agent = desk.agent(agents.call("refund", order="o-1", cents=300), "never said", stop=[enough])

    assert await ended(stage, agent) == "paid"
    assert len(desk.asked) == 1


async def test_what_a_model_says_is_recorded_before_any_of_its_calls_is_planned(stage: Stage) -> None:
    """Requirement 17."""
    desk = Desk()
    agent = desk.agent(agents.call("refund", order="o-1", cents=300), "Done.")
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=PLENTY)
        await handle.result(timeout="60s")

        told = [name for name in await names(app, handle.id) if name.startswith(("effect", "checkpointed"))]
        assert told[:6] == [
            "checkpointed", "effect_started", "effect_confirmed", "effect_started", "effect_confirmed", "checkpointed",
        ]  # fmt: skip


async def test_half_a_character_of_a_small_model_is_stored_as_what_can_be_read(stage: Stage) -> None:
    desk = Desk()
    odd = agents.Reply("caf\ud83d", (agents.ToolCall("1", "look_up", '{"order":"o-\ud83d"}'),))

    await ended(stage, desk.agent(odd, "Done."))

    assert desk.done == ["look_up o-?"]


async def test_the_same_agent_goes_on_from_an_earlier_conversation(stage: Stage) -> None:
    desk = Desk()
    agent = desk.agent(agents.call("look_up", order="o-1"), "300 cents.")
    async with stage.app(agent.workflow) as app:
        first = await app.start(agent.workflow, agents.Task("How much?"), budget=PLENTY)
        await first.result(timeout="60s")
        before = await agents.history(app, agent, first.id)
        assert [type(message).__name__ for message in before] == ["Words", "Reply", "Answer", "Reply"]

        again = agents.Task("And o-2?", history=tuple(before))
        second = await app.start(agent.workflow, again, budget=PLENTY)
        await second.result(timeout="60s")

    assert desk.asked[2].messages == (*before, agents.Words("And o-2?"))
    assert unanswered(desk.asked[3].messages) == []


async def test_calls_that_a_model_gives_no_id_have_one_of_their_own_in_the_whole_history(stage: Stage) -> None:
    """A provider refuses a history in which two calls have one id."""
    desk = Desk()
    agent = desk.agent(agents.call("look_up", order="o-1"), "300 cents.")
    async with stage.app(agent.workflow) as app:
        history: tuple[agents.Message, ...] = ()
        for _ in range(3):
            handle = await app.start(agent.workflow, agents.Task("How much?", history=history), budget=PLENTY)
            await handle.result(timeout="60s")
            history = tuple(await agents.history(app, agent, handle.id))

    made = [call.id for message in history if isinstance(message, agents.Reply) for call in message.calls]
    assert len(set(made)) == 3


async def test_a_final_answer_that_was_sent_back_is_not_shown_as_the_result(stage: Stage) -> None:
    desk = Desk()

    def check(_: Decision) -> None:
        raise ValueError("say sorry")

    agent = desk.agent(agents.final(Decision(refunded=True, why="x")), result=Decision, check=check, repairs=0)
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("Refund o-1."), budget=PLENTY)
        with pytest.raises(mp.RunFailed):
            await handle.result(timeout="60s")
        answer = (await agents.history(app, agent, handle.id))[-1]

    assert isinstance(answer, agents.Answer)
    assert (answer.outcome, "say sorry" in answer.text) == ("invalid", True)


def test_what_cannot_be_honoured_is_refused_where_it_is_declared() -> None:
    desk = Desk()

    with pytest.raises(mp.InvalidDeclaration, match="price"):
        desk.agent(limits=agents.Limits(usd=5))
    with pytest.raises(mp.InvalidDeclaration, match="an end"):
        agents.Limits(turns=None)
    with pytest.raises(mp.InvalidDeclaration, match="int or Decimal"):
        agents.Price(0.5, 1)  # type: ignore[arg-type]
    with pytest.raises(mp.InvalidDeclaration, match="repairs"):
        desk.agent(repairs=-1)

    @mp.tool
    async def final_result() -> None: ...

    with pytest.raises(mp.InvalidDeclaration, match="loop's own"):
        desk.agent(tools=[final_result])

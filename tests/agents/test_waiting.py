"""Calls that have to wait: their siblings finish, and the model is told nothing before they are settled."""

import asyncio
from typing import Any

import pytest

import milepost as mp
from milepost import agents
from milepost.agents.messages import whole
from milepost.stores.api import Query
from tests.agents.desks import PLENTY, Decision, Desk, answers
from tests.runtime.stage import Stage, outcome, parked, until

THREE = agents.together(
    agents.call("refund", order="o-1", cents=300),
    agents.call("mail", to="ann", body="Sorry."),
    agents.call("look_up", order="o-1"),
)


async def started(app: mp.App, agent: agents.Agent[Any]) -> mp.Handle[Any]:
    return await app.start(agent.workflow, agents.Task("x"), budget=PLENTY)


async def test_an_approval_in_the_middle_parks_one_call_and_its_siblings_finish(stage: Stage) -> None:
    """Requirement 7. The batch of three whose second call meets an objection: the model is asked once it is settled."""
    desk = Desk()
    agent = desk.agent(THREE, "Done.")
    async with stage.app(agent.workflow) as app:
        handle = await started(app, agent)
        waiting = await parked(handle, "approval")
        assert waiting.ask.startswith("milepost approve ")
        assert sorted(desk.done) == ["look_up o-1", "refund o-1 300"]
        assert len(desk.asked) == 1
    async with stage.app(agent.workflow) as app:
        (asked,) = await app.inspect.approvals()
        await app.approve(asked.id, by="me")

        assert await app.handle(handle.id).result(timeout="60s") == "Done."
        assert [answer.outcome for answer in answers(desk.asked[1])] == ["confirmed"] * 3
        assert sorted(desk.done) == ["look_up o-1", "mail ann", "refund o-1 300"]


async def test_a_call_that_a_person_denied_is_told_as_denied_and_the_model_goes_on(stage: Stage) -> None:
    desk = Desk()
    agent = desk.agent(THREE, "Then not.")
    async with stage.app(agent.workflow) as app:
        handle = await started(app, agent)
        await parked(handle, "approval")
        (asked,) = await app.inspect.approvals()
        await app.deny(asked.id, why="no mails", by="me")

        assert await handle.result(timeout="60s") == "Then not."
        told = answers(desk.asked[1])
        assert [answer.outcome for answer in told] == ["confirmed", "denied", "confirmed"]
        assert "nothing was done" in told[1].text
        assert "mail ann" not in desk.done


def losing(desk: Desk, *, happens: bool) -> list[mp.Tool[..., Any]]:
    """Return the desk's tools, with a mail whose answer gets lost, and that nobody can look up."""

    @mp.tool
    async def mail(to: str, body: str) -> None:
        if happens:
            desk.done.append(f"mail {to}")
        raise ConnectionResetError("in the middle")

    return [tool for tool in desk.tools if tool.name != "mail"] + [mail]


@pytest.mark.parametrize("happens", [True, False])
async def test_an_unresolved_call_is_shown_as_its_own_state_and_never_as_a_failure(
    stage: Stage, *, happens: bool
) -> None:
    """Requirement 7. Requirement 11. Requirement 30. Requirement 39."""
    desk = Desk()
    agent = desk.agent(THREE, "Done.", tools=losing(desk, happens=happens))
    async with stage.app(agent.workflow) as app:
        handle = await started(app, agent)
        waiting = await parked(handle, "unknown")
        assert "milepost resolve" in waiting.ask

        shown = await agents.history(app, agent, handle.id)
        assert isinstance(shown[-4], agents.Reply)
        told = [message for message in shown if isinstance(message, agents.Answer)]
        assert [(one.tool, one.outcome) for one in told] == [
            ("refund", "confirmed"), ("mail", "unknown"), ("look_up", "confirmed"),
        ]  # fmt: skip
        assert "must not be made again" in told[1].text
        assert "fail" not in told[1].text.lower()
        assert [one.call for one in told] == [call.id for call in shown[-4].calls]  # as every provider wants it
        assert len(desk.asked) == 1  # the model hears nothing before it is settled
        visit = await app.inspect.visit(handle.id, "turn")
        assert visit is not None
        assert (visit.left, visit.state.get("turn", 1)) == (False, 1)  # and no checkpoint says that the turn is over


@pytest.mark.parametrize(("finding", "told"), [(mp.happened(None), "confirmed"), (mp.rejected("bounced"), "failed")])
async def test_the_model_is_told_of_an_unknown_call_what_a_person_found_out(
    stage: Stage, finding: mp.Finding[Any], told: str
) -> None:
    """Requirement 32."""
    desk = Desk()
    agent = desk.agent(THREE, "Done.", tools=losing(desk, happens=True))
    async with stage.app(agent.workflow) as app:
        handle = await started(app, agent)
        await parked(handle, "unknown")
        (open_,) = await app.inspect.open_effects(handle.id)
        await app.resolve(handle.id, open_.path, finding, by="me", why="looked")

        assert await handle.result(timeout="60s") == "Done."
        assert answers(desk.asked[1])[1].outcome == told
        assert desk.done.count("mail ann") == 1


async def test_a_conversation_can_be_looked_at_while_a_call_waits_and_before_any_was_made(stage: Stage) -> None:
    desk = Desk()
    odd = agents.together(
        agents.call("refund", order="o-1"), agents.call("mail", to="ann", body="x"), agents.call("fly"),
        agents.call("look_up", order="none"),
    )  # fmt: skip
    agent = desk.agent(odd, "Done.")
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"))
        await parked(handle, "budget")
        assert await agents.history(app, agent, handle.id) == [agents.Words("x")]

        await app.grant(handle.id, budget={"turns": 9}, by="me")
        await parked(handle, "approval")
        shown = await agents.history(app, agent, handle.id)
        told = {message.tool: message for message in shown if isinstance(message, agents.Answer)}
        assert {tool: answer.outcome for tool, answer in told.items()} == {
            "refund": "invalid", "mail": "not_started", "look_up": "failed", "fly": "invalid",
        }  # fmt: skip
        assert not whole(shown)  # it is valid to send, and no history to go on from


async def test_a_final_answer_beside_a_call_that_waits_is_not_shown_as_the_result(stage: Stage) -> None:
    desk = Desk()
    both = agents.together(agents.call("mail", to="ann", body="x"), agents.final(Decision(refunded=True, why="x")))
    agent = desk.agent(both, result=Decision)
    async with stage.app(agent.workflow) as app:
        handle = await started(app, agent)
        await parked(handle, "approval")
        shown = await agents.history(app, agent, handle.id)

    assert [one.outcome for one in shown if isinstance(one, agents.Answer)] == ["not_started", "invalid"]


async def test_what_two_calls_wait_for_may_come_in_any_order(stage: Stage) -> None:
    desk = Desk()
    two = agents.together(agents.call("mail", to="ann", body="1"), agents.call("mail", to="bob", body="2"))
    agent = desk.agent(two, "Done.")
    async with stage.app(agent.workflow) as app:
        handle = await started(app, agent)
        await parked(handle, "approval")

        async def both() -> bool:
            return len(await app.inspect.approvals()) == 2

        await until(both)
        first, second = await app.inspect.approvals()
        await app.approve(second.id, by="me")

        async def one_done() -> bool:
            return len(desk.done) == 1

        await until(one_done)
        await app.approve(first.id, by="me")
        assert await handle.result(timeout="60s") == "Done."
        assert [answer.outcome for answer in answers(desk.asked[1])] == ["confirmed", "confirmed"]
        assert sorted(desk.done) == ["mail ann", "mail bob"]


async def test_a_kill_while_a_model_is_asked_leaves_nothing_that_would_be_asked_again(stage: Stage) -> None:
    """Requirement 66."""
    reached, never = asyncio.Event(), asyncio.Event()

    class Hanging:
        name = "hanging"

        async def ask(self, request: agents.Request, said: agents.Said) -> agents.Reply:  # noqa: ARG002
            reached.set()
            await never.wait()
            return agents.Reply("never")

    agent = Desk().agent(model=Hanging())
    async with stage.app(agent.workflow) as app:
        handle = await started(app, agent)
        await reached.wait()
        async with stage.app(agent.workflow).client() as outside:
            await outside.kill(handle.id, why="enough", by="me")
        never.set()

        with pytest.raises(mp.RunKilled):
            await handle.result(timeout="60s")
        reached.clear()
    async with stage.app(agent.workflow) as app:
        (row,) = await app.inspect.runs(Query())
        assert row.status == "killed"
        assert not reached.is_set()
        assert await outcome(app, handle.id, "turn/ask.refund-desk#1") in {"unknown", "failed"}

"""Text as it comes: shown, superseded, never spliced, and never part of what decides."""

import asyncio
from collections.abc import Mapping
from typing import Any

from milepost import agents
from tests.agents.desks import PLENTY, Desk
from tests.runtime.stage import Stage, until


async def pieces(stage: Stage, agent: agents.Agent[Any], run_id: str) -> list[Mapping[str, Any]]:
    async with stage.app(agent.workflow) as app:
        return [dict(event) async for event in app.handle(run_id).events() if event["kind"] == "event"]


async def test_the_text_of_a_model_comes_in_pieces_that_name_their_segment_and_attempt(stage: Stage) -> None:
    agent = Desk().agent("It is paid back by now.", stream=True)
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=PLENTY)
        await handle.result(timeout="60s")

    found = [event["event"] for event in await pieces(stage, agent, handle.id)]
    assert "".join(piece["text"] for piece in found) == "It is paid back by now."
    assert {(piece["segment"], piece["step"], piece["attempt"]) for piece in found} == {
        ("turn", "turn/ask.refund-desk#1", 1)
    }
    assert [piece["piece"] for piece in found] == list(range(len(found)))


async def test_without_streaming_nothing_is_emitted(stage: Stage) -> None:
    agent = Desk().agent("It is paid back.")
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=PLENTY)
        await handle.result(timeout="60s")

    assert await pieces(stage, agent, handle.id) == []


async def test_after_a_re_entry_half_an_answer_is_superseded_and_never_spliced(stage: Stage) -> None:
    reached, never = asyncio.Event(), asyncio.Event()

    class Halting:
        name = "halting"

        async def ask(self, request: agents.Request, said: agents.Said) -> agents.Reply:
            said("It is ")
            if request.attempt == 1:
                said("not pai")
                reached.set()
                await never.wait()
            said("paid.")
            return agents.Reply("It is paid.")

    agent = Desk().agent(model=Halting(), stream=True)
    async with stage.app(agent.workflow).client() as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=PLENTY)
    stop = asyncio.Event()
    serving = asyncio.get_running_loop().create_task(stage.app(agent.workflow).serve(stop, together=1, grace="10ms"))
    await reached.wait()

    async def shown() -> bool:
        return bool(stage.rows("SELECT 1 FROM mp_events WHERE CAST(body AS TEXT) LIKE '%not pai%'"))

    await until(shown)
    stop.set()
    await serving
    async with stage.app(agent.workflow) as app:
        await app.handle(handle.id).result(timeout="60s")

    screen = agents.Screen()
    found = await pieces(stage, agent, handle.id)
    assert all(screen.take(event) for event in found)
    assert {event["event"]["attempt"] for event in found} == {1, 2}
    assert screen.texts == {"turn/ask.refund-desk#1": "It is paid."}


def test_a_piece_that_comes_late_of_an_attempt_before_changes_nothing() -> None:
    screen = agents.Screen()

    def piece(attempt: int, number: int, text: str) -> dict[str, Any]:
        return {"event": {"of": "model", "step": "turn/ask#1", "attempt": attempt, "piece": number, "text": text}}

    for event in (piece(1, 0, ""), piece(1, 1, "no"), piece(2, 0, ""), piece(2, 1, "yes"), piece(1, 2, "pe")):
        screen.take(event)
    assert screen.texts == {"turn/ask#1": "yes"}
    assert not screen.take({"event": {"of": "something else"}})
    assert not screen.take({"kind": "entry"})

"""No framework: a loop of one's own in plain Python, and `milepost.agents` in its stead.

`python -m benchmarks.adapters.loop two|three bare|durable`
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from milepost import agents
from tests.adapters import outside

BATCH = {"two": outside.TWO, "three": outside.THREE}[sys.argv[1]]


async def bare() -> list[Any]:
    """Ask the model, make its calls at once, and ask it again."""
    outside.model()
    told = await asyncio.gather(*(outside.HANDLERS[name](**given) for _, name, given in BATCH))
    outside.model()
    return told


def asks(then: Callable[[], str | agents.Reply]) -> Callable[[agents.Request], str | agents.Reply]:
    """Return a line of the script whose being asked for is counted."""

    def line(_: agents.Request) -> str | agents.Reply:
        outside.model()
        return then()

    return line


async def durable() -> Any:
    """Start the agent's run, or find it, and let it go on until it has ended or needs a person."""
    calls = [agents.call(name, **given) for _, name, given in BATCH]
    desk: agents.Agent[str] = agents.Agent(
        "desk", version="1", result=str, tools=list(outside.TOOLS.values()), limits=agents.Limits(turns=5),
        model=agents.ScriptedModel(asks(lambda: agents.together(*calls)), asks(lambda: "done")),
    )  # fmt: skip
    app = outside.app([], workflows=[desk.workflow])
    async with app:
        handle = await app.start(desk.workflow, agents.Task("see to order o-1"), key="o-1", budget=desk.budget)
        while (view := await handle.status()).status not in {"done", "failed", "blocked"}:
            waiting = view.waiting
            if view.status == "parked" and waiting is not None and waiting.ask:
                return waiting.reason
            await asyncio.sleep(0.01)
        return await handle.result()


if __name__ == "__main__":
    outside.say(asyncio.run(bare() if sys.argv[2] == "bare" else durable()))

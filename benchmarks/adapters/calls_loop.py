"""What a call costs in `milepost.agents`, beside the barest loop that asks a function and calls a function."""

import asyncio

import milepost as mp
from benchmarks.adapters.calling import KEYED, TURNS, compared, nothing, store
from milepost import agents


def line(turn: int) -> agents.Reply:
    """Ask for one call."""
    return agents.call("nothing", number=turn)


async def bare(_: int) -> None:
    """Ask, and call."""
    for turn in range(TURNS):
        asked = line(turn)
        await nothing(len(asked.calls))


async def main() -> None:
    """Compare."""
    lines = [line(turn) for turn in range(TURNS)]
    desk: agents.Agent[str] = agents.Agent(
        "desk", version="1", model=agents.ScriptedModel(*lines, "done"), result=str,
        tools=[mp.tool(**KEYED)(nothing)], limits=agents.Limits(turns=TURNS + 1),
    )  # fmt: skip
    app = mp.App(store(), workflows=[desk.workflow])

    async def with_milepost(number: int) -> None:
        handle = await app.start(desk.workflow, agents.Task("go"), key=f"run-{number}", budget=desk.budget)
        await handle.result()

    async with app:
        await compared(bare, with_milepost)


if __name__ == "__main__":
    asyncio.run(main())

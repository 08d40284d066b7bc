"""A worker in a process of its own, for tests that stop, freeze or kill one.

Its outside world is a file of lines, and its tool hangs there until the test makes a file. Run it with the store's
URL, the ledger, the file that lets the tool go on, a lease, how long a call may take, and `serve` or the key of an
attached run to hold.
"""

import asyncio
import os
import sys
from pathlib import Path

import milepost as mp
from tests.polling import eventually

HANG_S = 100.0


def flow_over(ledger: Path, go_on: Path, timeout: str) -> mp.Workflow[str, list[str]]:
    """Return a workflow of two segments: a free read and an act that hangs, then a second act."""

    @mp.tool(effect="read")
    def look(what: str) -> str:
        with ledger.open("a") as lines:
            lines.write(f"{os.getpid()} look {what}\n")
        return f"seen {what}"

    @mp.tool(timeout=timeout)
    def act(what: str) -> str:
        with ledger.open("a") as lines:
            lines.write(f"{os.getpid()} act {what}\n")
        if what.startswith("slow"):
            eventually(go_on.exists, within_s=HANG_S)
        return f"did {what}"

    flow = mp.Workflow("flow", version="1", input=str, result=list[str], tools=[look, act])

    @flow.segment
    async def first(run: mp.Run, what: str) -> mp.Next[list[str]]:
        return mp.go(second, [await look(what), what])

    @flow.segment
    async def second(run: mp.Run, got: list[str]) -> mp.Next[list[str]]:
        one = await act(f"slow {got[1]}")
        two = await act(f"quick {got[1]}")
        return mp.done([got[0], one, two])

    return flow


async def serve(app: mp.App) -> None:
    """Drive runs until this process is ended."""
    async with app:
        print("ready", flush=True)  # noqa: T201  the test waits for this line
        await asyncio.Event().wait()


async def hold(app: mp.App, key: str) -> None:
    """Hold an attached run until this process is ended."""
    async with app.attach(key=key) as run:
        print(f"ready {run.id}", flush=True)  # noqa: T201
        await asyncio.Event().wait()


if __name__ == "__main__":
    _, store, ledger_file, go_file, lease, timeout, what = sys.argv
    program = mp.App(store, workflows=[flow_over(Path(ledger_file), Path(go_file), timeout)], lease=lease)
    asyncio.run(serve(program) if what == "serve" else hold(program, what))

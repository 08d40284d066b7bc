"""A host that makes one call for each line that it is told, and in between holds its run for as long as it may.

    python -m tests.adapters.waiting_host URL opened|sync

Told `call ID` it makes that call and says, as one line of JSON, what came of it; told `quit` it ends in good order.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import milepost as mp
from milepost.adapters.threads import Threads
from milepost.runtime import lingering

LONG = "10m"  # whoever gets the run from here does not get it because the time was over


@mp.tool(effect="keyed", key_ttl="1h")
async def mail(to: str) -> str:
    return f"sent {to}"


lingering.HELD_MOST_S = 600.0
APP = mp.App(sys.argv[1], tools=[mail])
THREADS = Threads(APP, linger=LONG)


async def call(id_: str) -> dict[str, Any]:
    """Make one call, and say what came of it."""
    try:
        outcome = await THREADS.attempt("thread-7", id_, mail, {"to": id_})
    except mp.MilepostError as error:
        return {"error": error.code}
    if isinstance(outcome, mp.Waiting):
        return {"waiting": outcome.reason}
    return {"value": outcome.value} if isinstance(outcome, mp.Confirmed) else {"failed": outcome.why}


def say(what: Any) -> None:
    """Print a line."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def opened() -> None:
    """Make the calls in an app that this host has opened."""
    async with APP:
        while (line := (await asyncio.to_thread(sys.stdin.readline)).split())[0] != "quit":
            say(await call(line[1]))


def sync() -> None:
    """Make the calls from a plain script."""
    made: Callable[[str], Callable[[], Coroutine[Any, Any, dict[str, Any]]]] = lambda id_: lambda: call(id_)  # noqa: E731
    while (line := sys.stdin.readline().split())[0] != "quit":
        say(THREADS.sync(made(line[1])))


if __name__ == "__main__":
    if sys.argv[2] == "sync":
        sync()
    else:
        asyncio.run(opened())

"""A refund desk in a process of its own, which kills itself where a test says; its outside world is a file of lines.

Run it with a folder. `KILL_AT` names the point, such as `ask 2:middle` or `refund:before`. It ends when the run has
ended or needs a person, and prints how.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import milepost as mp
from milepost import agents

KILL_AT = os.environ.get("KILL_AT", "")
FOLDER = Path(sys.argv[1]) if __name__ == "__main__" else Path()
KEY = "ticket-1"


def point(name: str) -> None:
    """Die here, if that is what the test says: once, as a process that is killed does."""
    mark = FOLDER / "killed"
    if name == KILL_AT and not mark.exists():
        mark.write_text(name)
        os.kill(os.getpid(), signal.SIGKILL)


def write(what: str, key: str = "") -> None:
    """Do something in the outside world: a line, by one system call; a known key is dropped, as a service does."""
    ledger = FOLDER / "ledger.txt"
    line = f"{what} {key}".rstrip()
    if key and ledger.exists() and line in ledger.read_text().splitlines():
        return
    file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, (line + "\n").encode())
    os.close(file)


@mp.tool(effect="read")
async def look_up(order: str) -> int:
    """Look an order up."""
    point("look_up:before")
    return 300


@mp.tool(effect="keyed", key_ttl="24h")
async def refund(call: mp.Call, order: str, cents: int) -> str:
    """Pay an order back."""
    point("refund:before")
    write(f"refund {order} {cents}", call.key)
    point("refund:middle")
    return "paid back"


@mp.tool
async def mail(to: str) -> None:
    """Write to a customer: nobody can look up whether it was sent."""
    point("mail:before")
    write(f"mail {to}")
    point("mail:middle")


def asked(request: agents.Request) -> None:
    """Let the outside world count how often the model was asked for which turn."""
    point(f"ask {request.turn}:before")
    write(f"asked turn {request.turn}")
    point(f"ask {request.turn}:middle")


def first(request: agents.Request) -> agents.Reply:
    """Look the order up."""
    asked(request)
    return agents.call("look_up", order="o-1")


def second(request: agents.Request) -> agents.Reply:
    """Make three calls at once."""
    asked(request)
    return agents.together(
        agents.call("look_up", order="o-1"),
        agents.call("refund", order="o-1", cents=300),
        agents.call("mail", to="ann"),
    )


def third(request: agents.Request) -> str:
    """Say how it ended."""
    asked(request)
    told = [message.outcome for message in request.messages if isinstance(message, agents.Answer)]
    return f"Done: {' '.join(told)}."


desk = agents.Agent(
    "refund-desk", version="1", model=agents.ScriptedModel(first, second, third), result=str,
    tools=[look_up, refund, mail], instructions="Be kind.", limits=agents.Limits(turns=6),
    retry=mp.Retry(3, first="1ms"),
)  # fmt: skip


async def main() -> None:
    """Start the run, or find it, drive it until it rests, and print how."""
    app = mp.App(f"sqlite:///{FOLDER / 'store.db'}", workflows=[desk.workflow])
    async with app:
        handle = await app.start(desk.workflow, agents.Task("Refund o-1."), key=KEY, budget=desk.budget)
        while True:
            view = await handle.status()
            if view.status in {"done", "failed", "blocked"} or (
                view.status == "parked" and view.waiting is not None and view.waiting.ask
            ):
                break
            await asyncio.sleep(0.01)
        result = await handle.result() if view.status == "done" else None
        waiting = view.waiting.reason if view.waiting is not None else None
        print(json.dumps({"run": handle.id, "status": view.status, "result": result, "waiting": waiting}))  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())

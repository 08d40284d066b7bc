"""The App that a supervised worker drives in the folder of a try: its calls hang in threads, in the loop, in a commit.

`milepost worker --app faults.held` with FAULTS_FOLDER set. What blocks does so once: the next life goes on.
"""

import os
import time
from pathlib import Path

import httpx
import msgspec

import milepost as mp
from faults.tools import Setup

FOLDER = Path(os.environ["FAULTS_FOLDER"])
SETUP = msgspec.json.decode((FOLDER / "setup.json").read_bytes(), type=Setup)
HANGS_S = 60
CALLS = 20


def once(what: str) -> bool:
    """Whether this is the first time."""
    mark = FOLDER / f"{what}-once"
    if mark.exists():
        return False
    mark.touch()
    return True


@mp.tool(timeout="2m")
def push(call: mp.Call, name: str) -> str:
    """Ask for what cannot be taken back, and wait for an answer that does not come."""
    told = {"Effect-Key": call.key, "Effect-Attempt": str(call.attempt)}
    url = SETUP.outside.url("irreversible", "push", name)
    answer = httpx.post(url, json={"name": name}, headers=told, timeout=HANGS_S, trust_env=False)
    return str(answer.json()["receipt"])


@mp.tool(effect="read", timeout="2m")
async def block() -> str:
    """Hold the event loop."""
    if once("block"):
        time.sleep(HANGS_S)  # noqa: ASYNC251  the fault itself
    return "blocked"


@mp.tool(name="note", effect="transactional")
def lock(tx: mp.Tx, name: str) -> int:
    """Hold the store's lock, and the event loop with it."""
    tx.execute("CREATE TABLE IF NOT EXISTS notes (name TEXT)")
    tx.execute("INSERT INTO notes VALUES (?)", (name,))
    if once("lock"):
        time.sleep(HANGS_S)
    return 1


@mp.workflow(version="1", tools=[push])
async def twenty(run: mp.Run) -> list[str]:
    """Have twenty calls in flight."""
    return await run.map(push, [f"x-{number}" for number in range(CALLS)], limit=CALLS)


@mp.workflow(version="1", tools=[block])
async def blocking(_run: mp.Run) -> str:
    """Block the loop."""
    return await block()


@mp.workflow(version="1", tools=[lock])
async def locking(_run: mp.Run) -> int:
    """Lock the store."""
    return await lock("locked")


app = mp.App(f"sqlite:///{FOLDER}/store.db", workflows=[twenty, blocking, locking])

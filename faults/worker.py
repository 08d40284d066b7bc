"""What a worker process does in the folder of a try: `run FLOW TOOL NAME`, `note …`, `serve`, `claim …`, `record …`.

`zygote` starts it, or `python -m faults.worker FOLDER …`. `run` starts the run, or finds it, and drives it until it
ends or only a person helps; then it prints what it came to as one line of JSON. `note` is `run` that notes what its
store acknowledges. `serve` drives whatever is due until SIGTERM. `claim NAME ROUNDS` only takes runs, against others.
`record N …` is `run` on a disk that is recorded, and dies at its N-th event. An error of ours, such as a store that
failed, ends any of them with code 3, and is named on standard error.
"""

import asyncio
import contextlib
import faulthandler
import gc
import inspect
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from temporalio.client import Client

import milepost as mp
from faults import machine
from faults.desk import Desk
from faults.noted import NotedApp
from faults.recorded import WatchedStore, recorded
from faults.tools import Order, Setup
from milepost import app as app_module
from milepost.app import open_store
from milepost.core import codec
from milepost.core import entries as e
from milepost.drivers import temporal
from milepost.errors import MilepostError
from milepost.stores.api import Claim, Query

STORE_FAILED = 3
SKEW = "FAULTS_SKEW_MS"
AUTHORITY = mp.Authority("desk")
BUDGET = {"usd": 50, "tokens": 500}


def drive(app: mp.App, flow: mp.Workflow[Order, Any], order: Order) -> dict[str, Any]:
    """Drive one run; return what it came to."""
    try:
        result = app.run(flow, order, key="run", authority=AUTHORITY, budget=BUDGET)
    except mp.NeedsPerson as error:
        return {"ended": "person", "why": error.waiting.ask, "run": error.run_id}
    except (mp.RunBlocked, mp.RunFailed, mp.RunKilled, mp.RunCancelled) as error:
        return {"ended": error.code, "why": str(error)}
    return {"ended": "done", "result": result}


def claimed(name: str, epoch: int) -> bytes:
    """Return the entry of a claim."""
    return codec.encode(e.Claimed(at=epoch, epoch=epoch, owner=name))


async def claim(url: str, name: str, rounds: int) -> list[tuple[str, int]]:
    """Claim every run of a store over and over, in a race with others; return what was won: (run, epoch)."""
    store, won = open_store(url), []
    try:
        for _ in range(rounds):
            for row in await store.runs(Query(limit=100)):
                (answer,) = await store.commit([Claim(row.id, name, row.owner, row.changed_at, partial(claimed, name))])
                if not isinstance(answer, MilepostError):
                    won.append((row.id, answer.epoch))
    finally:
        store.close()
    return won


async def serve(app: mp.App, setup: Setup) -> None:
    """Drive what is due, or what Temporal asks for, until SIGTERM."""
    if setup.temporal:
        client = await Client.connect(setup.temporal)
        await temporal.serve(app, client, task_queue=setup.account, together=20, grace="1s")
        return
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await app.serve(stop, together=20, grace="1s")


def main(folder: Path, arguments: Sequence[str]) -> int:
    """Work; return the code to exit with."""
    logging.basicConfig(level=logging.WARNING)
    signal.signal(signal.SIGUSR1, where)
    mode, *more = arguments
    if mode == "record":
        most, *more = more
        app_module.SqliteStore = WatchedStore  # type: ignore[attr-defined]  # only its acknowledgements are watched
        return recorded(folder / "recording", int(most), lambda: act(folder, "run", more))
    return act(folder, mode, more)


def where(*_: object) -> None:
    """Say where this process hangs."""
    faulthandler.dump_traceback()
    with contextlib.suppress(RuntimeError):  # there is no loop
        for task in asyncio.all_tasks():
            print(task.get_name(), *awaited(task.get_coro()), sep="\n  ", file=sys.stderr)
    sys.stderr.flush()


def awaited(waiting: Any) -> Iterator[str]:
    """Name the places of a coroutine and of what it waits for."""
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is not None:
            yield f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
            waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
        else:  # the wrapper of a coroutine does not say what it wraps
            waiting = next((one for one in gc.get_referents(waiting) if inspect.iscoroutine(one)), None)


def skew() -> int:
    """Return by how many milliseconds the clock of this process is ahead of the others'."""
    return int(os.environ.get(SKEW, "0"))


def act(folder: Path, mode: str, more: Sequence[str]) -> int:
    """Do what is asked for; return the code to exit with."""
    desk = Desk(msgspec.json.decode((folder / "setup.json").read_bytes(), type=Setup), skew())
    if desk.setup.machine_clock:
        machine.run_on(desk.setup, skew())
    store = desk.setup.store or f"sqlite:///{folder}/store.db"
    app = desk.app(store, NotedApp if mode == "note" else mp.App)
    try:
        if mode == "serve":
            asyncio.run(serve(app, desk.setup))
            return 0
        if mode == "claim":
            print(json.dumps(asyncio.run(claim(store, more[0], int(more[1])))))
            return 0
        flow, tool, name = more
        flows: dict[str, mp.Workflow[Order, Any]] = {"one": desk.one, "twenty": desk.twenty}
        print(json.dumps(drive(app, flows[flow], Order(tool, name))))
    except mp.MilepostError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return STORE_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))

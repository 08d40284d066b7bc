"""What a worker process does in the folder of a try: `run FLOW TOOL NAME`, or `serve`. `zygote` starts it.

`run` starts the run, or finds it, and drives it until it ends or only a person helps; then it prints what it came to as one
line of JSON. `serve` drives whatever is due until SIGTERM. A store that failed ends either with code 3.
"""

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

import milepost as mp
from faults.desk import Desk, Order, Setup

STORE_FAILED = 3
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


async def serve(app: mp.App) -> None:
    """Drive what is due until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await app.serve(stop, together=20, grace="1s")


def main(folder: Path, arguments: Sequence[str]) -> int:
    """Work; return the code to exit with."""
    logging.basicConfig(level=logging.WARNING)
    desk = Desk(msgspec.json.decode((folder / "setup.json").read_bytes(), type=Setup))
    app = desk.app(f"sqlite:///{folder}/store.db")
    mode, *more = arguments
    try:
        if mode == "serve":
            asyncio.run(serve(app))
            return 0
        flow, tool, name = more
        flows: dict[str, mp.Workflow[Order, Any]] = {"one": desk.one, "twenty": desk.twenty}
        print(json.dumps(drive(app, flows[flow], Order(tool, name))))
    except mp.MilepostError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return STORE_FAILED
    return 0

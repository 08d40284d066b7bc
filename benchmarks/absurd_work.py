"""The measured work on absurd: tasks whose steps do nothing. Prints what it took."""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from typing import Any

from absurd_sdk import Absurd

from benchmarks.served import program_folder
from benchmarks.timing import Slice, Stopwatch

QUEUE = "bench"
DONE_S = 0.005
ENDS = {"completed", "failed", "cancelled"}


def _chain(params: dict[str, int], context: Any) -> int:
    for number in range(params["steps"]):
        context.step(f"step-{number}", lambda number=number: number)
    return params["steps"]


def _rate(url: str, runs: int, each: int) -> Slice:
    engine = Absurd(url, queue_name=QUEUE)
    engine.create_queue()
    engine.register_task("chain")(_chain)
    looking = Absurd(url, queue_name=QUEUE)  # a connection of its own: the worker's is busy
    worker = threading.Thread(
        target=engine.start_worker, kwargs={"concurrency": runs, "poll_interval": DONE_S}, daemon=True
    )
    watch = Stopwatch()
    tasks = [looking.spawn("chain", {"steps": each}, queue=QUEUE)["task_id"] for _ in range(runs)]
    worker.start()
    left = set(tasks)
    while left:
        states = {task: looking.fetch_task_result(task) for task in left}
        ended = {task for task, found in states.items() if found is not None and found.state in ENDS}
        if any(found is not None and found.state in ENDS - {"completed"} for found in states.values()):
            raise RuntimeError("a task failed")
        left -= ended
        time.sleep(DONE_S if runs == 1 else 0.1)
    return watch.slice(runs * each)


def main() -> None:
    """Run one shape of the work in an empty database."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("rate",))
    parser.add_argument("url")
    parser.add_argument("runs", type=int)
    parser.add_argument("each", type=int)
    chosen = parser.parse_args()
    with_psql = {**os.environ, "PATH": f"{program_folder()}{os.pathsep}{os.environ.get('PATH', '')}"}
    command = [sys.executable, "-c", "import sys, absurdctl; sys.exit(absurdctl.main())", "init", "-d", chosen.url]
    subprocess.run(command, check=True, env=with_psql, stdout=subprocess.DEVNULL)
    print(json.dumps(asdict(_rate(chosen.url, chosen.runs, chosen.each))), flush=True)
    os._exit(0)  # its threads wait for work, and there is nothing left to keep


if __name__ == "__main__":
    main()

"""Workers without the wait: `python -m tests.crash.warm` has imported all programs, and forks a worker a request.

The crash tests start some hundred workers, and an interpreter that reads its modules takes most of the time of each. A
fork is a process like any other: it opens the store, takes its lock, and is killed, by itself. A request is a line of
JSON with its program, its folder and its environment; the answer is a line with its process id, and one with how it
ended. A worker that `waits` stops itself before it does anything, so that a tracer can be attached.
"""

import asyncio
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from tests.crash import desk, undo

PROGRAMS = {"desk": desk.main, "pay": undo.pay, "undo": undo.go_back}


def worker(request: dict[str, Any]) -> int:
    """Be a worker; return the exit code."""
    folder = Path(request["folder"])
    os.environ.update(request["environment"])
    for name, descriptor in (("out", 1), ("err", 2)):
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, descriptor)
        os.close(file)
    if request["waits"]:
        os.kill(os.getpid(), signal.SIGSTOP)
    asyncio.run(PROGRAMS[request["program"]]())
    sys.stdout.flush()
    return 0


def say(**what: int) -> None:
    """Answer with one line."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Fork a worker for each line, wait for its end, say how it ended."""
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            code = 1
            try:
                code = worker(json.loads(line))
            except BaseException:  # noqa: BLE001  a fork never returns into the loop of its parent
                traceback.print_exc()
            finally:
                os._exit(code)
        say(pid=pid)
        _, status = os.waitpid(pid, 0)
        say(code=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()

"""A script that makes a call, forks, and makes one more in each of the two processes.

python -m tests.adapters.forked_host URL
"""

import os
import sys

import milepost as mp
from milepost.adapters.threads import Threads


@mp.tool(effect="keyed", key_ttl="1h")
async def mail(to: str) -> str:
    return f"sent {to}"


APP = mp.App(sys.argv[1], tools=[mail])
THREADS = Threads(APP, linger="1s")


def call(id_: str) -> str:
    """Make one call; return what came of it."""
    try:
        outcome = THREADS.sync(lambda: THREADS.attempt("k", id_, mail, {"to": id_}))
    except mp.MilepostError as error:
        return error.code
    return outcome.value if isinstance(outcome, mp.Confirmed) else str(outcome)


if __name__ == "__main__":
    said = [call("before")]
    child = os.fork()
    if child == 0:
        os.write(1, f"child: {call('child')}\n".encode())
        os._exit(0)
    os.waitpid(child, 0)
    said.append(call("after"))
    os.write(1, f"parent: {', '.join(said)}\n".encode())

"""A process of its own that writes to a store: `python -m tests.stores.appending PLACE RUN APPENDS`.

It creates and claims the run and says `ready`. Then it commits one append after the other and says `wrote N` when N is
durable; before each ten of them it waits for a line, so that whoever started two of them keeps them side by side. What
stops it is printed as the name of the error, and tried once more to show that it stays stopped.
"""

import asyncio
import sys

from milepost.errors import StoreError
from milepost.stores.api import Create, NewRun
from milepost.stores.sqlite.store import SqliteStore
from milepost.testing.store_conformance.subject import append, claim

IN_A_ROW = 10


def say(words: str) -> None:
    print(words, flush=True)  # noqa: T201  how it talks to the test


async def main(place: str, run_id: str, appends: int) -> None:
    store = SqliteStore(place, create=True)
    await store.commit([Create(NewRun(run_id, "desk", "1", "d", b"created", "pay", 1, 1))])
    (head,) = await store.commit([claim(run_id, f"worker-{run_id}")])
    say("ready")
    try:
        for number in range(appends):
            if number % IN_A_ROW == 0:
                sys.stdin.readline()
            await store.commit([append(head, b"%d" % number, b"boundary %d" % number, boundary=1)])
            say(f"wrote {number}")
    except StoreError as error:
        say(type(error).__name__)
        try:
            await store.commit([append(head, b"after")])
        except StoreError as again:
            say(f"still {type(again).__name__}")
        raise SystemExit(3) from error
    say("done")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))

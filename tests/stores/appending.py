"""A process of its own that writes to a store: `python -m tests.stores.appending PLACE RUN APPENDS`.

It creates and claims the run, says `ready`, waits for a line, then commits one append after the other and says `wrote N`
when N is durable. What stops it is printed as the name of the error, and tried once more to show that it stays stopped.
"""

import asyncio
import sys

from milepost.errors import StoreError
from milepost.stores.sqlite.store import SqliteStore
from milepost.testing.store_conformance.subject import append, claim
from milepost.stores.api import Create, NewRun


def say(words: str) -> None:
    print(words, flush=True)  # noqa: T201  how it talks to the test


async def main(place: str, run_id: str, appends: int) -> None:
    store = SqliteStore(place, create=True)
    await store.commit([Create(NewRun(run_id, "desk", "1", "d", b"created", "pay", 1, 1))])
    (head,) = await store.commit([claim(run_id, f"worker-{run_id}")])
    say("ready")
    sys.stdin.readline()
    try:
        for number in range(appends):
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
    sys.stdin.readline()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))

"""A process of its own that spends from a shared budget: `python -m tests.crash.reserving PLACE RUN RESERVATIONS SEED`.

It creates and claims its run, says `ready`, and waits for a line. Then it reserves, some at once and some alone, and
settles what it got, mostly for less. At last it says, as JSON, what it was granted, what it settled and what it still
holds.
"""

import asyncio
import json
import random
import sys
from decimal import Decimal

from milepost.stores.api import Append, Create, Head, NewRun
from milepost.stores.pools import PoolShort, PoolSpent, Reserve
from milepost.stores.sqlite.store import SqliteStore
from milepost.testing.store_conformance.subject import append, claim

DAY = 20_786
POOLS = ("total", "tenant:acme")
MOST_AT_ONCE = 4
SETTLED = 0.6


def cents(amount: int) -> dict[str, Decimal]:
    """Return an amount of money."""
    return {"usd": Decimal(amount) / 100}


def reserving(head: Head, step: int, amount: int) -> Append:
    """Return an append that reserves."""
    return append(head, b"started", reserve=Reserve(str(step), cents(amount), POOLS, DAY))


def settling(head: Head, step: int, amount: int) -> Append:
    """Return an append that settles."""
    return append(head, b"settled", spent=[PoolSpent(str(step), cents(amount), POOLS, DAY)])


async def main(place: str, run_id: str, reservations: int, seed: str) -> None:
    chance = random.Random(seed)
    store = SqliteStore(place, create=True)
    await store.commit([Create(NewRun(run_id, "desk", "1", "d", b"created", "pay", 1, 1))])
    (head,) = await store.commit([claim(run_id, f"worker-{run_id}")])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    asked = granted = spent = 0
    held: dict[int, int] = {}
    while asked < reservations:
        amounts = [chance.randint(1, 300) for _ in range(min(chance.randint(1, MOST_AT_ONCE), reservations - asked))]
        steps = range(asked, asked + len(amounts))
        answers = await store.commit([reserving(head, *one) for one in zip(steps, amounts, strict=True)])
        for step, amount, answer in zip(steps, amounts, answers, strict=True):
            if answer is None:
                held[step] = amount
                granted += 1
            elif not isinstance(answer, PoolShort):
                raise answer
        asked += len(amounts)
        settled = [(step, chance.randint(0, held.pop(step))) for step in list(held) if chance.random() < SETTLED]
        await store.commit([settling(head, *one) for one in settled])
        spent += sum(amount for _, amount in settled)
    told = {"asked": asked, "granted": granted, "spent": spent, "held": sum(held.values())}
    sys.stdout.write(json.dumps(told) + "\n")
    store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))

"""The orders on Milepost: the charge is `queryable`, with a reconciler and a bound on how late it may show."""

import asyncio

import milepost as mp
from benchmarks.duplicates import paying

WORK = paying.work()


@mp.tool(effect="queryable", visible_within="1s", timeout="5s")
def charge(order: str) -> int:
    """Charge an order."""
    return int(paying.charge(WORK.port, order)["charges"])


@charge.reconcile
def _charged(order: str) -> mp.Finding[int]:
    match paying.charges(WORK.port, order):
        case 0:
            return mp.did_not_happen()
        case 1:
            return mp.happened(1)
        case many:
            return mp.conflict(many)


@mp.workflow(version="1", tools=[charge])
async def buying(run: mp.Run, order: str) -> int:
    """One order."""
    del run
    return await charge(order)


async def main() -> None:
    """Start every order, or find it, and wait for all of them."""
    async with mp.App(f"sqlite:///{WORK.folder}/milepost.db", workflows=[buying]) as app:
        handles = [await app.start(buying, order, key=order) for order in WORK.orders]
        finished = [await handle.result() for handle in handles]
    paying.report(finished=len(finished), in_doubt=0)


if __name__ == "__main__":
    asyncio.run(main())

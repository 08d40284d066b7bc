"""A hundred thousand parked runs: a claim and a list must take as long as among a thousand.

A few are parked by the runtime itself. All others are copies of their rows under numbers and ids of their own, made by
the server; that their chains do not verify is no matter of a claim or a list. What is claimed is a real run.
"""

import asyncio
import statistics
import time
from collections.abc import Iterator
from itertools import pairwise

from benchmarks.comparing import Bench, Row, Target, judged
from benchmarks.postgres_work import opened
from benchmarks.served import url_of
from benchmarks.work import WORKFLOWS, sleeping, waiting
from milepost.app import App, open_store
from milepost.definitions.secrets import from_environment
from milepost.runtime.engine import Engine
from milepost.stores.api import Claim, Query
from tests.servers.postgres import Postgres

REAL, FEW, MANY = 100, 1_000, 100_000
TRIES = 60
SETTLE_TRIES = 3_000
OWN = {
    "run": "run + n * 1000000",
    "id": "md5(id || n)",
    "key": "key || '-' || n",
    **{name: f"{name} + n * (1::bigint << 40)" for name in ("row", "previous", "boundary")},
}
"""What a copy has of its own: its numbers, its id and its key."""

SHARES = ("mp_heads", "mp_journal", "mp_chunks")


def rows(bench: Bench, server: Postgres) -> Iterator[Row]:
    """Milliseconds of a claim and of lists among a thousand parked runs and among many, measured in turns."""
    few, many = bench.amount(FEW, least=REAL), bench.amount(MANY, least=2 * REAL)
    names = [server.create_database() for _ in (few, many)]
    try:
        for name, count in zip(names, (few, many), strict=True):
            asyncio.run(_park(url_of(server, name), min(REAL, count)))
            _copy(server, name, count)
        tries = min(TRIES, bench.amount(TRIES, least=3))
        taken = asyncio.run(_measure([url_of(server, name) for name in names], tries))
    finally:
        for name in names:
            server.drop_database(name)
    for work, (before, after) in taken.items():
        ratio = after / before
        figure = f"{before:.2f} → {after:.2f} ms ({ratio:.2f} times)"
        target = Target("most", 1.5, f"times that among {few:,}")
        yield judged(f"PostgreSQL: {work} among {few:,} and {many:,} parked runs", figure, ratio, target)


async def _park(url: str, count: int) -> None:
    open_store(url, create=True).close()
    async with opened(url) as app:
        await asyncio.gather(*(_start(app, f"real-{at}", at) for at in range(count)))
        await _all_parked(app, count)


async def _all_parked(app: App, count: int) -> None:
    for _ in range(SETTLE_TRIES):
        if (await app.inspect.counts()).get("parked", 0) == count:
            return
        await asyncio.sleep(0.02)
    raise RuntimeError(f"{count} runs did not park")


async def _start(app: App, key: str, number: int) -> None:
    await app.start(sleeping if number % 2 else waiting, key, key=key)


def _copy(server: Postgres, name: str, count: int) -> None:
    """Copy all runs that there are until there are `count`."""
    have = int(str(server.execute("SELECT count(*) FROM mp_runs WHERE run > 0", name)[0][0]))
    for table in ("mp_runs", *SHARES):
        listed = ", ".join(OWN.get(column, column) for column in _columns(server, name, table))
        copies = f"SELECT {listed} FROM {table}, generate_series(1, {-(-count // have) - 1}) AS n WHERE run > 0"  # noqa: S608  names of our own
        server.execute(f"INSERT INTO {table} {copies}", name)
    server.execute("VACUUM (ANALYZE)", name)


def _columns(server: Postgres, name: str, table: str) -> list[str]:
    asked = "SELECT column_name FROM information_schema.columns WHERE table_name = '{}' ORDER BY ordinal_position"
    return [str(column) for (column,) in server.execute(asked.format(table), name)]


async def _measure(urls: list[str], tries: int) -> dict[str, tuple[float, float]]:
    """Return medians in milliseconds by what was done: of the first store, and of the second."""
    engines = [Engine(open_store(url), workflows=WORKFLOWS, secrets=from_environment) for url in urls]
    taken: dict[str, list[list[float]]] = {}
    for engine in engines:
        await engine.open(drives=True)
    for number in range(tries):
        for at, engine in enumerate(engines):
            for work, took in (await _once(engine, urls[at], number)).items():
                taken.setdefault(work, [[] for _ in urls])[at].append(took)
    for engine in engines:
        await engine.close()
        engine.store.close()
    return {work: (statistics.median(few) * 1e3, statistics.median(many) * 1e3) for work, (few, many) in taken.items()}


async def _once(engine: Engine, url: str, number: int) -> dict[str, float]:
    async with opened(url).client() as app:
        await app.start(waiting, "one more", key=f"more-{number}")
    times = [time.perf_counter()]
    (found,) = await engine.store.due(engine.clock.now(), engine.known, 1)
    times.append(time.perf_counter())
    await engine.writer.durable(Claim(found.id, engine.worker, None, engine.clock.now(), lambda _: b"{}"))
    times.append(time.perf_counter())
    await engine.store.runs(Query())
    times.append(time.perf_counter())
    await engine.store.runs(Query(status="parked", workflow="waiting"))
    times.append(time.perf_counter())
    names = ("what is due", "a claim", "the list of runs", "the list of parked runs of a workflow")
    return dict(zip(names, (after - before for before, after in pairwise(times)), strict=True))

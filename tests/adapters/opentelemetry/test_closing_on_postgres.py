"""A store that takes a moment to read: what had not been read when an app is closed is told all the same."""

import asyncio

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import milepost as mp
from milepost.adapters.opentelemetry import Tracing
from milepost.observing import Sight
from tests.servers.fixtures import PostgresDatabase, database, postgres

__all__ = ["database", "postgres"]
pytestmark = pytest.mark.parametrize("postgres_version", [18])


@mp.workflow(version="1")
async def nothing(run: mp.Run) -> None:
    """Come and go."""
    del run


async def closed_after(app: mp.App, runs: set[str], seconds: float) -> int:
    """Watch runs that ended, and close so long after it; return how many were told."""
    kept = InMemorySpanExporter()
    tracing = Tracing(SimpleSpanProcessor(kept), every="1ms")
    (worker,) = await app.inspect.workers()
    tracing.opened(Sight(app._need_engine()), worker.id)
    tracing.appended(runs)
    await asyncio.sleep(seconds)
    await tracing.closing()
    return sum(span.name == "run nothing" for span in kept.get_finished_spans())


def test_what_is_being_read_when_the_app_is_closed_is_told(database: PostgresDatabase) -> None:
    async def many() -> list[int]:
        app = mp.App(database.url, workflows=[nothing])
        async with app:
            handles = [await app.start(nothing) for _ in range(20)]
            for handle in handles:
                await handle.result(timeout="60s")
            return [await closed_after(app, {one.id for one in handles}, at / 500) for at in range(15)]

    assert asyncio.run(many()) == [20] * 15

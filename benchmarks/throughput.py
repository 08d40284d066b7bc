"""Milepost's rates: effects and free reads, of one run in sequence and of a hundred runs together."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import milepost as mp
from benchmarks.comparing import Bench, Row, Target
from benchmarks.timing import Slice, Stopwatch, Work
from benchmarks.work import AUTHORITY, BUDGET, Stretch, effects, effects_all, open_app, reads, reads_in_threads

EFFECTS = 2_000
READS = 20_000
RUNS = 100
SEGMENT = 10
"""Steps in a segment, in the rows of many segments (a hundred, for free reads)."""


def rows(bench: Bench) -> Iterator[Row]:
    """All rates, each with its target."""
    one, many = bench.amount(EFFECTS), bench.amount(100, least=1)
    for name, workflow, alone, together in (
        ("effects", effects, 0.75, 4.0),
        ("effects, all (key, scope, once, cost)", effects_all, 0.6, 2.5),
    ):
        target, shared = Target("least", alone, "of fresh"), Target("least", together, "of fresh")
        unit = "effects/s"
        yield bench.rate_row(f"{name}: one run, one segment", _runs(workflow, 1, one, one), unit, target)
        yield bench.rate_row(f"{name}: one run, segments of 10", _runs(workflow, 1, one, SEGMENT), unit, target)
        yield bench.rate_row(f"{name}: 100 runs, one segment each", _runs(workflow, RUNS, many, many), unit, shared)
        yield bench.rate_row(f"{name}: 100 runs, segments of 10", _runs(workflow, RUNS, many, SEGMENT), unit, shared)
    yield bench.rate_row("effects: one run, a segment for each", _runs(effects, 1, one, 1), "effects/s")
    count = bench.amount(READS)
    target = Target("least", 9, "of fresh")
    yield bench.rate_row("free async reads: one run, one segment", _runs(reads, 1, count, count), "steps/s", target)
    yield bench.rate_row("free async reads: one run, segments of 100", _runs(reads, 1, count, 100), "steps/s", target)
    threads = bench.amount(EFFECTS)
    yield bench.rate_row(
        "free plain reads (a thread hop each)", _runs(reads_in_threads, 1, threads, threads), "steps/s"
    )


def _runs(workflow: mp.Workflow[Stretch, str], runs: int, each: int, per_segment: int) -> Work:
    """`runs` runs together, of `each` steps: from the first start to the last result, on a store opened before."""

    async def drive(folder: Path) -> Slice:
        async with open_app(str(folder / "store.db")) as app:
            watch = Stopwatch()
            results = await asyncio.gather(*(one(app, f"run-{at}") for at in range(runs)))
            done = watch.slice(runs * each)
        if sorted(results) != sorted(f"run-{at}" for at in range(runs)):
            raise RuntimeError(f"not every run came to its end: {results}")
        return done

    async def one(app: mp.App, name: str) -> str:
        handle = await app.start(
            workflow, Stretch(name, each, per_segment), key=name, authority=AUTHORITY, budget=BUDGET
        )
        return await handle.result()

    return lambda folder: asyncio.run(drive(folder))

"""What a checkpoint takes: a state that grows by a kilobyte each time, written down and durable before the run goes on.

Timed is the whole of it, as a program pays for it: the state is turned into bytes and read back (what cannot be read
back is refused), cut into pieces, of which the new ones are stored, and committed. How much the state holds already
should matter little to the disk; it does matter to the processor, which looks at all of it.
"""

import asyncio
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import milepost as mp
from benchmarks.baseline import commits
from benchmarks.comparing import Bench, Row
from benchmarks.conversation import kilobyte
from benchmarks.timing import Slice, Stopwatch, timed

KILOBYTES = (1, 100, 1_000)
TIMES = 40


def rows(bench: Bench) -> Iterator[Row]:
    """Milliseconds of a checkpoint by the size of the state, and how many bare commits that is."""
    times = min(TIMES, bench.amount(TIMES, least=3))
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        for size in KILOBYTES:
            bare = [timed(commits(times, extended=extended), bench.folder) for extended in (False, True)]
            taken = asyncio.run(_checkpoints(Path(folder) / f"store-{size}.db", size, times))
            each = statistics.median(one.seconds for one in taken)
            yield Row(
                f"a checkpoint of a state of {size:,} KB, 1 KB of it new",
                f"{each * 1e3:.2f} ms",
                fresh=each * bare[0].rate,
                extended=each * bare[1].rate,
                cpu_us=statistics.median(one.cpu for one in taken) * 1e6,
            )


async def _checkpoints(file: Path, size: int, times: int) -> list[Slice]:
    taken = []
    messages = [kilobyte(number) for number in range(size - 1)]
    async with mp.App(f"sqlite:///{file}") as app, app.attach(key="talk") as run:
        await run.checkpoint(messages)
        for number in range(times):
            state = [*messages, kilobyte(size + number)]
            watch = Stopwatch()
            await run.checkpoint(state)
            taken.append(watch.slice(1))
        await run.finish()
    return taken

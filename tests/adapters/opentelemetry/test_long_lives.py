"""What is kept of a run is bounded however long it lives, and a run that nobody holds is told of when it is killed."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import milepost as mp
from milepost.adapters.opentelemetry import Tracing, spans, tracing
from milepost.core import entries as e
from milepost.stores.api import Query
from tests.runtime.stage import until

RUN = "run waiting"


@mp.tool(effect="keyed", key_ttl="1h")
async def act(number: int) -> int:
    return number


@mp.workflow(version="1")
async def waiting(run: mp.Run) -> str:
    return await run.receive("go", str)


class Watched:
    """An app that is watched, and what was told of it."""

    def __init__(self, folder: Path) -> None:
        self.kept = InMemorySpanExporter()
        self.tracing = Tracing(SimpleSpanProcessor(self.kept), every="1ms")
        self.app = mp.App(f"sqlite:///{folder / 'desk.db'}", workflows=[waiting])
        self.app.observe(self.tracing)

    def named(self, name: str) -> list[ReadableSpan]:
        """Return the spans of a name."""
        return [span for span in self.kept.get_finished_spans() if span.name == name]


async def parked(folder: Path) -> str:
    """Start a run and let it wait for a signal, while nobody watches."""
    app = mp.App(f"sqlite:///{folder / 'desk.db'}", workflows=[waiting])
    async with app:
        handle = await app.start(waiting)

        async def waits() -> bool:
            return (await handle.status()).status == "parked"

        await until(waits)
    return handle.id


async def killed(folder: Path, run_id: str) -> None:
    """Kill a run as `milepost kill` does: from a process that watches nothing."""
    async with mp.App(f"sqlite:///{folder / 'desk.db'}").client() as operator:
        await operator.kill(run_id, by="ann", why="enough")


async def asked(holds: Callable[[], bool]) -> None:
    """Wait until it is so."""

    async def ask() -> bool:
        return holds()

    await until(ask)


# ---------------------------------------------------------------- what is kept


async def folded(folder: Path, calls: int) -> int:
    """Return the most that is kept of an attached run that makes so many calls, in its whole life."""
    app = mp.App(f"sqlite:///{folder / 'desk.db'}", tools=[act])
    async with app.attach(key="k") as run:
        for number in range(calls):
            assert await run.attempt(f"c{number}", act, number) == mp.Confirmed(number)
        found = await app.inspect.entries(run.id)
        created = found[0][1]
        assert isinstance(created, e.RunCreated)
        about, _ = await app.inspect.begun_with(run.id, created.boundary)
    made = spans.Spans(run.id, about, {})
    most, told = 0, 0
    for _, entry in found:
        told += len(made.take(entry))
        most = max(most, made.kept)
    assert told >= calls
    return most


def test_what_is_kept_of_a_run_does_not_grow_with_its_calls(tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "many").mkdir()

    few, many = asyncio.run(folded(tmp_path / "few", 5)), asyncio.run(folded(tmp_path / "many", 120))

    assert many <= few


def fresh() -> spans.Spans:
    return spans.Spans("run-1", e.About("w", "1", created_at=1), {})


def test_of_many_events_the_oldest_give_way_and_are_counted_on_the_runs_own_span() -> None:
    made = fresh()

    for at in range(1_000):
        made.take(e.CancelAsked(at=at, by="ann", why=str(at)))
    (run,) = made.take(e.RunStopped(at=1_000, status="cancelled", code="cancelled", why="x"))

    assert len(run.events) <= spans.EVENTS_MOST
    assert run.events[-1][0] == 999
    assert run.attributes["milepost.dropped"] == 1_000 - spans.EVENTS_MOST


def test_of_what_is_open_without_end_the_oldest_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "OPEN_MOST", 10)
    made = fresh()

    for number in range(100):
        made.take(e.SleepStarted(at=number, step=f":{number}", until=10**9))
    ended = made.take(e.RunStopped(at=1_000, status="failed", code="x", why="y"))

    assert [span.began for span in ended] == [*range(90, 100), 1]
    assert ended[-1].attributes["milepost.dropped"] == 90


async def test_a_run_that_ended_is_followed_no_more(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    async with watched.app:
        handle = await watched.app.start(waiting)
        await watched.app.send(handle.id, "go", "on")
        await handle.result()
        await asked(lambda: bool(watched.named(RUN)))

        assert watched.tracing.followed == 0


# ---------------------------------------------------------------- killed while it waits


async def test_a_run_that_waits_and_is_killed_is_told_once_by_one_of_those_who_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "KILLED_EVERY_S", 0.001)
    run_id = await parked(tmp_path)
    both = [Watched(tmp_path) for _ in range(2)]

    async with both[0].app, both[1].app:
        await killed(tmp_path, run_id)
        for watched in both:
            await asked(lambda watched=watched: watched.tracing.knows(run_id))  # type: ignore[misc]
        await asked(lambda: any(watched.named(RUN) for watched in both))

    told = [span for watched in both for span in watched.kept.get_finished_spans()]
    (run,) = [span for span in told if span.name == RUN]
    (receiving,) = [span for span in told if span.name == "receive go"]
    assert run.attributes is not None
    assert run.attributes["milepost.status"] == "killed"
    assert run.status.description == "killed: enough"
    assert receiving.attributes is not None
    assert receiving.attributes["milepost.interrupted"] is True


async def test_a_kill_while_nobody_watches_is_told_by_who_watches_next_and_by_nobody_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "KILLED_EVERY_S", 0.001)
    run_id = await parked(tmp_path)
    await killed(tmp_path, run_id)

    first, second = Watched(tmp_path), Watched(tmp_path)
    async with first.app:
        await asked(lambda: bool(first.named(RUN)))
    async with second.app:
        await asked(lambda: second.tracing.knows(run_id))

    assert (len(first.named(RUN)), len(second.named(RUN))) == (1, 0)


async def test_an_operators_own_process_tells_of_its_kill_when_it_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "KILLED_EVERY_S", 0.001)
    run_id = await parked(tmp_path)
    operator, later = Watched(tmp_path), Watched(tmp_path)

    async with operator.app.client():
        await operator.app.kill(run_id, by="ann", why="enough")
    async with later.app:
        await asked(lambda: later.tracing.knows(run_id))
        assert [run.status for run in await later.app.inspect.runs(Query())] == ["killed"]

    assert (len(operator.named(RUN)), len(later.named(RUN))) == (1, 0)

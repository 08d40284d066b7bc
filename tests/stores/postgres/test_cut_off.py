"""A connection that breaks, inside COMMIT or before it: each batch is written once, and its answer is what is true."""

import asyncio
from collections.abc import Iterator

import pytest

from milepost.core.queues import Serving
from milepost.definitions.queues import limit
from milepost.errors import EpochLost, StoreFailed
from milepost.stores.fleet import Enlist, WorkerRow
from milepost.stores.postgres.connection import SQL
from milepost.stores.postgres.store import PostgresStore
from milepost.testing.store_conformance.subject import Subject, append, claim
from tests.servers.fixtures import OwnPostgres, PostgresDatabase
from tests.stores.postgres.conftest import PostgresPlace
from tests.stores.postgres.cutting import Cut, Cutter

NEWEST = pytest.mark.parametrize("postgres_version", [15, 18], ids=lambda version: f"postgres-{version}")


@pytest.fixture
def cutter(database: PostgresDatabase) -> Iterator[Cutter]:
    """A proxy in front of the database."""
    server = database.server
    made = Cutter(f"{server.folder}/.s.PGSQL.{server.port}")
    yield made
    made.close()


def place_behind(cutter: Cutter, database: PostgresDatabase) -> PostgresPlace:
    return PostgresPlace(
        f"postgresql://owner@127.0.0.1:{cutter.port}/{database.name}?sslmode=disable&gssencmode=disable"
    )


@NEWEST
@pytest.mark.parametrize("cut", ["before", "behind"])
def test_a_batch_whose_commit_is_cut_off_is_written_once(database: PostgresDatabase, cutter: Cutter, cut: Cut) -> None:
    """Requirement 50."""

    async def scene() -> None:
        place = place_behind(cutter, database)
        subject = Subject(place, await place.open())
        head = await subject.held("a1")
        for turn in range(5):
            cutter.cut = cut
            assert await subject.write(append(head, b"%d" % turn), append(head, b"more %d" % turn)) == [None, None]
        assert cutter.cuts == 5
        written = [body for turn in range(5) for body in (b"%d" % turn, b"more %d" % turn)]
        assert (await subject.bodies("a1"))[2:] == written
        subject.close()

    asyncio.run(scene())


@NEWEST
@pytest.mark.parametrize("cut", ["before", "behind"])
def test_what_was_sent_off_and_cut_off_is_written_once(database: PostgresDatabase, cutter: Cutter, cut: Cut) -> None:
    async def scene() -> None:
        place = place_behind(cutter, database)
        subject = Subject(place, await place.open())
        head = await subject.held("a1")
        for turn in range(3):
            await subject.done(append(head, b"before %d" % turn))
            cutter.cut = cut
            landed: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            assert subject.store.depart([append(head, b"%d" % turn)], landed.set_result)
            assert await landed == [None]
        assert cutter.cuts == 3
        assert (await subject.bodies("a1"))[2:] == [b"before 0", b"0", b"before 1", b"1", b"before 2", b"2"]
        subject.close()

    asyncio.run(scene())


@NEWEST
def test_a_claim_whose_commit_is_cut_off_has_one_answer_and_a_lost_owner_still_loses(
    database: PostgresDatabase, cutter: Cutter
) -> None:
    async def scene() -> None:
        place = place_behind(cutter, database)
        subject = Subject(place, await place.open())
        lost = await subject.held("a1")
        cutter.cut = "behind"
        (taken,) = await subject.write(claim("a1", "worker-2", "worker-1"))
        assert (taken.epoch, taken.seq) == (2, 3)
        cutter.cut = "behind"
        refused, kept = await subject.write(append(lost, b"stale"), append(taken, b"kept"))
        assert isinstance(refused, EpochLost)
        assert kept is None
        assert await subject.bodies("a1") == [b"created a1", b"claimed 1", b"claimed 2", b"kept"]
        subject.close()

    asyncio.run(scene())


@NEWEST
def test_a_commit_is_asked_after_by_the_batch_and_not_by_a_number_that_somebody_else_may_have(
    database: PostgresDatabase, cutter: Cutter
) -> None:
    """A server that crashed gives the numbers of transactions anew which it has not written down."""

    async def scene() -> None:
        place = place_behind(cutter, database)
        subject = Subject(place, await place.open())
        head = await subject.held("a1")
        cutter.cut = "before"
        database.server.execute("SELECT pg_current_xact_id()", database.name)
        assert await subject.write(append(head, b"once")) == [None]
        assert (await subject.bodies("a1"))[2:] == [b"once"]
        subject.close()

    asyncio.run(scene())


@NEWEST
def test_a_commit_that_nobody_can_tell_any_more_stops_the_process(
    database: PostgresDatabase, cutter: Cutter, monkeypatch: pytest.MonkeyPatch
) -> None:

    async def scene() -> None:
        place = place_behind(cutter, database)
        subject = Subject(place, await place.open())
        head = await subject.held("a1")
        monkeypatch.setitem(SQL, "latest_batch", b"SELECT 1 / length($1) / 0")
        cutter.cut = "behind"
        with pytest.raises(StoreFailed, match="broke inside COMMIT"):
            await subject.write(append(head, b"who knows"))
        with pytest.raises(StoreFailed):
            await subject.write(append(head, b"never"))
        subject.close()

    asyncio.run(scene())


def test_a_server_that_is_killed_and_comes_back_costs_time_and_nothing_else(own_postgres: OwnPostgres) -> None:
    """Requirement 50."""
    server = own_postgres(18)

    async def scene() -> None:
        place = PostgresPlace(server.url(server.create_database()))
        subject = Subject(place, await place.open())
        head = await subject.held("a1")
        server.kill()
        writing = asyncio.ensure_future(subject.write(append(head, b"through it all")))
        reading = asyncio.ensure_future(subject.store.run("a1"))
        await asyncio.to_thread(server.start)
        assert await writing == [None]
        assert (await reading).owner == "worker-1"
        assert (await subject.bodies("a1"))[2:] == [b"through it all"]
        subject.close()

    asyncio.run(scene())


def test_a_store_says_who_is_stopped_for_a_while_after_its_server_is_gone(own_postgres: OwnPostgres) -> None:
    server = own_postgres(18)
    store = PostgresStore(server.url(server.create_database()), create=True)
    assert store.switches_now() == []
    server.kill()

    assert store.switches_now() == []
    store.close()


@pytest.mark.parametrize("end", ["stop_immediately", "kill"])
def test_whoever_asks_what_is_due_while_the_server_is_away_waits_for_it(own_postgres: OwnPostgres, end: str) -> None:
    """Requirement 50. The limits make it a look within a transaction; both readers must get over the restart."""
    server = own_postgres(18)
    serving = Serving(None, (limit("mail", "queue", 1, None, None, while_waiting=False),))

    async def scene() -> None:
        place = PostgresPlace(server.url(server.create_database()))
        subject = Subject(place, await place.open())
        await subject.create("a1")
        await asyncio.gather(*(subject.store.due(1_000, ["w"], 10, serving) for _ in range(4)))

        getattr(server, end)()
        looks = [asyncio.ensure_future(subject.store.due(1_000, ["w"], 10, serving)) for _ in range(4)]
        await asyncio.wait(looks, timeout=0.5)
        await asyncio.to_thread(server.start)

        assert [await look for look in looks]
        subject.close()

    asyncio.run(scene())


def test_a_worker_that_wrote_nothing_since_the_server_was_restarted_leaves_in_good_order(
    own_postgres: OwnPostgres,
) -> None:
    server = own_postgres(18)

    async def scene() -> None:
        place = PostgresPlace(server.url(server.create_database()))
        subject = Subject(place, await place.open())
        await subject.write(Enlist(WorkerRow("w1", "host", 1, 10, 20)))

        server.restart()
        subject.store.end_worker("w1", 15)

        assert [worker.ended_at for worker in await subject.store.workers()] == [15]
        subject.close()

    asyncio.run(scene())

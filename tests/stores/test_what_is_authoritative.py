"""Every table says what it is; nothing that is diagnostic decides anything."""

import asyncio
import re

import apsw

from milepost.core.chain import verify
from milepost.stores.api import ApprovalRow, EffectRow, Emit, Once
from milepost.stores.sqlite.store import SqliteStore
from milepost.testing.store_conformance import Subject
from milepost.testing.store_conformance.subject import append, deliver, status
from tests.stores.conftest import SqlitePlace

CLASSES = {"authoritative", "projection", "diagnostic"}


def rows(file: apsw.Connection, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in file.execute(sql).fetchall()]


def labels(stores: SqlitePlace) -> dict[str, str]:
    """Return what each table of a real file says it is."""
    asyncio.run(stores.open()).close()
    file = apsw.Connection(str(stores.path))
    found = {
        str(name): match[1] if (match := re.match(r"CREATE TABLE \w+ \( -- (\w+)\n", str(sql))) else ""
        for name, sql in rows(file, "SELECT name, sql FROM sqlite_schema WHERE type = 'table'")
    }
    file.close()
    return found


def test_every_table_is_labelled_authoritative_projection_or_diagnostic(stores: SqlitePlace) -> None:
    """Requirement 42."""
    found = labels(stores)

    assert {name: label for name, label in found.items() if label not in CLASSES} == {}
    assert found["mp_journal"] == found["mp_chunks"] == "authoritative"
    assert {name for name, label in found.items() if label == "diagnostic"} == {"mp_events"}


def test_deleting_everything_diagnostic_changes_nothing_that_recovery_reads(stores: SqlitePlace) -> None:
    """Requirement 42. Requirement 53."""
    diagnostic = [name for name, label in labels(stores).items() if label == "diagnostic"]
    assert diagnostic

    async def recovered() -> tuple[object, ...]:
        store = await stores.open()
        tail = await store.tail("a1")
        verify("a1", tail.before, 1, ((one.seq, one.body, one.hash) for one in tail.entries), tail.head.hash)
        read = (tail, await store.run("a1"), await store.inbox("a1"), await store.due(10**13, ["desk"], 9))
        store.close()
        return read

    async def fill() -> None:
        subject = Subject(stores, await stores.open())
        head = await subject.held("a1")
        await subject.write(append(head, b"one"), Emit([("a1", 5, b"event")]), deliver("a1", "m1"))
        subject.close()

    asyncio.run(fill())
    before = asyncio.run(recovered())
    file = apsw.Connection(str(stores.path))
    assert rows(file, "SELECT count(*) FROM mp_events") == [(1,)]
    for name in diagnostic:
        file.execute(f"DELETE FROM {name}").fetchall()  # noqa: S608  a table's name out of the schema
    file.close()

    assert asyncio.run(recovered()) == before


def test_wake_ups_approvals_and_outcomes_survive_that_every_process_is_gone(stores: SqlitePlace) -> None:
    """Requirement 36."""
    open_effect = EffectRow(":0", "unknown", "pay/charge#1", "charge", "keyed", 3, 10, "no answer")
    asked = ApprovalRow("ap-1", "a1", ":1", "pay/mail#1", "mail", b"{}", 9, "asked")

    async def write() -> None:
        subject = Subject(stores, await stores.open())
        head = await subject.held("a1")
        parked = append(
            head, b"parked", status=status("parked", reason="time", until=900), release=(10, 900),
            effects=[open_effect], approvals=[asked], once=Once("", "charge", "o1", ":0", "d"),
        )  # fmt: skip
        await subject.done(parked)
        subject.close()

    asyncio.run(write())
    store = SqliteStore(str(stores.path))

    async def read() -> None:
        assert [run.id for run in await store.due(900, ["desk"], 9)] == ["a1"]
        assert await store.due(899, ["desk"], 9) == []
        assert [(row.outcome, row.attempt) for row in await store.effects("a1")] == [("unknown", 3)]
        assert await store.approvals() == [asked]
        assert (await store.once("", "charge", "o1")) is not None

    asyncio.run(read())
    store.close()

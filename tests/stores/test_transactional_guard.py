"""What a tool inside the append may do, and that nothing it does can reach the store or outlive it."""

import asyncio
from typing import Any

import apsw
import pytest

from milepost.errors import MilepostError, Rejected
from milepost.testing.store_conformance import Subject
from milepost.testing.store_conformance.subject import append, refused
from tests.stores.conftest import SqlitePlace

DENIED = {
    "reading": "SELECT count(*) FROM mp_journal",
    "reading in a subquery": "SELECT 1 WHERE EXISTS (SELECT 1 FROM mp_runs)",
    "reading in other letters": "SELECT * FROM MP_RUNS",
    "reading by its full name": 'SELECT * FROM main."mp_runs"',
    "writing": "INSERT INTO mp_inbox (run, message_id, body) VALUES (1, 'm', x'00')",
    "changing": "UPDATE mp_heads SET epoch = 9",
    "deleting": "DELETE FROM mp_switches",
    "dropping": "DROP TABLE mp_effects",
    "altering": "ALTER TABLE mp_runs ADD COLUMN x",
    "renaming away": "ALTER TABLE mp_runs RENAME TO gone",
    "making one of the same name": "CREATE TABLE mp_extra (x)",
    "making one that is a surface's by its name": "CREATE TABLE milepost_extra (x)",
    "making a temporary one of the same name": "CREATE TEMP TABLE mp_heads (run, epoch, row, seq, hash, boundary)",
    "making a temporary one of another name": "CREATE TEMP TABLE crm_aside (x)",
    "making a view of the same name": "CREATE VIEW mp_view AS SELECT 1",
    "making a temporary view of the same name": "CREATE TEMP VIEW mp_switches AS SELECT 1",
    "making a virtual table of the same name": "CREATE VIRTUAL TABLE mp_fts USING fts5(x)",
    "an index": "CREATE INDEX crm_more ON mp_runs (status)",
    "a trigger": "CREATE TRIGGER crm_more AFTER INSERT ON mp_journal BEGIN SELECT 1; END",
    "a temporary trigger": "CREATE TEMP TRIGGER crm_more AFTER INSERT ON main.mp_journal BEGIN DELETE FROM crm; END",
    "dropping a trigger": "DROP TRIGGER mp_journal_no_update",
    "dropping an index": "DROP INDEX mp_runs_due",
    "a trigger of its own that reaches for one": "INSERT INTO crm_reaching VALUES (1)",
    "a view of its own that shows one": "SELECT * FROM crm_showing",
    "the schema": "DELETE FROM sqlite_schema",
    "begin": "BEGIN",
    "commit": "COMMIT",
    "rollback": "ROLLBACK",
    "savepoint": "SAVEPOINT mine",
    "release": "RELEASE operation",
    "rollback to": "ROLLBACK TO operation",
    "attach": "ATTACH ':memory:' AS other",
    "detach": "DETACH temp",
    "pragma": "PRAGMA synchronous = OFF",
    "pragma as a table": "SELECT * FROM pragma_table_info('mp_runs')",
    "vacuum": "VACUUM",
    "a second statement": "SELECT 1; COMMIT",
    "an extension": "SELECT load_extension('x')",
}  # fmt: skip

ALLOWED = [
    "CREATE TABLE notes (id INTEGER PRIMARY KEY, mp_text TEXT)",
    "INSERT INTO notes (mp_text) VALUES ('x')",
    "SELECT mp_text FROM notes WHERE mp_text = 'x'",
    "UPDATE notes SET mp_text = 'y' RETURNING id",
    "CREATE INDEX notes_text ON notes (mp_text)",
    "CREATE VIEW notes_seen AS SELECT mp_text FROM notes",
    "CREATE TRIGGER notes_added AFTER INSERT ON notes BEGIN UPDATE crm SET notes = notes + 1; END",
    "INSERT INTO notes (mp_text) VALUES ('z')",
    "SELECT * FROM notes_seen",
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT sum(i) FROM n",
    "SELECT count(*), upper('a'), json_extract('{\"a\":1}', '$.a') FROM notes",
    "ALTER TABLE notes ADD COLUMN more TEXT",
    "DELETE FROM notes",
    "DROP VIEW notes_seen",
    "DROP TABLE notes",
]

SETUP = [
    "CREATE TABLE crm (name TEXT PRIMARY KEY, notes INTEGER NOT NULL DEFAULT 0)",
    "INSERT INTO crm (name) VALUES ('ann')",
]
TRAPS = [
    "CREATE TABLE crm_reaching (x)",
    "CREATE TRIGGER crm_trap AFTER INSERT ON crm_reaching BEGIN DELETE FROM mp_effects; END",
    "CREATE VIEW crm_showing AS SELECT * FROM mp_runs",
]
ROLLING = [
    "CREATE TABLE crm_rolling (x)",
    "CREATE TRIGGER crm_roll AFTER INSERT ON crm_rolling BEGIN SELECT RAISE(ROLLBACK, 'no'); END",
]


def tried(stores: SqlitePlace, *statements: str) -> tuple[Any, list[bytes], list[Any]]:
    """Run statements as a transactional tool of a run; return the answer, the run's chain, and what stands in crm."""

    async def scene() -> tuple[Any, list[bytes], list[Any]]:
        subject = Subject(stores, await stores.open())
        writer = subject.store._writer  # type: ignore[attr-defined]
        for sql in (*SETUP, *TRAPS):
            writer.execute(sql).fetchall()
        head = await subject.held("a1")

        def work(tx: Any) -> list[bytes]:
            tx.execute("UPDATE crm SET notes = 7")
            try:
                for sql in statements:
                    tx.execute(sql)
            except apsw.Error as error:  # as the runtime does: whatever a tool raises refuses its own append
                raise Rejected(str(error)) from error
            return [b"confirmed"]

        (answer,) = await subject.write(append(head, b"started", work=work))
        await subject.done(append(head, b"afterwards"))
        chain = await subject.bodies("a1")
        crm = writer.execute("SELECT name, notes FROM crm").fetchall()
        subject.close()
        return answer, chain, crm

    return asyncio.run(scene())


@pytest.mark.parametrize("sql", DENIED.values(), ids=DENIED.keys())
def test_a_tool_reaches_neither_the_store_nor_the_transaction(stores: SqlitePlace, sql: str) -> None:
    answer, chain, crm = tried(stores, sql)

    refused(answer, MilepostError)
    assert chain[2:] == [b"afterwards"]
    assert crm == [("ann", 0)]


def test_a_tool_may_do_with_tables_of_its_own_what_it_likes(stores: SqlitePlace) -> None:
    answer, chain, crm = tried(stores, *ALLOWED)

    assert answer is None
    assert chain[2:] == [b"started", b"confirmed", b"afterwards"]
    assert crm == [("ann", 8)]


def test_what_is_denied_is_a_final_refusal_that_names_the_statement(stores: SqlitePlace) -> None:
    answer, _, _ = tried(stores, "DELETE FROM mp_journal")

    assert "DELETE FROM mp_journal" in refused(answer, Rejected).why


def test_a_tool_that_catches_its_refusal_still_reached_nothing(stores: SqlitePlace) -> None:
    async def scene() -> None:
        subject = Subject(stores, await stores.open())
        head = await subject.held("a1")

        def work(tx: Any) -> list[bytes]:
            for sql in ("DELETE FROM mp_heads", "COMMIT"):
                with pytest.raises(Rejected):
                    tx.execute(sql)
            return [b"confirmed"]

        await subject.done(append(head, b"started", work=work))
        assert (await subject.bodies("a1"))[2:] == [b"started", b"confirmed"]
        subject.close()

    asyncio.run(scene())


TAKES_ALL_BACK = {
    "a conflict clause": "INSERT OR ROLLBACK INTO crm (name) VALUES ('ann')",
    "a trigger": "INSERT INTO crm_rolling VALUES (1)",
}


@pytest.mark.parametrize("catches", [False, True])
@pytest.mark.parametrize("sql", TAKES_ALL_BACK.values(), ids=TAKES_ALL_BACK.keys())
def test_a_tool_that_takes_the_whole_transaction_back_refuses_itself_alone(
    stores: SqlitePlace, sql: str, *, catches: bool
) -> None:
    async def scene() -> None:
        subject = Subject(stores, await stores.open())
        writer = subject.store._writer  # type: ignore[attr-defined]
        for made in (*SETUP, *ROLLING):
            writer.execute(made).fetchall()
        head, other = await subject.held("a1"), await subject.held("a2")

        def work(tx: Any) -> list[bytes]:
            try:
                tx.execute(sql)
            except apsw.Error as error:
                if not catches:
                    raise Rejected(str(error)) from error
                with pytest.raises(Rejected, match="rolled"):
                    tx.execute("INSERT INTO crm (name) VALUES ('eve')")
            return [b"confirmed"]

        first, answer, last = await subject.write(
            append(other, b"one"), append(head, b"started", work=work), append(other, b"two")
        )

        assert (first, last) == (None, None)
        assert "OR ABORT" in refused(answer, Rejected).why
        assert (await subject.bodies("a2"))[2:] == [b"one", b"two"]
        assert await subject.bodies("a1") == [b"created a1", b"claimed 1"]
        assert writer.execute("SELECT name FROM crm").fetchall() == [("ann",)]
        await subject.done(append(head, b"afterwards"))
        subject.close()

    asyncio.run(scene())


def test_a_statement_without_text_is_no_statement(stores: SqlitePlace) -> None:
    answer, _, _ = tried(stores, "", "-- nothing")

    assert answer is None

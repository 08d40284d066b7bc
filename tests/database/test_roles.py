"""What each role may do, tried against real servers of every version: the database itself refuses the rest."""

from __future__ import annotations

import psycopg
import pytest

from milepost.core import codec
from milepost.core import entries as e
from milepost.core import messages as m
from milepost.core.code_entries import Resumed
from milepost.core.entries import Boundary
from milepost.core.store_entries import BreakerOpened, CeilingSet, SwitchLifted, SwitchSet
from milepost.stores.encryption import MAGIC
from milepost.stores.postgres.schema import Schema
from tests.database.conftest import Session
from tests.servers.fixtures import PostgresDatabase

ANSWER = m.encode(m.Answer(at=1, by="ann", approval="ap-1", approved=True))
GRANT = m.encode(m.Grant(at=1, by="ann", scopes=("pay",), why="asked\0nicely"))
DECIDING = {
    "answer": ANSWER,
    "grant": GRANT,
    "resolve": m.encode(m.Resolve(at=1, by="ann", path="pay/charge#1", answer="happened", why="looked")),
    "retry": m.encode(m.Retry(at=1, by="ann")),
    "resume": m.encode(m.Resume(at=1, by="ann")),
    "rewind": m.encode(m.Rewind(at=1, by="ann", to=1)),
}
TELLING = {
    "evidence": m.encode(m.Evidence(at=1, visit=1, step=":0", path="pay/charge#1", attempt=1, saw="returned")),
    "child": m.encode(m.Child(at=1, child="c1", status="done")),
    "recheck": m.encode(m.Recheck(at=1)),
}
QUOTING = {
    "approval_answered": (codec.encode(e.ApprovalAnswered(at=2, id="ap-1", approved=True, by="ann")), ANSWER),
    "widened": (codec.encode(e.Widened(at=2, by="ann", scopes=("pay",))), GRANT),
    "resumed": (codec.encode(Resumed(at=2, by="ann", why="", was="diverged")), DECIDING["resume"]),
    "retried": (codec.encode(e.Retried(at=2, by="ann")), DECIDING["retry"]),
    "rewind_asked": (
        codec.encode(e.RewindAsked(at=2, to=1, by="ann", boundary=Boundary("a", "m", 1, "pay"))),
        DECIDING["rewind"],
    ),
}
OTHER = {
    "approval_answered": codec.encode(e.ApprovalAnswered(at=2, id="ap-2", approved=True, by="ann")),
    "widened": codec.encode(e.Widened(at=2, by="ann", scopes=("pay", "refund"))),
    "rewind_asked": codec.encode(e.RewindAsked(at=2, to=2, by="ann", boundary=Boundary("a", "m", 1, "pay"))),
}
TABLES = [
    "mp_journal",
    "mp_chunks",
    "mp_tombstones",
    "mp_meta",
    "mp_migrations",
    "mp_runs",
    "mp_heads",
    "mp_inbox",
    "mp_ceilings",
    "mp_imports",
]
SELECT = {table: f"TABLE {table}" for table in TABLES}
DELETE = {table: f"DELETE FROM {table}" for table in TABLES}  # noqa: S608  names from above
TRUNCATE = {table: f"TRUNCATE {table}" for table in TABLES}
INSERT = {table: f"INSERT INTO {table} TABLE {table}" for table in TABLES}
SET_HEAD = {column: f"UPDATE mp_heads SET {column} = %s" for column in ("epoch", "seq", "run")}  # noqa: S608
RUN = """
INSERT INTO mp_runs (run, id, workflow, version, attached, digest, status, principal, tags, created_at, changed_at)
VALUES (1, 'r1', 'w', '1', 0, '', 'blocked', '', '{}', 1, 1)
"""


def own(done: str, **said: str) -> bytes:
    """An entry of the store's own journal."""
    made = SwitchSet if done == "set" else SwitchLifted
    return codec.encode(made(at=1, scope="tool:charge", why="", by="w", **said))


# ---------------------------------------------------------------- what is written


@pytest.mark.parametrize("postgres_version", [15, 18])
def test_a_worker_deletes_nothing_that_is_written(worker: Session) -> None:
    for table in ("mp_journal", "mp_chunks", "mp_tombstones", "mp_meta", "mp_migrations", "mp_runs", "mp_heads"):
        assert "permission denied" in worker.refused(DELETE[table])
        assert "permission denied" in worker.refused(TRUNCATE[table])


def test_nobody_but_the_owner_could_change_an_entry(worker: Session, person: Session) -> None:
    worker.enter(1, codec.encode(e.Claimed(at=1, epoch=1, owner="w")))

    for session in (worker, person):
        session.refused("UPDATE mp_journal SET body = ''")
        session.refused("UPDATE mp_chunks SET body = ''")
        session.refused("TRUNCATE mp_journal")
        session.refused("ALTER TABLE mp_journal DISABLE TRIGGER ALL")
        session.refused("SET session_replication_role = replica")
        session.refused("CREATE TABLE mp_more (n int)")


@pytest.mark.parametrize("postgres_version", [15, 18])
def test_not_even_the_owner_changes_an_entry(schema: Schema, database: PostgresDatabase) -> None:
    database.server.execute("INSERT INTO mp_journal VALUES (1, 1, 1, NULL, 'a', 'b')", database.name)

    for statement in ("UPDATE mp_journal SET body = 'c'", "DELETE FROM mp_journal", "TRUNCATE mp_journal"):
        with pytest.raises(psycopg.Error, match="append-only"):
            database.server.execute(statement, database.name)


def test_neither_an_epoch_nor_the_end_of_a_chain_goes_back(worker: Session) -> None:
    worker.do("INSERT INTO mp_heads VALUES (1, 3, 9, 9, '', 9, NULL)")

    worker.do("UPDATE mp_heads SET epoch = 4, seq = 10")
    for column, value in (("epoch", 3), ("seq", 9), ("run", 2)):
        with pytest.raises(psycopg.Error, match="ever goes back"):
            worker.do(SET_HEAD[column], value)


@pytest.mark.parametrize("postgres_version", [18])
def test_a_stranger_sees_nothing(stranger: Session) -> None:
    for table in ("mp_journal", "mp_runs", "mp_inbox", "mp_meta"):
        stranger.refused(SELECT[table])


# ---------------------------------------------------------------- a person's words


@pytest.mark.parametrize("kind", sorted(DECIDING))
def test_a_worker_cannot_say_what_is_a_persons(worker: Session, person: Session, kind: str) -> None:
    body = DECIDING[kind]

    plain = worker.refused("INSERT INTO mp_inbox (run, message_id, body) VALUES (1, 'm1', %s)", body)
    spaced = body.replace(b'{"message":', b'{ "message" :')
    escaped = body.replace(b'{"message":"', b'{"message":"\\u00' + f"{body[12]:x}".encode(), 1)
    for disguised in (spaced, escaped):
        worker.refused("INSERT INTO mp_inbox (run, message_id, body) VALUES (1, 'm1', %s)", disguised)
    person.say("m1", body)

    assert "needs the role milepost_operator" in plain
    assert person.do("SELECT person FROM mp_inbox") == [(True,)]


@pytest.mark.parametrize("kind", sorted(TELLING))
def test_a_worker_tells_what_it_saw(worker: Session, kind: str) -> None:
    worker.say("m1", TELLING[kind])
    worker.do("UPDATE mp_inbox SET taken = 1")

    assert worker.do("SELECT person, taken FROM mp_inbox") == [(False, 1)]


@pytest.mark.parametrize("postgres_version", [15, 18])
def test_a_worker_cannot_make_a_message_a_persons(worker: Session) -> None:
    sealed = MAGIC + b"whatever"
    worker.do("INSERT INTO mp_inbox (run, message_id, body, person) VALUES (1, 'm1', %s, TRUE)", sealed)

    worker.refused("UPDATE mp_inbox SET person = TRUE")
    worker.refused("UPDATE mp_inbox SET body = %s", ANSWER)

    assert worker.do("SELECT person FROM mp_inbox") == [(False,)]


@pytest.mark.parametrize("kind", sorted(QUOTING))
def test_an_entry_that_quotes_a_person_needs_the_persons_message_and_takes_it_once(
    worker: Session, person: Session, kind: str
) -> None:
    entry, message = QUOTING[kind]

    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="no message of a person permits"):
        worker.enter(1, entry)
    person.say("m1", message)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        worker.enter(1, entry, run=2)
    worker.enter(1, entry)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        worker.enter(2, entry)

    assert worker.do("SELECT count(*) FROM mp_journal") == [(1,)]


@pytest.mark.parametrize("kind", sorted(OTHER))
@pytest.mark.parametrize("postgres_version", [15, 18])
def test_a_persons_message_permits_only_what_it_says(worker: Session, person: Session, kind: str) -> None:
    person.say("m1", QUOTING[kind][1])

    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        worker.enter(1, OTHER[kind])


@pytest.mark.parametrize("postgres_version", [18])
def test_an_entry_cannot_hide_its_kind_from_the_database(worker: Session) -> None:
    entry = QUOTING["widened"][0]

    for disguised in (
        b" " + entry,
        entry.replace(b'"widened', b'"\\u0077idened'),
        entry.replace(b'{"entry"', b'{ "entry"'),
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            worker.enter(1, disguised)


@pytest.mark.parametrize("postgres_version", [18])
def test_a_table_of_the_workers_own_session_is_not_read_in_place_of_ours(worker: Session) -> None:
    worker.do("CREATE TEMPORARY TABLE mp_inbox (id bigint, run bigint, person boolean, body bytea)")
    worker.do("CREATE TEMPORARY TABLE mp_quoted (message bigint, entry text)")
    worker.do("INSERT INTO mp_inbox VALUES (1, 1, TRUE, %s)", GRANT)

    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        worker.enter(1, QUOTING["widened"][0])


@pytest.mark.parametrize("postgres_version", [15, 18])
def test_a_denial_and_everything_else_a_run_goes_through_needs_no_person(worker: Session) -> None:
    worker.enter(1, codec.encode(e.ApprovalAnswered(at=2, id="ap-1", approved=False, by="ann")))
    worker.enter(2, codec.encode(e.CancelAsked(at=2, by="ann", why="late")))
    worker.enter(3, codec.encode(e.SegmentFailed(at=2, why="down", attempt=1, retry_at=9)))

    assert worker.do("SELECT count(*) FROM mp_journal") == [(3,)]


# ---------------------------------------------------------------- approvals


def test_a_worker_shows_an_approval_as_given_only_where_a_person_gave_it(worker: Session, person: Session) -> None:
    asked = "INSERT INTO mp_approvals VALUES (%s, 1, ':0', 'pay/charge#1', 'charge', '{}', 1, %s)"
    worker.do(asked, "ap-1", "asked")

    worker.refused(asked, "ap-2", "approved")
    worker.refused("UPDATE mp_approvals SET verdict = 'approved'")
    person.say("m1", ANSWER)
    worker.do("UPDATE mp_approvals SET verdict = 'approved' WHERE id = 'ap-1'")
    worker.do(asked, "ap-3", "asked")
    worker.refused("UPDATE mp_approvals SET verdict = 'approved' WHERE id = 'ap-3'")


# ---------------------------------------------------------------- switches, ceilings, pruning


@pytest.mark.parametrize("kind", ["freeze", "stop"])
def test_a_worker_neither_freezes_nor_thaws(worker: Session, person: Session, kind: str) -> None:
    throw = "INSERT INTO mp_switches VALUES ('all', %s, '', '', 'ann', 1)"

    worker.refused(throw, kind)
    person.do(throw, kind)
    worker.refused("DELETE FROM mp_switches")
    worker.refused("UPDATE mp_switches SET kind = 'hold'")
    person.do("DELETE FROM mp_switches")


def test_a_worker_holds_a_tool_and_lifts_the_hold_only_once_a_person_looked_into_it(
    worker: Session, person: Session
) -> None:
    hold = "INSERT INTO mp_switches VALUES ('tool:charge', 'hold', 'r1 pay/charge#1', '', 'r1', 1)"
    worker.do(RUN)
    worker.do(hold)

    worker.refused("DELETE FROM mp_switches")
    person.say("m1", DECIDING["resolve"])
    worker.enter(1, own("lifted", kind="hold", about="r1 pay/charge#1"), run=0)
    worker.do("DELETE FROM mp_switches")
    worker.do(hold)
    worker.refused("DELETE FROM mp_switches")


def test_a_worker_says_of_the_store_only_what_it_may_do(worker: Session, person: Session) -> None:
    opened = BreakerOpened(at=1, tool="charge", failures=3, trips=1, until=9, why="down", by="w")
    ceiling = codec.encode(CeilingSet(at=1, pool="p", per="day", ceilings={}, why="", by="w"))
    worker.enter(1, codec.encode(opened), run=0)
    worker.enter(2, own("set", kind="hold", about="r1 pay/charge#1"), run=0)

    for entry in (
        ceiling,
        own("set", kind="freeze"),
        own("lifted", kind="freeze"),
        own("lifted", kind="hold", about="r1 p"),
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            worker.enter(3, entry, run=0)
    person.enter(3, ceiling, run=0)


@pytest.mark.parametrize("postgres_version", [15, 18])
def test_ceilings_tombstones_and_imports_are_a_persons(worker: Session, person: Session) -> None:
    for table in ("mp_ceilings", "mp_tombstones", "mp_imports"):
        for statement in (INSERT[table], DELETE[table]):
            assert "permission denied" in worker.refused(statement)
    worker.refused("UPDATE mp_ceilings SET ceiling = '9'")

    person.do("INSERT INTO mp_ceilings VALUES ('p', 'day', 'usd', '5')")
    person.do("DELETE FROM mp_ceilings")


# ---------------------------------------------------------------- the list itself


@pytest.mark.parametrize("postgres_version", [15, 18])
def test_every_table_is_on_the_list_of_grants(schema: Schema, database: PostgresDatabase) -> None:
    schema.grant_roles()

    listed = set(database.server.execute("SELECT name FROM mp_grants()", database.name))
    tables = set(
        database.server.execute(
            "SELECT relname::text FROM pg_class WHERE relname ~ '^mp_' AND relkind = 'r'", database.name
        )
    )

    assert tables == listed


def test_giving_the_roles_their_grants_again_changes_nothing(schema: Schema, worker: Session) -> None:
    schema.grant_roles()

    assert all(check.ok for check in schema.checks() if check.name not in {"fsync", "full_page_writes"})
    assert "permission denied" in worker.refused("DELETE FROM mp_journal")

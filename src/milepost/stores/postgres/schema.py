"""The tables of a PostgreSQL store: made, brought up to date and checked by who owns them, looked at by who opens them.

A program that opens the store never changes tables: it could not, as a worker, and of several versions that run side by
side none may decide for the others. It goes on where all that it needs is there, and nothing was taken away that it
needs. Each migration is a transaction of its own, which waits for locks only briefly: a change of a table that queues
behind a long transaction makes everybody queue behind it.
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

import psycopg

from milepost.errors import NotAStore, StoreMissing
from milepost.stores import migrate, named_sql
from milepost.stores.api import Check
from milepost.stores.migrate import Applied, Kind, Migration, Plan
from milepost.stores.postgres.connection import MIGRATIONS, address, connect, named_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from milepost.stores.postgres.connection import Address, Connection

PACKAGE = "milepost.stores.postgres"
SQL = {name: text.encode() for name, text in named_sql.load(PACKAGE, "schema.sql").items()}
ROLES = files(PACKAGE).joinpath("roles.sql").read_text("utf-8")
BRIEFLY = "SET LOCAL lock_timeout = '5s'"
WORKER, OPERATOR = "milepost_worker", "milepost_operator"
GUARDS = (
    "mp_inbox_by_whom", "mp_journal_by_whom", "mp_heads_only_forward", "mp_approvals_by_whom", "mp_switches_by_whom",
)  # fmt: skip
ALWAYS = (
    "mp_journal_no_update", "mp_journal_no_delete", "mp_journal_no_truncate",
    "mp_chunks_no_update", "mp_chunks_no_delete", "mp_chunks_no_truncate",
    "mp_tombstones_of_the_ended", "mp_tombstones_no_update", "mp_tombstones_no_delete", "mp_tombstones_no_truncate",
    "mp_workers_not_outdated",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Standing:
    """What a store has, what it lacks, and how many workers know how much: pairs of (newest migration, workers)."""

    id: str
    applied: tuple[Applied, ...]
    missing: tuple[Migration, ...]
    at_work: tuple[tuple[int, int], ...]


def prepare(connection: Connection, place: str, *, create: bool) -> str:
    """Return the id of a store on which this code may work; make one where there is none, if it may be made.

    Raises StoreMissing, Unmigrated, NewerSchema, NotAStore, and NotPermitted where it is to be made by who may not.
    """
    with named_errors(place):
        if not _one(connection, "is_store"):
            if not create:
                raise StoreMissing(place)
            with one_at_a_time(connection):
                create_tables(connection, place, MIGRATIONS)
        migrate.may_open(place, MIGRATIONS, _applied(connection))
        return str(_one(connection, "get_meta", "store_id"))


@contextmanager
def one_at_a_time(connection: Connection) -> Iterator[None]:
    """Change tables in a transaction, one program at a time, and wait for no lock for long."""
    with connection.transaction():
        connection.execute(BRIEFLY)
        _rows(connection, "one_at_a_time")
        yield


def create_tables(connection: Connection, place: str, migrations: Sequence[Migration]) -> bool:
    """Make a store where there is none; return whether there was none. Raises NotAStore for other tables of ours."""
    if _one(connection, "is_store"):
        return False
    if _one(connection, "taken"):
        raise NotAStore(place, "it has tables named mp_… and no record of migrations")
    _rows(connection, "create_migrations")
    for migration in migrations:
        _apply(connection, migration)
    _rows(connection, "put_meta", "store_id", secrets.token_hex(16))
    return True


def migrated(connection: Connection) -> Check:
    """Return whether all that this code knows was applied."""
    return _migrated(_applied(connection), migrate.missing("the store", MIGRATIONS, _applied(connection)))


def schema_at(url: str) -> Schema:
    """Return the tables of the store that a URL names. Raises StoreUnreachable and its kin."""
    return Schema(address(url))


class Schema:
    """The tables of one store, for who owns them. Raises StoreBusy where a lock cannot be had soon."""

    def __init__(self, where: Address, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        self.place = where.place
        self._migrations = migrations
        self._connection = connect(where)

    def close(self) -> None:
        """Let the connection go."""
        self._connection.close()

    # ------------------------------------------------------------ making it, and bringing it up to date

    def create(self) -> bool:
        """Make a store where there is none; return whether there was none. Raises NotAStore for other tables of ours.

        Tables that are not ours stay as they are: a store may live beside them.
        """
        with self._one_at_a_time():
            return create_tables(self._connection, self.place, self._migrations)

    def plan(self, kind: Kind | None = None) -> Plan:
        """Return what `apply` would do. Raises StoreMissing, NewerSchema, NotAStore."""
        with named_errors(self.place):
            self._expect_store()
            oldest = _one(self._connection, "oldest_at_work") if self._counts_workers() else None
            applied = _applied(self._connection)
        return migrate.plan(self.place, self._migrations, applied, kind=kind, oldest=oldest)

    def apply(self, kind: Kind | None = None) -> list[Migration]:
        """Apply what the plan says now, one transaction each; return it. What was applied stays where one fails.

        Where there are roles, they are given what the new tables need.
        """
        done: list[Migration] = []
        while self.plan(kind).apply:
            with self._one_at_a_time():
                if self._counts_workers():
                    _rows(self._connection, "hold_workers")
                first = self.plan(kind).apply[:1]  # again: somebody else may have been faster
                for migration in first:
                    _apply(self._connection, migration)
                done.extend(first)
        if done and _one(self._connection, "has_roles"):
            self.grant_roles()
        return done

    def _counts_workers(self) -> bool:
        return bool(_one(self._connection, "counts_workers"))

    def _expect_store(self) -> None:
        if not _one(self._connection, "is_store"):
            raise StoreMissing(self.place)

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        with named_errors(self.place), one_at_a_time(self._connection):
            yield

    # ------------------------------------------------------------ roles

    @property
    def roles_sql(self) -> str:
        """What `grant_roles` does, to be read, or to be run by somebody else with the search path of the store."""
        return ROLES

    def grant_roles(self) -> None:
        """Make both roles if they are missing, and give each what it needs and no more. Raises StoreMissing.

        Whoever does this needs to own the tables, and CREATEROLE where the roles are missing.
        """
        with self._one_at_a_time():
            self._expect_store()
            self._connection.execute(ROLES.encode(), prepare=False)

    # ------------------------------------------------------------ looking

    def standing(self) -> Standing:
        """Return what it has and what it lacks. Raises StoreMissing, NewerSchema, NotAStore."""
        with named_errors(self.place):
            self._expect_store()
            applied = _applied(self._connection)
            at_work = _rows(self._connection, "at_work") if self._counts_workers() else []
            id_ = str(_one(self._connection, "get_meta", "store_id"))
        lacks = migrate.missing(self.place, self._migrations, applied)
        return Standing(id_, tuple(applied), tuple(lacks), tuple(cast("list[tuple[int, int]]", at_work)))

    def checks(self) -> list[Check]:
        """Return what the store's order and its roles rest on, as it is.

        Raises StoreMissing, NewerSchema, NotAStore.
        """
        standing = self.standing()
        with named_errors(self.place):
            return [_migrated(standing.applied, standing.missing), *self._server(), self._triggers(), *self._roles()]

    def _server(self) -> list[Check]:
        found = dict(cast("list[tuple[str, str]]", _rows(self._connection, "settings")))
        durable = "set it to on in postgresql.conf: without it a crash may take what was acknowledged"
        checks = [
            Check(name, value != "off", value, "" if value != "off" else durable) for name, value in found.items()
        ]
        encoding = str(_one(self._connection, "encoding"))
        todo = "" if encoding == "UTF8" else "make a database with ENCODING 'UTF8', and export and import the runs"
        return [*checks, Check("encoding", encoding == "UTF8", encoding, todo)]

    def _triggers(self) -> Check:
        gone = self._names("gone_triggers", list(ALWAYS))
        return Check(
            "triggers",
            not gone,
            f"off or gone: {', '.join(gone)}" if gone else "what is written stays written",
            "find out who switched them off, verify the store, and restore them from the migrations" if gone else "",
        )

    def _roles(self) -> list[Check]:
        roles = {str(name): (bool(login), bool(power)) for name, login, power in _rows(self._connection, "roles")}
        again = "milepost db roles"
        if set(roles) != {WORKER, OPERATOR}:
            found = f"missing: {', '.join(sorted({WORKER, OPERATOR} - set(roles)))}"
            return [Check("roles", ok=False, found=found, todo=f"make them: {again}")]
        if not _one(self._connection, "has_roles"):  # roles are the server's, and another database may have made them
            return [Check("roles", ok=False, found="none have grants here", todo=f"give them: {again}")]
        mighty = [name for name, (_, power) in roles.items() if power]
        allowed = self._allowed()
        much = [f"{privilege} on {table}" for table, privilege in _rows(self._connection, "too_much", allowed)]
        little = [f"{privilege} on {table}" for table, privilege in _rows(self._connection, "too_little", allowed)]
        guards = self._names("gone_triggers", list(GUARDS))
        both = [*self._names("owners_who_work"), *self._names("people_who_work")]
        return [
            _none(
                "roles",
                mighty,
                "two, without powers over the server",
                "take them: ALTER ROLE … NOSUPERUSER NOCREATEROLE",
            ),
            _none("too many grants", much, "none", f"find out who gave them, and take them back: {again}"),
            _none("too few grants", little, "none", f"give them: {again}"),
            _none("guards", guards, "all stand", f"find out who switched them off, and restore them: {again}"),
            _none("workers who are people", both, "none", "let workers log in as another member of milepost_worker"),
        ]

    def _allowed(self) -> list[str]:
        """Return what a worker may do, as `TABLE PRIVILEGE`, from the list that the database was given last."""
        granted = [(str(name), str(worker)) for name, worker, _ in _rows(self._connection, "grants")]
        return [
            f"{name} {privilege}"
            for name, privileges in granted
            for privilege in privileges.split(", ")
            if "(" not in privilege
        ]

    def _names(self, name: str, *args: Any) -> list[str]:
        return [str(row[0]) for row in _rows(self._connection, name, *args)]


def _migrated(applied: Sequence[Applied], missing: Sequence[Migration]) -> Check:
    if not missing:
        return Check("migrations", ok=True, found=f"all {len(applied)}", todo="")
    needed = any(one.kind == "pre" for one in missing)
    before, after = "--pre, before new code comes", "--post, once only new code is at work"
    found = f"lacks {', '.join(one.name for one in missing)}"
    return Check("migrations", ok=not needed, found=found, todo=f"milepost db migrate {before if needed else after}")


def _apply(connection: Connection, one: Migration) -> None:
    connection.execute(one.sql.encode(), prepare=False)
    _rows(connection, "insert_migration", one.number, one.name, one.kind, one.checksum)


def _none(name: str, found: Sequence[str], fine: str, todo: str) -> Check:
    return Check(name, not found, ", ".join(found) or fine, todo if found else "")


def _applied(connection: Connection) -> list[Applied]:
    return [Applied(*row) for row in _rows(connection, "migrations")]


def _rows(connection: Connection, name: str, *args: Any) -> list[tuple[Any, ...]]:
    cursor = psycopg.RawCursor(connection)
    cursor.execute(SQL[name], args, prepare=False)
    return cursor.fetchall() if cursor.description else []


def _one(connection: Connection, name: str, *args: Any) -> Any:
    rows = _rows(connection, name, *args)
    return rows[0][0] if rows else None

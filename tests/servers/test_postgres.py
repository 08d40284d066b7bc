"""The test servers themselves: each version starts, as any account, is killed, recovers, and leaves nothing."""

import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.polling import eventually
from tests.servers.fixtures import OwnPostgres, PostgresDatabase
from tests.servers.kept import NotInstalled, account, chosen_account, program
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import Postgres, programs

ROOT = Path(__file__).resolve().parent.parent.parent
ASKER = """
import signal
from tests.servers.postgres import Postgres
server = Postgres(18)
server.start()
print(server.pid, server.folder, flush=True)
signal.pause()
"""
OTHERS = [None, "nobody"] if os.geteuid() == 0 else [None]


def person(name: str, uid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, uid, "", "/", "/bin/sh"))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def count(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM kept").fetchone()
    assert row is not None
    return int(row[0])


def test_a_server_is_of_the_version_that_was_asked_for(postgres: Postgres, postgres_version: int) -> None:
    ((said,),) = postgres.execute("SHOW server_version")

    assert str(said).split(".")[0] == str(postgres_version)


@pytest.mark.parametrize("postgres_version", [18])
def test_each_test_has_an_empty_database_of_its_own(postgres: Postgres, database: PostgresDatabase) -> None:
    other = postgres.create_database()
    postgres.execute("CREATE TABLE kept (n int)", database.name)

    tables = "SELECT count(*) FROM pg_tables WHERE tablename = 'kept'"
    assert postgres.execute(tables, database.name) == [(1,)]
    assert postgres.execute(tables, other) == [(0,)]
    postgres.drop_database(other)


@pytest.mark.parametrize("postgres_version", [18])
def test_a_database_is_reached_by_socket_and_by_tcp(database: PostgresDatabase) -> None:
    for url in (database.url, database.tcp_url):
        with psycopg.connect(url) as connection:
            assert connection.info.dbname == database.name


@pytest.mark.parametrize("how", [Postgres.stop, Postgres.stop_immediately, Postgres.kill])
@pytest.mark.parametrize("version", [15, 16, 18])
def test_what_was_committed_is_there_after_every_kind_of_end(
    own_postgres: OwnPostgres, version: int, how: Callable[[Postgres], None]
) -> None:
    server = own_postgres(version)
    port = server.port
    server.execute("CREATE TABLE kept (n int)")
    server.execute("INSERT INTO kept SELECT generate_series(1, 1000)")

    how(server)
    ended = not server.answers()
    server.start()

    assert ended
    assert server.port == port
    assert count(server.url()) == 1000


def test_a_killed_server_comes_back_while_its_processes_are_at_work(own_postgres: OwnPostgres) -> None:
    server = own_postgres(18)
    server.execute("CREATE TABLE kept (n int)")
    busy = psycopg.connect(server.url())
    busy.execute("INSERT INTO kept VALUES (1)")

    server.kill()
    server.start()

    assert count(server.url()) == 0
    with pytest.raises(psycopg.OperationalError):
        busy.execute("INSERT INTO kept VALUES (2)")
    busy.close()


@pytest.mark.parametrize("name", OTHERS)
def test_a_server_runs_as_an_account_that_is_not_root(own_postgres: OwnPostgres, name: str | None) -> None:
    server = own_postgres(16, run_as=name)

    uid = Path(f"/proc/{server.pid}").stat().st_uid if sys.platform == "linux" else os.geteuid()
    assert uid != 0
    assert name is None or uid == pwd.getpwnam(name).pw_uid


def test_root_takes_the_account_postgres_then_nobody_then_anyone_else() -> None:
    root, daemon, nobody, postgres = person("root", 0), person("daemon", 1), person("nobody", 9), person("postgres", 5)

    assert chosen_account(1000, [root]) is None
    for entries, uid in [([root, daemon, nobody, postgres], 5), ([root, daemon, nobody], 9), ([root, daemon], 1)]:
        chosen = chosen_account(0, entries)
        assert chosen is not None
        assert chosen.uid == uid
    with pytest.raises(NotInstalled, match="no other account"):
        chosen_account(0, [root])


def test_programs_that_the_account_cannot_reach_are_copied(
    own_postgres: OwnPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    wheel = programs(18).parent.parent
    for name in (wheel.name, f"{wheel.name}.libs"):
        (hidden / name).symlink_to(wheel.with_name(name))
    monkeypatch.setattr("tests.servers.postgres.programs", lambda _version: hidden / wheel.name / "pginstall18" / "bin")

    server = own_postgres(18)

    running = subprocess.run(["ps", "-o", "args=", "-p", str(server.pid)], capture_output=True, text=True, check=True)
    assert server.answers()
    assert running.stdout.startswith(str(hidden)) == (account() is None)


def test_what_is_missing_is_named_with_the_way_to_get_it() -> None:
    with pytest.raises(NotInstalled, match="PostgreSQL 9 is not installed"):
        programs(9)
    with pytest.raises(NotInstalled, match="pgwizard is not installed: ask a wizard"):
        program("pgwizard", "ask a wizard")


def test_a_server_leaves_with_the_process_that_started_it(tmp_path: Path) -> None:
    asker = subprocess.Popen([sys.executable, "-c", ASKER], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert asker.stdout is not None
    pid, folder = asker.stdout.readline().split()

    asker.kill()
    asker.wait()
    asker.stdout.close()

    eventually(lambda: not alive(int(pid)), saying="the postmaster to leave")
    subprocess.run(["rm", "-rf", folder], check=True)


@pytest.mark.parametrize("postgres_version", [15, 18])
def test_pgbouncer_gives_each_transaction_whatever_connection_is_free(
    database: PostgresDatabase, bouncer: Callable[..., PgBouncer]
) -> None:
    front = bouncer(connections=2)
    clients = [psycopg.connect(front.url(database.name), autocommit=True) for _ in range(6)]

    backends = set()
    for client in clients:
        row = client.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
        assert row is not None
        backends.add(row[0])

    assert len(backends) <= 2
    for client in clients:
        client.close()


@pytest.mark.parametrize("postgres_version", [18])
def test_a_killed_pgbouncer_cuts_every_connection(
    database: PostgresDatabase, bouncer: Callable[..., PgBouncer]
) -> None:
    front = bouncer()
    client = psycopg.connect(front.url(database.name), autocommit=True)

    front.kill()

    with pytest.raises(psycopg.OperationalError):
        client.execute("SELECT 1")
    assert database.server.answers()

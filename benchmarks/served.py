"""A PostgreSQL server for a measurement, of the newest version that is tested, and durable."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.child import measured
from benchmarks.timing import Slice
from tests.servers.postgres import Postgres, programs

VERSION = 18
DURABLE = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "256MB",
    "max_connections": "300",
    "max_wal_size": "2GB",
    "log_line_prefix": "%d ",  # which database: statements of one are counted by it
}

Counted = Callable[[], int]


@contextmanager
def served() -> Iterator[Postgres]:
    """A started server, in a temporary folder of its own. Raises NotInstalled."""
    server = Postgres(VERSION, settings=DURABLE)
    try:
        server.start()
        yield server
    finally:
        server.close()


def program_folder() -> Path:
    """Where the server's programs are, psql among them."""
    return programs(VERSION)


def url_of(server: Postgres, database: str) -> str:
    """How every engine connects alike: by the loopback device."""
    return server.url(database, host="127.0.0.1")


def rate(server: Postgres, program: str, runs: int, each: int) -> Slice:
    """Run a program of this folder on an empty database, and return what it took."""
    name = server.create_database()
    try:
        return Slice(**measured(program, "rate", url_of(server, name), runs, each))
    finally:
        server.drop_database(name)


@contextmanager
def statements_of(server: Postgres, database: str) -> Iterator[Counted]:
    """What counts the statements that a database was sent, by the server's log, since this began."""
    server.execute(f"ALTER DATABASE {database} SET log_statement = 'all'")
    log = next(iter(sorted(server.folder.glob("log-*"), reverse=True)))

    def count() -> int:
        return sum(line.startswith(f"{database} LOG:  ") for line in log.read_text(errors="replace").splitlines())

    yield count
    server.execute(f"ALTER DATABASE {database} RESET log_statement")

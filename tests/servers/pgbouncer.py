"""A real PgBouncer in transaction mode in front of a test server: each transaction may meet another connection."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress

import psycopg

from tests.polling import eventually
from tests.servers.kept import Kept, account, folder_for, free_port, program
from tests.servers.postgres import OWNER, Postgres

HOW = "make servers (the system's package pgbouncer)"
SETTINGS = """\
[databases]
* = host={host} port={to}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 500
auth_type = trust
auth_file = {folder}/users
admin_users = {admin}
"""


class PgBouncer:
    """One PgBouncer, with at most `connections` to each database and user. Others than the owner are named."""

    def __init__(self, server: Postgres, *, connections: int = 4, users: Sequence[str] = ()) -> None:
        who = account()
        self._found = program("pgbouncer", HOW)
        self.folder = folder_for(who)
        self.port = free_port()
        settings = self.folder / "settings.ini"
        settings.write_text(
            SETTINGS.format(
                host=server.folder,
                to=server.port,
                port=self.port,
                connections=connections,
                folder=self.folder,
                admin=OWNER,
            )
        )
        (self.folder / "users").write_text("".join(f'"{user}" ""\n' for user in (OWNER, *users)))
        self._process = Kept(
            [self._found, str(settings)], log=self.folder / "log", ending=signal.SIGTERM, cwd=self.folder, who=who
        )
        eventually(lambda: not self._process.running or self.answers(), saying="PgBouncer to answer")
        assert self._process.running, self._process.said()

    def url(self, database: str, user: str = OWNER) -> str:
        """Return the URL of a database behind it."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def answers(self) -> bool:
        """Whether it takes connections and has a server to pass them to."""
        with suppress(psycopg.OperationalError), psycopg.connect(self.url("postgres"), connect_timeout=2):
            return True
        return False

    def cut(self, database: str) -> None:
        """Cut every connection of a database, on both sides. Who connects to it later gets new ones."""
        with psycopg.connect(self.url("pgbouncer"), autocommit=True) as console:
            for order in ("KILL", "RESUME"):
                console.execute(f"{order} {database}".encode())

    def kill(self) -> None:
        """Kill it; every connection through it is cut."""
        self._process.end(signal.SIGKILL)

    def close(self) -> None:
        """End it and remove its folder."""
        self._process.end()
        shutil.rmtree(self.folder, ignore_errors=True)

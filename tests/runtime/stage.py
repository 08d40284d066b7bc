"""What the runtime's tests share: a store in a file, a clock that a test moves, and asking until it is so."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw
import psycopg

import milepost as mp
from milepost.stores.places import local_of
from milepost.testing.manual_clock import ManualClock

T = TypeVar("T")
PAUSE_S = 0.01
LASTING = "1000d"  # a lease that no leap of a test's clock ends: a worker renews it by its own, now and then
WITHIN_S = 40.0  # what takes a second on a machine of one's own may take many on a loaded one


class Stage:
    """A store in a folder of its own, and how apps are put on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "store.db"
        self.url = f"sqlite:///{self.path}"
        self.local = str(self.path)
        self.clock = ManualClock()

    def app(self, *workflows: mp.Workflow[Any, Any], still: bool = False, **options: Any) -> mp.App:
        """Return an app on this store, under the machine's clock or, with `still`, under the test's own."""
        if still:
            options = {"lease": LASTING, **options, "clock": self.clock}
        return mp.App(self.url, workflows=workflows, **options)

    def rows(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        """Return rows of the store's file, read through a connection of our own."""
        connection = apsw.Connection(str(self.path))
        try:
            connection.set_busy_timeout(5_000)
            return [tuple(row) for row in connection.execute(sql, args).fetchall()]
        finally:
            connection.close()

    def write(self, sql: str, *args: Any) -> None:
        """Change the store's file behind Milepost's back."""
        self.rows(sql, *args)

    def has_table(self, name: str) -> bool:
        """Whether there is a table."""
        return bool(self.rows("SELECT 1 FROM sqlite_schema WHERE name = ?", name))

    def bytes_on_disk(self) -> bytes:
        """Return all bytes of the store's files. Call it while no app is open."""
        return b"".join(path.read_bytes() for path in sorted(self.folder.glob("store.db*")) if path.is_file())


class DatabaseStage(Stage):
    """A store in a database of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        self.url = url
        self.local = local_of(url)

    def rows(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        """Return rows of the database, read through a connection of our own."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(sql.replace("%", "%%").replace("?", "%s").encode(), args)
            return cursor.fetchall() if cursor.description else []

    def has_table(self, name: str) -> bool:
        """Whether there is a table."""
        return self.rows("SELECT to_regclass(?)", name) != [(None,)]

    def bytes_on_disk(self) -> bytes:
        """Return what every column of every table of ours holds."""
        tables = [table for (table,) in self.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        cells = [cell for table in tables for row in self.rows(f"SELECT * FROM {table}") for cell in row]  # noqa: S608
        return b"\n".join(cell if isinstance(cell, bytes) else str(cell).encode() for cell in cells)


class Patience:
    """A time limit inside a segment that is over when the test says so: a clock's would depend on the machine."""

    def __init__(self) -> None:
        self._limit: asyncio.Timeout | None = None

    def limit(self) -> asyncio.Timeout:
        """Return the time limit, to be entered."""
        self._limit = asyncio.timeout(None)
        return self._limit

    def ends(self) -> None:
        """Let it be over now."""
        assert self._limit is not None, "nobody has been patient yet"
        self._limit.reschedule(asyncio.get_running_loop().time())


async def until(ask: Callable[[], Awaitable[T | None]], saying: str = "") -> T:
    """Return the first true answer of `ask`; AssertionError after a while."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + WITHIN_S
    while not (answer := await ask()):
        if loop.time() >= deadline:
            raise AssertionError(f"not within {WITHIN_S} s: {saying or ask}")
        await asyncio.sleep(PAUSE_S)
    return answer


async def status_of(handle: mp.Handle[Any], *wanted: str) -> mp.RunView:
    """Return how a run stands once its status is one of `wanted`."""
    seen: list[mp.RunView] = []

    async def ask() -> mp.RunView | None:
        seen[:] = [await handle.status()]
        return seen[0] if seen[0].status in wanted else None

    try:
        return await until(ask)
    except AssertionError as late:
        raise AssertionError(f"never {wanted}: {seen}") from late


async def parked(handle: mp.Handle[Any], reason: str) -> mp.Waiting:
    """Return what a run waits for, once it is parked for this reason."""
    seen: list[mp.RunView] = []

    async def ask() -> mp.Waiting | None:
        seen[:] = [await handle.status()]
        waiting = seen[0].waiting
        return waiting if seen[0].status == "parked" and waiting is not None and waiting.reason == reason else None

    try:
        return await until(ask)
    except AssertionError as late:
        raise AssertionError(f"never parked for {reason}: {seen}") from late


async def names(app: mp.App, run_id: str) -> list[str]:
    """Return the names of a run's journal entries, in order."""
    return [line.name for line in await app.inspect.journal(run_id)]


async def outcome(app: mp.App, run_id: str, path: str) -> str:
    """Return the outcome of one effect of a run's whole journal."""
    return next(view.outcome for view in await app.inspect.effects(run_id) if view.path == path)


async def has_outcome(app: mp.App, run_id: str, path: str, wanted: str) -> None:
    """Wait until an effect has an outcome."""

    async def ask() -> bool:
        found = [view.outcome for view in await app.inspect.effects(run_id) if view.path == path]
        return found == [wanted]

    await until(ask, f"{path} is {wanted}")


async def has_entry(app: mp.App, run_id: str, name: str, times: int = 1) -> None:
    """Wait until a run's journal holds an entry of this name."""

    async def ask() -> bool:
        return (await names(app, run_id)).count(name) >= times

    await until(ask, f"{times} {name}")

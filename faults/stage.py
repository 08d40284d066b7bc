"""One try of one fault: a folder, an account in the outside world, workers that start and end, and what was seen."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec
import psycopg

import milepost as mp
from faults import strace
from faults.databases import Databases
from faults.desk import Desk
from faults.lives import Ended, Life, Zygote
from faults.strace import Point
from faults.tools import Setup
from faults.zygote import Order
from milepost.app import open_store
from milepost.core import codec
from milepost.core import entries as e
from milepost.errors import NotAStore, StoreMissing
from milepost.stores.api import OpenEffect, Query, RunRow, Store
from milepost.stores.postgres.schema import schema_at
from milepost.testing.check import Applied, Violation, check
from milepost.testing.world import Account, World
from tests.servers.postgres import Postgres
from tests.servers.temporal import TemporalServer

T = TypeVar("T")
SECONDS_MOST = 60
LOOK_S = 0.01
RESTARTS_MOST = 6
NOTES = "SELECT name FROM notes"
HAS_NOTES = "SELECT 1 FROM sqlite_schema WHERE name = 'notes'"


@dataclass
class Try:
    """What one try came to.

    `problems` is empty where all held that must hold; `slow` says that one of them is a wait that took too long, and
    `wrong` that one of them is what the ledgers and the journal say against each other, which no waiting excuses.
    `points` counts the kill points and states that were truly met; `asked` the effects that a person had to settle,
    without `cut`: the irreversible calls that were in flight when their process died or lost its run, which are a
    person's by declaration. `gap` counts what no check without a seal can see.
    """

    problems: list[str] = field(default_factory=list)
    slow: bool = False
    wrong: bool = False
    points: int = 0
    asked: int = 0
    cut: int = 0
    gap: int = 0

    def take(self, beside: Try) -> None:
        """Take over what came of another stage of this try."""
        self.problems += beside.problems
        self.slow |= beside.slow
        self.wrong |= beside.wrong
        self.asked += beside.asked
        self.cut += beside.cut

    def must(self, held: object, what: str) -> bool:
        """Note a problem unless something held; return whether it did."""
        if not held:
            self.problems.append(what)
        return bool(held)

    def met(self, came: object) -> bool:
        """Count a point if it was met; return whether it was."""
        self.points += bool(came)
        return bool(came)


class Stage:
    """Where one try plays. Every process that it starts is ended with it, by its own id."""

    def __init__(self, folder: Path, world: World, zygote: Zygote, databases: Databases, seed: int) -> None:
        self.databases = databases
        self.server: Postgres | None = None
        self.engine: TemporalServer | None = None
        self.folder = folder
        self.seed = seed
        self.chance = random.Random(seed)
        self.result = Try()
        self.folder.mkdir(parents=True)
        self.outside: Account = world.account(folder.name)
        self.setup = Setup(
            world=str(world.folder), account=folder.name, http_port=world.http_port, mail_port=world.mail_port
        )
        self.lives: list[Life] = []
        self.own_url = ""
        self._world = world
        self._zygote = zygote
        self.declare()

    def declare(self, **changes: Any) -> None:
        """Declare the desk anew, for the workers that are started from here on."""
        self.setup = msgspec.structs.replace(self.setup, **changes)
        (self.folder / "setup.json").write_bytes(msgspec.json.encode(self.setup))

    def machine(self) -> Account:
        """Give the workers' machine a wall clock of its own, which is not the outside world's; return who moves it."""
        self.declare(clock=f"{self.folder.name}-machine")
        return self._world.account(self.setup.clock)

    def beside(self, name: str) -> Stage:
        """Return another stage in the same world, with a folder, an account and a store of its own."""
        folder = self.folder.with_name(f"{self.folder.name}-{name}")
        stage = Stage(folder, self._world, self._zygote, self.databases, self.seed)
        if self.server is not None:
            stage.keep_in(self.server)
        if self.engine is not None:
            stage.drive_by(self.engine)
        return stage

    def drive_by(self, engine: TemporalServer) -> None:
        """Have the workers that are started from here on drive what Temporal asks for."""
        self.engine = engine
        self.declare(temporal=engine.target)

    def keep_in(self, server: Postgres, url: str = "") -> str:
        """Keep the store in a new database of a server, reached by `url` with the name put in; return the name."""
        self.server = server
        name = server.create_database()
        schema = schema_at(server.url(name))
        schema.create()
        schema.close()
        self.declare(store=url.format(name) if url else server.url(name))
        self.own_url = server.url(name)
        return name

    def close(self) -> None:
        """End what is left."""
        for life in self.lives:
            life.end()

    # ------------------------------------------------------------ workers

    def start(self, *arguments: str, under: list[str] | None = None, **limits: Any) -> Life:
        """Start a worker, if wanted under strace with these options; it runs on."""
        number = len(self.lives)
        out, err, status = (str(self.folder / f"{number}.{what}") for what in ("out", "err", "status"))
        order = Order(str(self.folder), arguments, out, err, status, **limits)
        life = Life(self._zygote, order, self.folder / f"{number}.trace", under)
        self.lives.append(life)
        return life

    def ended(self, life: Life) -> Ended:
        """Wait for a worker's end."""
        ended = life.wait(SECONDS_MOST)
        if ended is None:
            self.result.slow = True
            self.result.problems.append(f"a worker hung for {SECONDS_MOST} s: {life.where()}")
            life.end()
            ended = life.wait(SECONDS_MOST)
            assert ended is not None, "it was killed"
        return ended

    def work(
        self, flow: str, tool: str = "", *, under: list[str] | None = None, name: str = "x", mode: str = "run",
        **limits: Any,
    ) -> Ended:  # fmt: skip
        """Run a worker until its run ends or rests with a person, or until it dies."""
        return self.ended(self.start(mode, flow, tool, name, under=under, **limits))

    def frozen(self, point: Point, flow: str, tool: str = "") -> Life | None:
        """Start a worker that is stopped (SIGSTOP) at a point; None if it ended without coming there."""
        life = self.start("run", flow, tool, "x", under=point.inject("signal=SIGSTOP", strace.LEAVES))
        self.until(lambda: life.stopped or life.code is not None, "the worker stops, or ends")
        return None if life.code is not None else life

    def finish(self, flow: str, tool: str = "", *, name: str = "x") -> Ended:
        """Start workers until the run has ended, a person settling what only a person can by the outside ledgers."""
        ended = Ended(0, "", "")
        for _ in range(RESTARTS_MOST):
            ended = self.work(flow, tool, name=name)
            if how(ended) != "person" or not self.settle():
                break
        return ended

    def done(self, flow: str, tool: str = "", *, name: str = "x", result: Any = None) -> None:
        """Finish the run, and check that it has its result and that nobody is wrong about the outside world."""
        ended = self.finish(flow, tool, name=name)
        if self.result.must(how(ended) == "done", f"the run ended as {how(ended)} {said(ended).get('why', '')}"):
            got = said(ended)["result"]
            self.result.must(result is None or got == result, f"its result is {got}, and not {result}")
        self.judge("at the end")

    def settle(self) -> int:
        """Play the operator: settle what waits for a person by looking into the outside ledgers; return how many."""
        waiting = [effect for effect in self.open_effects() if effect.person]
        key = self.folder / "keys" / "ann.key"  # where people are trusted by keys, an unsigned word settles nothing
        signed: dict[str, Any] = {"key": key} if self.setup.trust else {"by": "ann"}
        applied = {line.key: line for line in self.outside.lines()}

        async def resolve(app: mp.App) -> None:
            for effect in waiting:
                views = (await app.inspect.detail(effect.run_id)).effects
                (named,) = [view.key for view in views if view.step == effect.step]
                line = applied.get(named)
                value = f"{line.tool}-{line.name}-{line.seq}" if line is not None else ""
                finding = mp.did_not_happen() if line is None else mp.happened(value)
                await app.resolve(effect.run_id, effect.path, finding, why="looked into the ledger", **signed)

        for effect in waiting:
            cut = effect.effect == "irreversible" and any(
                isinstance(entry, e.EffectUnknown) and entry.step == effect.step and (entry.died or not entry.quiet_at)
                for entry in self.tail(effect.run_id)
            )
            self.result.cut += cut
            self.result.asked += not cut
        self.client(resolve)
        return len(waiting)

    # ------------------------------------------------------------ what the record says

    def client(self, do: Callable[[mp.App], Awaitable[T]]) -> T:
        """Do something through an app that drives nothing."""

        async def doing() -> T:
            async with Desk(msgspec.structs.replace(self.setup, machine_clock=False)).app(self.url()).client() as app:
                return await do(app)

        return asyncio.run(doing())

    def url(self, folder: Path | None = None) -> str:
        """Return the URL of the store, as it is reached by who watches."""
        if self.server is not None:
            return self.own_url
        return f"sqlite:///{folder or self.folder}/store.db"

    def ask(self, ask: Callable[[Store], Awaitable[T]], folder: Path | None = None) -> T:
        """Ask the store something."""

        async def asking() -> T:
            store = open_store(self.url(folder))
            try:
                return await ask(store)
            finally:
                store.close()

        return asyncio.run(asking())

    def open_effects(self) -> list[OpenEffect]:
        """Return the effects that are not settled."""
        return self.ask(lambda store: store.effects())

    def runs(self) -> list[RunRow]:
        """Return every run, none before there is a store."""
        if self.server is None and not (self.folder / "store.db").exists():
            return []
        return self.ask(lambda store: store.runs(Query(limit=10_000)))

    def all_entries(self) -> list[e.Entry]:
        """Return the entries of all runs, the oldest run first; none where there is no store yet."""

        async def read(store: Store) -> list[e.Entry]:
            runs = await store.runs(Query(limit=10_000))
            chains = [await store.chain(run.id) for run in reversed(runs)]
            return [codec.decode(stored.body) for _, stored_, _ in chains for stored in stored_]

        with self.copied() as copy:
            try:
                return self.ask(read, copy)
            except StoreMissing:
                return []
            except NotAStore as error:
                if "it is empty" in str(error):
                    return []
                raise

    def tail(self, run_id: str) -> list[e.Entry]:
        """Return the entries of a run from its latest boundary on."""
        stored = self.ask(lambda store: store.tail(run_id)).entries
        return [codec.decode(one.body) for one in stored]

    def count(self, kind: type[e.Entry]) -> int:
        """Return how many entries of a kind there are."""
        return sum(isinstance(entry, kind) for entry in self.all_entries())

    @contextmanager
    def copied(self) -> Iterator[Path]:
        """Copy the store as a crash left it: to read a log recovers it, and that is the next worker's work."""
        if self.server is not None:  # which shows what is committed, and recovers nothing when it is asked
            yield self.folder
            return
        copy = self.folder.with_name(self.folder.name + "-copy")
        copy.mkdir()
        try:
            for path in self.folder.glob("store.db*"):
                if path.is_file() and not path.name.endswith("-shm"):
                    with suppress(FileNotFoundError):  # a rollback journal goes away while a store is being made
                        shutil.copyfile(path, copy / path.name)
            yield copy
        finally:
            shutil.rmtree(copy)

    def violations(self) -> list[Violation]:
        """Compare the journal with the outside ledgers."""
        lines = self.outside.applied()
        with self.copied() as copy:
            try:
                return self.ask(lambda store: check(store, [*lines, *self.notes(copy)]), copy)
            except (StoreMissing, NotAStore) as error:
                if isinstance(error, NotAStore) and "it is empty" not in str(error):
                    raise
                return [Violation("unrecorded", "", line.tool, "there is no store yet") for line in lines]

    def judge(self, when: str) -> None:
        """Note whatever must never be as a problem."""
        for violation in self.violations():
            self.result.wrong = True
            self.result.problems.append(f"{when}: {violation}")

    def notes(self, folder: Path) -> list[Applied]:
        """Return what the transactional tool applied, from the store itself."""
        if self.server is None:
            return notes(folder)
        with psycopg.connect(self.own_url) as connection:
            if connection.execute("SELECT to_regclass('notes') IS NULL").fetchone() == (True,):
                return []
            return [Applied("note", args={"name": name}) for (name,) in connection.execute(NOTES)]

    # ------------------------------------------------------------ points, and waiting

    def points(self, calls: tuple[str, ...], flow: str, tool: str = "", *, name: str = "x") -> list[Point]:
        """Run a worker undisturbed and return the calls it made."""
        ended = self.work(flow, tool, under=strace.traced(calls), name=name)
        self.result.must(ended.code == 0, f"the undisturbed run failed: {how(ended)}")
        return strace.points(self.folder / f"{len(self.lives) - 1}.trace")

    def killed(self, point: Point, flow: str, tool: str = "", *, name: str = "x") -> bool:
        """Run a worker that is killed at a point; return whether it came that far."""
        ended = self.work(flow, tool, under=point.inject("signal=SIGKILL"), name=name)
        if not ended.killed:
            self.result.must(ended.code == 0, f"a worker that was not killed failed: {how(ended)}")
        return ended.killed

    def until(self, holds: Callable[[], T], what: str, *, within_s: float = 40.0) -> T:
        """Wait for something; a problem if it does not come."""
        deadline = time.monotonic() + within_s
        while not (answer := holds()):
            if time.monotonic() > deadline:
                doing = "".join(f"\n{life.pid}: {life.where()}" for life in self.lives if life.code is None)
                self.result.slow = True
                self.result.problems.append(f"not within {within_s:.0f} s: {what}{doing}")
                break
            time.sleep(LOOK_S)
        return answer


def said(ended: Ended) -> dict[str, Any]:
    """Return what a worker's run came to; nothing if it did not come so far."""
    lines = ended.out.splitlines()
    told: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    return told


def how(ended: Ended) -> str:
    """Return what a worker's run came to, in a word."""
    return str(said(ended).get("ended", f"code {ended.code}: {ended.err.strip()[-300:]}"))


def plans(told: list[e.Entry]) -> list[e.EffectPlanned]:
    """Return the plans of all effects, in order."""
    found = [entry.plan if isinstance(entry, e.EffectStarted) else entry for entry in told]
    return [plan for plan in found if isinstance(plan, e.EffectPlanned)]


def notes(folder: Path) -> list[Applied]:
    """Return what the transactional tool applied, from a store's own file."""
    connection = apsw.Connection(str(folder / "store.db"))
    try:
        if not list(connection.execute(HAS_NOTES)):
            return []
        return [Applied("note", args={"name": name}) for (name,) in connection.execute(NOTES)]
    finally:
        connection.close()

"""One soak: what is done to the fleet, and when.

The time of the work is divided: the database is stopped at once after 30 % of it, version 2 is deployed after half of
it, and the first process of the database is killed after 70 %. Worker 0 is never killed, so that its memory can be
looked at over a long life; of the others one is killed every few seconds. Then nothing is started or broken any more,
and every run must come to its end.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import psycopg

from faults.tools import Setup
from milepost.app import open_store
from milepost.testing.world import Account, Rules, World
from soak.processes import Life, Processes
from soak.scene import DESK, NEW, OLD, SLOW, Orders, Scene, write
from soak.watching import Watch
from tests.servers.postgres import Postgres

WORKERS = 4
LOOK_S = 0.5
EVERYBODY = ("default", SLOW)
LAST = WORKERS - 1  # who serves the desk as well
SETTLES_WITHIN_S = 120.0
STILL_S = 4.0
TICKED_S, TICKS_S = 3, 45  # of a minute: a tick is begun by then, and the next one is not near
AWAY_S = 60.0  # so long after a restart of the database a worker may have left by itself
SERVER = {
    "autovacuum_naptime": "2s",
    "shared_buffers": "64MB",
    "max_connections": "60",
    "max_prepared_transactions": "4",
}
NOTES = "CREATE TABLE notes (number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name TEXT NOT NULL)"


class Soak:
    """One soak, from its start until nothing is left to do."""

    def __init__(self, folder: Path, world: World, server: Postgres, seed: int, work_s: float) -> None:
        self.chance = random.Random(seed)
        self.work_s = work_s
        self.server = server
        self.database = server.create_database()
        setup = Setup(
            world=str(world.folder), account="soak", http_port=world.http_port, mail_port=0, visible_within="2s",
            hears_s=1.0, timeout="4s",
        )  # fmt: skip
        self.scene = Scene(str(folder), server.url(self.database, host="127.0.0.1"), seed, setup)
        self.outside: Account = setup.outside
        self.outside.obey(Rules(seed=seed))
        write(folder / "scene.json", self.scene)
        local = folder / "local"
        local.mkdir(mode=0o700)
        self.local = local
        self.processes = Processes(folder / "scene.json", local)
        self.watch = Watch(self.scene.store)
        self.workers: list[Life] = []
        self.versions = [OLD] * WORKERS
        self.restarts: list[float] = []
        self.left: list[str] = []  # workers that left by themselves, and had no reason to
        self.left_near = 0
        self.kills = self.drains = 0
        self.stranded = ""
        self.idle_entries = 0
        self.orders = Orders()
        self._next_kill = 0.0
        self._round = 0

    # ------------------------------------------------------------ all of it

    def play(self) -> None:
        """Play it. What was found is in here and in the store."""
        self.prepare()
        self.watch.quarter()
        began = time.monotonic()
        events: list[tuple[float, Callable[[], None]]] = [
            (0.25, self.watch.quarter), (0.3, self.stop_database), (0.5, self.watch.quarter), (0.5, self.deploy),
            (0.7, self.kill_database), (0.75, self.watch.quarter),
        ]  # fmt: skip
        self._plan_kill()
        for part, do in events:
            self._until(began + part * self.work_s)
            do()
        self._until(began + self.work_s)
        self.settle()

    def prepare(self) -> None:
        """Make the store, and start everybody."""
        open_store(self.scene.store, create=True).close()
        self.server.execute(NOTES, self.database)
        self.order(Orders())
        self.workers = [self._worker(number) for number in range(WORKERS)]
        self.people = self.processes.people(OLD)
        deadline = time.monotonic() + SETTLES_WITHIN_S
        while not self.scene.told.exists() and time.monotonic() < deadline:
            self.tick(kills=False)

    def order(self, orders: Orders) -> None:
        """Tell the people what to do."""
        self._round += 1
        self.orders = msgspec.structs.replace(orders, round=self._round)
        write(self.scene.orders, self.orders)

    def _worker(self, number: int) -> Life:
        queues = (*EVERYBODY, DESK) if number == LAST else EVERYBODY
        return self.processes.worker(f"worker-{number}", self.versions[number], queues)

    # ------------------------------------------------------------ while it works

    def _until(self, moment: float) -> None:
        while time.monotonic() < moment:
            self.tick(kills=True)

    def tick(self, *, kills: bool) -> None:
        """Look at everything, start again who is gone, and kill somebody when it is time."""
        self._progress()
        for number, life in enumerate(self.workers):
            life.look()
            if not life.lives:
                self._note_left(life)
                self.workers[number] = self._worker(number)
        if not self.people.lives:
            self.left.append(f"the people left with {self.people.popen.returncode}: {self.people.said()}")
            self.people = self.processes.people(self.people.version)
        self.watch.look(self.lately)
        if kills and time.monotonic() > self._next_kill:
            number = self.chance.randrange(1, WORKERS)
            self.workers[number].kill()
            self.kills += 1
            self.workers[number] = self._worker(number)
            self._plan_kill()
        time.sleep(LOOK_S)

    @property
    def lately(self) -> int:
        """How many processes may have connections: those that live, and those that a moment ago did."""
        now = time.monotonic()
        return sum(life.lives or now - life.ended < 3 for life in self.processes.all)

    def _plan_kill(self) -> None:
        self._next_kill = time.monotonic() + self.chance.uniform(2.5, 6.0)

    def _note_left(self, life: Life) -> None:
        life.ended = life.ended or time.monotonic()
        if self.restarts and life.ended - self.restarts[-1] < AWAY_S:
            self.left_near += 1
        else:
            self.left.append(f"{life.name} left with {life.popen.returncode}: {life.said()}")

    def _progress(self) -> None:
        if sys.stderr.isatty():
            at = time.monotonic() - self.watch.began
            told = f"{at:.0f} s, {self.kills} kills, {len(self.restarts)} restarts"
            print(f"\r\x1b[K{told}", end="", file=sys.stderr, flush=True)

    # ------------------------------------------------------------ what is done to it

    def stop_database(self) -> None:
        """Stop the server at once, and start it again."""
        self.restarts.append(time.monotonic())
        self.server.stop_immediately()
        self.server.start()

    def kill_database(self) -> None:
        """Kill the server's first process, and start it again."""
        self.restarts.append(time.monotonic())
        self.server.kill()
        self.server.start()

    def deploy(self) -> None:
        """Replace version 1 by version 2, a worker after the other; last the one that serves the desk.

        Its successor migrates what waits at boundaries. So it goes only once `milepost check` says of the new code that
        no run would be stranded: nothing new is begun meanwhile, and what the desk has begun gets the money and calls
        that it waits for, and comes to a boundary.
        """
        self.order(Orders(signals=False))  # so that some of them wait
        for number in range(LAST):
            self._replace(number)
        self.order(Orders(starts=False, signals=False, plenty=True))
        self._followed()
        deadline = time.monotonic() + SETTLES_WITHIN_S
        while (checked := self.processes.run(NEW, "milepost", "check", "--app", "soak.served:app")).returncode:
            if time.monotonic() > deadline:
                self.stranded = checked.stdout + checked.stderr
                break
            self.tick(kills=False)
        self._replace(LAST)
        self.people.drain()
        self.order(Orders())
        self.people = self.processes.people(NEW)
        self._plan_kill()

    def _replace(self, number: int) -> None:
        self._drain(self.workers[number])
        self.versions[number] = NEW
        self.workers[number] = self._worker(number)
        self.tick(kills=False)

    def _drain(self, life: Life) -> None:
        life.look()
        code = life.drain()
        self.drains += 1
        if code:
            self.left.append(f"{life.name} was told to leave, and ended with {code}: {life.said()}")

    def _followed(self) -> None:
        seen = self.scene.orders.parent / f"followed-{self.people.version}-{self.orders.round}"
        deadline = time.monotonic() + SETTLES_WITHIN_S
        while not seen.exists() and time.monotonic() < deadline:
            self.tick(kills=False)

    # ------------------------------------------------------------ its end

    def settle(self) -> None:
        """Start and break nothing any more, until every run has ended; then let everybody go."""
        self.order(Orders(starts=False, trouble=False))
        self._followed()
        deadline = time.monotonic() + SETTLES_WITHIN_S
        while self._unended() and time.monotonic() < deadline:
            self.tick(kills=False)
        self._watch_idle()
        self.watch.quarter()
        self._between_ticks()
        self.people.drain()
        for life in self.workers:
            self._drain(life)

    def _unended(self) -> bool:
        with suppress(psycopg.Error):
            return bool(self.watch.ask("unended") or self.watch.one("open_effects"))
        return True

    def _between_ticks(self) -> None:
        """Wait for a moment to let go in: the schedule starts a run each minute, and none must be cut short by that."""
        deadline = time.monotonic() + SETTLES_WITHIN_S
        while (self._unended() or not TICKED_S < time.time() % 60 < TICKS_S) and time.monotonic() < deadline:
            self.tick(kills=False)

    def _watch_idle(self) -> None:
        """Count what is written while there is nothing to do."""
        before = self.watch.one("written")
        until = time.monotonic() + STILL_S
        while time.monotonic() < until:
            self.tick(kills=False)
        self.idle_entries = self.watch.one("written") - before

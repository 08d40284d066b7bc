"""`python -m soak.people VERSION`: the clients that start runs, and the operator, in a process of their own.

They do what `orders.json` says until SIGTERM, and ride out a database that restarts as any client does: what was not
acknowledged is asked for again, under the same key.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

import milepost as mp
from milepost.stores.api import ApprovalRow, OpenEffect, Query, RunRow, Store
from soak.scene import NEW, POOL, Orders, Scene, read
from soak.served import BUDGET, SHOP, made

LOOK_S = 0.4
BUSY = 60  # so many runs that could move are enough
QUIET_MS = 4_000  # after so long a call of a dead process has landed, or never will
STEP = 60  # by what the shared budget is raised: less than what is spent until the next time, so that runs wait for it
PLENTY = 10_000
RAISED_EVERY_S = 4.0
AWAY_EVERY_S, AWAY_S = 17.0, 4.0
LISTENING = frozenset({"listener", "undone", "desk"})
UNPROBED = frozenset({"tool:ship", "tool:press"})
MIX = {
    "quick": 30, "sleeper": 10, "listener": 8, "asked": 7, "pressed": 5, "stocked": 8, "family": 3, "slow": 10,
    "undone": 5, "desk": 8, "parcel": 6,
}  # fmt: skip
log = logging.getLogger("soak")


class People:
    """Whoever starts, answers, settles and stops runs."""

    def __init__(self, scene: Scene, version: str) -> None:
        self.scene = scene
        self.version = version
        self.app, self.flows = made(scene, version)
        self.chance = random.Random(f"{scene.seed}/{version}")
        self.orders = Orders()
        self.started = 0
        self.ceiling = 0
        self.raised_at = self.away_at = 0.0
        self.rewound: set[str] = set()
        self.retried: set[str] = set()
        self.stop = asyncio.Event()

    @property
    def store(self) -> Store:
        """The store of the open app."""
        return self.app.inspect._store  # noqa: SLF001  what people look at is no public surface

    async def work(self) -> None:
        """Start and answer until SIGTERM, over as many apps as the restarts of the database take."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stop.set)
        while not self.stop.is_set():
            with suppress(mp.StoreError):  # the server is away for long, or a commit of ours is unknown: open anew
                async with self.app.client():
                    await self._open()
            if not self.stop.is_set():
                await asyncio.sleep(LOOK_S)

    async def _open(self) -> None:
        while not self.stop.is_set():
            self._listen()
            try:
                await self._start_some()
                await self._answer()
            except (mp.StoreFailed, mp.StoreMissing):
                raise
            except mp.StoreError as error:
                log.warning("%s", error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), LOOK_S)

    def _listen(self) -> None:
        orders = msgspec.json.decode(self.scene.orders.read_bytes(), type=Orders)
        if orders != self.orders or orders.round == 0:
            self.orders = orders
        (self.scene.orders.parent / f"followed-{self.version}-{orders.round}").touch()

    # ------------------------------------------------------------ starting

    async def _start_some(self) -> None:
        if not self.orders.starts:
            return
        counts = await self.store.counts()
        room = BUSY - counts.get("ready", 0) - counts.get("running", 0)
        for _ in range(min(8, room)):
            (name,) = self.chance.choices(list(MIX), list(MIX.values()))
            await self._start(name)

    async def _start(self, name: str) -> None:
        key = f"{name}-{self.version}-{self.started}"
        self.started += 1
        group = self.chance.choice(["ann", "bob", "cyd", "dan"])
        priority = self.chance.randrange(3)
        while not self.stop.is_set():
            try:
                flow: mp.Workflow[str, Any] = getattr(self.flows, name)
                handle = await self.app.start(
                    flow, key, key=key, authority=SHOP, budget=BUDGET, group=group, priority=priority
                )
            except mp.StoreFailed:
                self.started -= 1  # whether it stands is unknown: once the app is open again the key finds out
                raise
            except mp.StoreError as error:
                log.warning("start of %s: %s", key, error)
                await asyncio.sleep(LOOK_S)
            else:
                with self.scene.told.open("a") as told:
                    told.write(f"{handle.id} {key}\n")
                return

    # ------------------------------------------------------------ answering

    async def _answer(self) -> None:
        await self._budget()
        self._weather()
        await self._reset()
        for approval in await self.store.approvals(verdict="asked"):
            await self._decide(approval)
        await self._settle([effect for effect in await self.store.effects() if self._is_ours(effect)])
        for row in await self.store.runs(Query(status="parked", limit=500)):
            if row.reason == "signal":
                await self._signal(row)
        for row in await self.store.runs(Query(status="failed", limit=100)):
            await self._retry(row)
        if self.orders.trouble:
            await self._trouble()

    def _is_ours(self, effect: OpenEffect) -> bool:
        """Say whether an effect waits for a person, or was left behind by a run that was killed."""
        quiet = time.time_ns() // 1_000_000 - (effect.started_at or 0) > QUIET_MS
        return quiet and effect.outcome == "unknown"

    async def _budget(self) -> None:
        now = time.monotonic()
        if now - self.raised_at < RAISED_EVERY_S:
            return
        standing = [view for view in await self.app.budgets() if view.pool == POOL and view.unit == "usd"]
        spent = int(sum(view.spent for view in standing))
        scarce = self.orders.trouble and not self.orders.plenty
        until = spent + (STEP if scarce else PLENTY)
        if until != self.ceiling:
            await self.app.set_budget(POOL, {"usd": until}, by="ann", why=f"{spent} are spent")
        self.raised_at, self.ceiling = now, until

    def _weather(self) -> None:
        now = time.monotonic()
        away = self.orders.trouble and now - self.away_at > AWAY_EVERY_S
        if away:
            self.away_at = now
            self.scene.outage.touch()
        elif now - self.away_at > AWAY_S:
            self.scene.outage.unlink(missing_ok=True)

    async def _reset(self) -> None:
        """Reset the breakers of tools whose calls may not probe: nobody but a person does."""
        for one in await self.app.switches():
            if one.switch.kind == "breaker" and one.switch.scope in UNPROBED:
                await tried(partial(self.app.thaw, one.switch.scope, by="ann", why="the provider answers"))

    async def _decide(self, approval: ApprovalRow) -> None:
        answer = self.app.deny if self.chance.random() < 0.2 else self.app.approve
        await tried(lambda: answer(approval.id, by="ann", why="it looks so"))

    async def _settle(self, effects: list[OpenEffect]) -> None:
        """Settle what only a person can, by looking into the outside ledger."""
        if not effects:
            return
        applied = {line.key: line for line in self.scene.setup.outside.lines()}
        for effect in effects:
            row = await self.store.run(effect.run_id)
            if effect.person is None and row.status != "killed":
                continue  # its reconciler asks by itself
            views = (await self.app.inspect.detail(effect.run_id)).effects
            for key in [view.key for view in views if view.step == effect.step]:
                line = applied.get(key)
                found = f"{line.tool}-{line.name}-{line.seq}" if line is not None else ""
                finding = mp.did_not_happen() if line is None else mp.happened(found)
                await tried(partial(self.app.resolve, effect.run_id, effect.path, finding, by="ann", why="the ledger"))

    async def _signal(self, row: RunRow) -> None:
        if row.workflow not in LISTENING or (row.workflow == "desk" and not self.orders.signals):
            return
        waited = time.time_ns() // 1_000_000 - row.changed_at
        if row.workflow == "undone" and row.id not in self.rewound and self.chance.random() < 0.3:
            self.rewound.add(row.id)
            await tried(lambda: self.app.rewind(row.id, to="take", by="ann", why="once more"))
        elif waited > 3_000 or self.chance.random() < 0.2 or not self.orders.trouble:
            number = f"go-{row.id}-{row.seq}"
            await tried(lambda: self.app.send(row.id, "go", 7, id=number, by="ann"))

    async def _retry(self, row: RunRow) -> None:
        if row.id not in self.retried and row.workflow == "stocked":
            self.retried.add(row.id)
            await tried(lambda: self.app.retry(row.id, by="ann", why="the provider is back"))

    async def _trouble(self) -> None:
        """Cancel or kill a run now and then."""
        if self.chance.random() > 0.5:
            return
        status = self.chance.choice(["running", "parked", "ready"])
        rows = [row for row in await self.store.runs(Query(status=status, limit=100)) if row.workflow != "tick"]
        if rows:
            row = self.chance.choice(rows)
            stop = self.app.kill if self.chance.random() < 0.5 else self.app.cancel
            await tried(lambda: stop(row.id, why="by chance", by="ann"))


async def tried(do: Callable[[], Awaitable[object]]) -> None:
    """Do what a person does; that the run has moved on meanwhile is no news. Raises StoreError."""
    try:
        await do()
    except mp.StoreError:
        raise
    except mp.MilepostError as error:
        log.info("%s", error)


def main() -> None:
    """Work."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    version = sys.argv[1] if len(sys.argv) > 1 else NEW
    asyncio.run(People(read(), version).work())


if __name__ == "__main__":
    main()

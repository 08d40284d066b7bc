"""How an App attaches to runs whose control flow lives in a host, and how long it is open for that."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from weakref import WeakSet

from milepost.core.authority import Authority
from milepost.core.duration import Duration, parse_ms
from milepost.definitions.call import amounts
from milepost.definitions.run import AttachedRun
from milepost.definitions.tools import Cost
from milepost.errors import InvalidDeclaration
from milepost.runtime.attached import attach, detach
from milepost.runtime.clock import Clock
from milepost.runtime.engine import Engine
from milepost.runtime.sharing import Shared


class Attaching(ABC):
    """The attached runs of an App. Where it is not open, it is while any of them is attached."""

    _engine: Engine | None

    def __init__(self) -> None:
        self._guests = Shared(self._as_guest)
        self._orderly: WeakSet[asyncio.AbstractEventLoop] = WeakSet()

    @abstractmethod
    def _need_engine(self) -> Engine: ...

    @abstractmethod
    async def _open(self, *, drives: bool) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop in which this app is open, None while it is not."""
        return None if self._engine is None else self._engine.loop

    @property
    def clock(self) -> Clock:
        """The clock that this app goes by. It has to be open."""
        return self._need_engine().clock

    @asynccontextmanager
    async def attach(
        self, *, key: str, authority: Authority | None = None, budget: Cost | None = None, linger: Duration = "0s"
    ) -> AsyncIterator[AttachedRun]:
        """Open the attached run that `key` names, or begin it, and hold it while the block runs.

        Opens the app if it is not open, until nobody is attached any more. `linger` is for a host that attaches for
        every single call: for so long, and no longer than two seconds in all, the run stays held after the block, so
        that the next call under this key need not take it again. Another process gets it all the same; `leave` gives it
        back at once. Nothing lingers where no host has opened the app, as nothing tells when such a loop ends (but
        `leaves_before`). Raises RunHeld while another process, or another block of this one, holds it;
        InvalidDeclaration where the app is open in another event loop.
        """
        linger_s = parse_ms(linger) / 1000
        if self.loop is not asyncio.get_running_loop():
            await self._alone()
        if self.loop not in {None, asyncio.get_running_loop()}:
            raise InvalidDeclaration("this app is open in another event loop: attach there, or make a second App")
        if not self.hosted and asyncio.get_running_loop() not in self._orderly:
            linger_s = 0.0
        async with nullcontext() if self.hosted else self._guests.use(linger_s):
            engine = self._need_engine()
            granted = (authority or Authority("")).granted(engine.clock.now())
            run = await attach(engine, key, granted, amounts(budget or {}, "budget"))
            try:
                yield run
            finally:
                await detach(run, key, linger_s)

    def leaves_before(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hear that `leave` is awaited in a loop before it ends: then runs may linger there, and the app stay open."""
        self._orderly.add(loop)

    async def leave(self) -> None:
        """Give back, now, the runs that linger; close the app if it is open for them alone. From any event loop."""
        loop = self.loop
        if loop is asyncio.get_running_loop():
            await self._need_engine().lingering.leave()
            await self._guests.leave()
        elif loop is not None and loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.leave(), loop))

    @property
    def hosted(self) -> bool:
        """Whether a host has opened this app: it is not open for attached runs alone."""
        return self._engine is not None and not self._guests.in_use

    async def _alone(self) -> None:
        """Let go of what lingers before this app is opened, or attached to, from somewhere else."""
        if self._guests.lingers:
            await self.leave()

    @asynccontextmanager
    async def _as_guest(self) -> AsyncIterator[None]:
        await self._open(drives=True)
        try:
            yield
        finally:
            await self._close()

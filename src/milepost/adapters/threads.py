"""The attached runs of one app, by the host's own key: its thread, its session, its conversation.

Frameworks call tools from many places at once: a node's tools in parallel, two requests of one thread, threads of a
pool. A run is held by one host at a time, so inside one process they share the claim: the first who comes attaches, the
last one who leaves lets go. Another process that wants the same key is told who holds it (RunHeld).

Code that awaits uses `attached`, or `attempt`. Code that does not (a script, or a framework's synchronous path, which
may call from several threads) uses `sync`: the work is done in the loop in which the app is open, or else in one that
belongs to this object, in a thread of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import wait
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from typing import Any, TypeVar

from milepost.adapters.foreign import Send, through
from milepost.app import App
from milepost.core.authority import Authority
from milepost.core.duration import Duration, parse_ms
from milepost.definitions.call import Outcome
from milepost.definitions.run import AttachedRun
from milepost.definitions.tools import Cost, Tool
from milepost.errors import InvalidDeclaration, MilepostError, Waiting
from milepost.runtime.sharing import Shared

R = TypeVar("R")
PATIENCE = "5s"
LINGER = "1s"
LEAVE_S = 10.0
GONE_S = 1.0  # a loop that was closed answers nobody: it is looked at now and then
CLOSED = (
    "the event loop in which this app was open is closed, and never came to this call: make it while the app is open"
)
FORKED = (
    "this app was used before this process was forked, and threads do not come along: make a new App, and what uses it"
)


class Threads:
    """Attached runs by key. Users of one key inside this process share one claim; the last to leave lets go.

    `authority` and `budget` are those that a run begins with. `patience` is how long `attempt` waits in place for what
    moves by itself (a retry, a resend, a reconciler that is asked again) before it says Waiting. `linger` is for a host
    that comes for every single call: how long a run stays held after its last user, for the next one (`App.attach`).
    It does so where the host has opened the app, or uses `sync`: else nobody could tell when the host's loop ends.
    """

    def __init__(
        self,
        app: App,
        *,
        authority: Authority | None = None,
        budget: Cost | None = None,
        patience: Duration = PATIENCE,
        linger: Duration = "0s",
    ) -> None:
        self.app = app
        self._linger = linger
        self._authority = authority
        self._budget = budget
        self._patience_s = parse_ms(patience) / 1000
        self._held: dict[str, Shared[AttachedRun]] = {}
        self._home: asyncio.AbstractEventLoop | None = None  # where it is used now
        self._users = 0
        self._process = 0  # that it was first used in, from plain threads
        self._own: asyncio.AbstractEventLoop | None = None
        self._turning: threading.Thread | None = None
        self._guard = threading.Lock()

    # ------------------------------------------------------------ for code that awaits

    @asynccontextmanager
    async def attached(self, key: str) -> AsyncIterator[AttachedRun]:
        """Hold the run that `key` names while the block runs, together with whoever else is in such a block.

        Raises RunHeld while another process holds it, and what attaching raises besides, to each who waits for it;
        InvalidDeclaration where the app is open in another event loop.
        """
        with self._guard:
            loop = asyncio.get_running_loop()
            if self._home not in {None, loop}:
                raise InvalidDeclaration("this app is open in another event loop: attach there, or make a second App")
            self._home = loop
            self._users += 1
        shared = self._held.get(key)
        if shared is None:
            shared = self._held[key] = Shared(lambda: self._attach(key))
        try:
            async with shared.use() as run:
                yield run
        finally:
            if not shared.in_use and self._held.get(key) is shared:
                del self._held[key]
            with self._guard:
                self._users -= 1
                if self._users == 0:
                    self._home = None

    def _attach(self, key: str) -> AbstractAsyncContextManager[AttachedRun]:
        return self.app.attach(key=key, authority=self._authority, budget=self._budget, linger=self._linger)

    async def attempt(
        self, key: str, id: str, tool: Tool[..., Any], arguments: Mapping[str, Any] | str, *, send: Send | None = None
    ) -> Outcome[Any]:
        """Attempt one call, with arguments as a model made them, under the host's id of it.

        `send` is the framework's own handler of this call, for a tool made by `foreign`. Raises InvalidArguments,
        whose `for_model()` is what to tell the model, before anything is recorded; and what `attached` raises.
        """
        given = tool.arguments.from_json(arguments).named()
        async with self.attached(key) as run:
            with nullcontext() if send is None else through(tool, send, given):
                return await self._patiently(run, id, tool, given)

    async def _patiently(
        self, run: AttachedRun, id_: str, tool: Tool[..., Any], given: Mapping[str, Any]
    ) -> Outcome[Any]:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        while True:
            outcome: Outcome[Any] = await run.attempt(id_, tool, **given)
            if not isinstance(outcome, Waiting) or outcome.until is None or outcome.ask:
                return outcome
            pause = outcome.until.timestamp() - self.app.clock.now() / 1000
            if loop.time() + pause > until:
                return outcome
            await asyncio.sleep(max(0.0, pause) + 0.001)

    # ------------------------------------------------------------ for code that does not

    def sync(self, work: Callable[[], Awaitable[R]]) -> R:
        """Do `work()` in the loop of the app, or in one of our own, from a thread without one; return what it returns.

            outcome = threads.sync(lambda: threads.attempt(key, call_id, tool, arguments, send=handler))

        Several threads may do so at once. It takes the context variables of the caller along. Interrupted (Ctrl-C) it
        cancels the work, and waits a moment for what is recorded of that. Raises what `work` raises; InvalidDeclaration
        in the loop itself, where only `await` does, where that loop was closed before it came to this, and in a process
        that was forked from one which used this.
        """
        self._process = self._process or os.getpid()
        if self._process != os.getpid():  # its loop does not turn here
            raise InvalidDeclaration(FORKED)
        loop = self.app.loop or self._home or self._own_loop()
        with suppress(RuntimeError):
            if asyncio.get_running_loop() is loop:
                raise InvalidDeclaration("this is the event loop of the app itself, which would wait for itself: await")
        _still_there(loop)
        ended = threading.Event()

        async def working() -> R:
            try:
                return await work()
            finally:
                ended.set()

        going = working()
        future = asyncio.run_coroutine_threadsafe(going, loop)
        try:
            while not wait([future], GONE_S).done:
                _still_there(loop, going)
            return future.result()
        except BaseException:
            if future.cancel() and not loop.is_closed():
                ended.wait(LEAVE_S)
            raise

    def close(self) -> None:
        """End the loop of our own, if there is one and nobody uses it, and give back what lingers there.

        A process that ends in good order does this by itself.
        """
        with self._guard:
            own, self._own = self._own, None
            turning, self._turning = self._turning, None
        if own is not None and turning is not None:
            atexit.unregister(self.close)
            own.call_soon_threadsafe(own.stop)
            if turning is not threading.current_thread():
                turning.join(LEAVE_S)

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        with self._guard:
            if self._own is None:
                self._own = asyncio.new_event_loop()
                self.app.leaves_before(self._own)
                turns = (self._own, self.app)
                self._turning = threading.Thread(target=_turn, args=turns, name="milepost-threads", daemon=True)
                self._turning.start()
                atexit.register(self.close)
            return self._own


def _turn(loop: asyncio.AbstractEventLoop, app: App) -> None:
    """Let a loop turn until it is stopped; then give back what lingers there, and close it."""
    asyncio.set_event_loop(loop)
    try:
        while _interrupted(loop):
            pass
    finally:
        with suppress(MilepostError, RuntimeError):  # at the end of a process no thread begins any more
            loop.run_until_complete(app.leave())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _still_there(loop: asyncio.AbstractEventLoop, going: Coroutine[Any, Any, Any] | None = None) -> None:
    """Raise InvalidDeclaration where a loop is closed; what it should have done is given up."""
    if loop.is_closed():
        if going is not None:
            with suppress(RuntimeError):  # it was begun, and ended as its loop did
                going.close()
        raise InvalidDeclaration(CLOSED)


def _interrupted(loop: asyncio.AbstractEventLoop) -> bool:
    """Let a loop turn; return whether a tool ended it, and not `close`.

    asyncio gives what a task raised to end the process (SystemExit, Ctrl-C) to whoever awaits the task, and raises it
    out of the loop as well. Who waits in a thread has it then, and the calls of other threads go on.
    """
    try:
        loop.run_forever()
    except (SystemExit, KeyboardInterrupt):
        return True
    return False

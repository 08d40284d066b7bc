"""Daemon threads for `def` tools. A thread that hangs must not keep the process alive; what it returns late is kept.

The standard pool joins its threads when the interpreter ends, so a tool that never returns would make a worker that
never exits.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any

THREADS_MAX = 64

Work = tuple[Context, Callable[[], Any], Callable[[Any, BaseException | None], None]]


class Astray(Exception):
    """A tool ended in what is meant for tasks and processes: a cancellation nobody asked for, or an exit."""


def tamed(error: BaseException) -> Exception:
    """Return what a tool raised, as something that concerns its call alone."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return Astray(f"it raised {type(error).__name__}({', '.join(map(repr, error.args))})")


class Threads:
    """Threads that are made when there is work for them and end with the process."""

    def __init__(self, most: int = THREADS_MAX) -> None:
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._most = most
        self._made = 0
        self._idle = 0
        self._guard = threading.Lock()
        self._then: Callable[[], None] | None = None

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        fn: Callable[[], Any],
        finished: Callable[[Any, BaseException | None], None],
    ) -> None:
        """Run `fn` in a thread; call `finished(value, error)` on the loop when its code has returned."""

        def tell(value: Any, error: BaseException | None) -> None:
            with suppress(RuntimeError):  # the loop is closed: the process is ending, and recovery will ask
                loop.call_soon_threadsafe(finished, value, error)

        with self._guard:
            if self._idle == 0 and self._made < self._most:
                self._made += 1
                threading.Thread(target=self._run, name=f"milepost-tool-{self._made}", daemon=True).start()
            else:
                self._idle -= 1
        self._work.put((copy_context(), fn, tell))

    def _run(self) -> None:
        while True:
            work = self._work.get()
            if work is None:
                return
            context, fn, tell = work
            try:
                value, error = context.run(fn), None
            except BaseException as raised:  # noqa: BLE001  whatever a tool raises is handed back to its step
                value, error = None, raised
            with self._guard:
                self._idle += 1
                then = self._then if self._idle == self._made else None
            tell(value, error)
            if then is not None:
                then()

    def when_quiet(self, then: Callable[[], None]) -> None:
        """Call `then` once no thread works any more: now, or in the thread that is the last one to end its work."""
        with self._guard:
            if self._idle < self._made:
                self._then = then
                return
        then()

    def close(self) -> None:
        """Let idle threads end."""
        for _ in range(self._made):
            self._work.put(None)


class Deadline:
    """A moment after which a task is cancelled; `passed` tells a timeout from any other cancellation."""

    __slots__ = ("at", "passed", "task")

    def __init__(self, task: asyncio.Task[Any], at: float) -> None:
        self.task = task
        self.at = at
        self.passed = False


class Deadlines:
    """One ticker for all deadlines of a process: setting one costs an insertion, not a timer."""

    def __init__(self, every_s: float = 0.05) -> None:
        self._open: set[Deadline] = set()
        self._every_s = every_s
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> Deadline:
        """Cancel the current task after this long, unless it is dropped before."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        deadline = Deadline(task, loop.time() + seconds)
        self._open.add(deadline)
        if self._timer is None:
            self._timer = loop.call_later(self._every_s, self._tick)
        return deadline

    def drop(self, deadline: Deadline) -> None:
        """Forget a deadline."""
        self._open.discard(deadline)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for deadline in [deadline for deadline in self._open if deadline.at <= now]:
            self._open.discard(deadline)
            deadline.passed = True
            deadline.task.cancel()
        self._timer = loop.call_later(self._every_s, self._tick) if self._open else None

"""A batch that the event loop has sent: who is told of its answer, and how the thread takes over where it must wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from milepost.stores.api import Operation
    from milepost.stores.postgres.outcome import Line, Trip

Landed = Callable[["list[Any] | Exception"], None]


class Flight:
    """A trip between its departure and its return, as the loop sees it. `job` is set where the thread took it over.

    `landed` is called once: when it is back, or the thread has taken it over. `is_back` says then that it went well, so
    that nothing more has to be waited for.
    """

    __slots__ = ("_looks", "_loop", "_socket", "began", "is_back", "job", "landed", "operations", "trip")

    def __init__(self, operations: Sequence[Operation], trip: Trip, began: float) -> None:
        self.operations = operations
        self.trip = trip
        self.began = began
        self.is_back = False
        self.job: Future[list[Any]] | None = None
        self.landed: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._socket = -1
        self._looks = False

    @property
    def flies(self) -> bool:
        """Whether it left, so that it can be looked for."""
        return self.trip.error is None and not self.trip.waits

    def watch(self, line: Line) -> None:
        """Look on the loop whether it is back."""
        self._socket = line.socket
        self._looks = True
        self._loop.add_reader(self._socket, self._look, line)

    def tell(self, commit: Callable[[], list[Any]], landed: Landed) -> None:
        """Tell on the loop how it ended: as `commit` says, which waits for nothing, or as the thread's job does."""
        if self.job is None:
            landed(_outcome(commit))
        else:
            self.job.add_done_callback(lambda job: self._call(lambda: landed(_outcome(job.result))))

    def _call(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(callback)

    def _look(self, line: Line) -> None:
        if line.arrived(self.trip):
            self.is_back = line.well(self.trip)
            self.look_no_more()
            self.land()

    def look_no_more(self) -> None:
        """Leave the socket to the thread."""
        if self._looks and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
        self._looks = False

    def land(self) -> None:
        """Tell whoever waits for it."""
        landed, self.landed = self.landed, None
        if landed is not None:
            landed()


async def answered(depart: Callable[[Landed], bool], hand_over: Callable[[], None]) -> list[Any] | None:
    """Let a batch depart, and return its answers; None where it cannot. Cancelled, it is handed over to the thread."""
    waiting: asyncio.Future[list[Any] | Exception] = asyncio.get_running_loop().create_future()
    if not depart(lambda found: None if waiting.done() else waiting.set_result(found)):
        return None
    try:
        found = await waiting
    except asyncio.CancelledError:
        hand_over()
        raise
    if isinstance(found, Exception):
        raise found
    return found


def _outcome(ask: Callable[[], list[Any]]) -> list[Any] | Exception:
    try:
        return ask()
    except Exception as error:  # noqa: BLE001  it is handed on
        return error

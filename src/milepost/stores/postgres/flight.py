"""A batch that the event loop has sent: who waits for its answer, and how the thread takes over where it must wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from milepost.stores.api import Operation
    from milepost.stores.postgres.outcome import Line, Trip


class Flight:
    """A trip between its departure and its return, as the loop sees it. `job` is set where the thread took it over."""

    __slots__ = ("_landed", "_loop", "_socket", "began", "is_back", "job", "operations", "trip")

    def __init__(self, operations: Sequence[Operation], trip: Trip, began: float) -> None:
        self.operations = operations
        self.trip = trip
        self.began = began
        self.is_back = False
        self.job: Future[list[Any]] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket = -1
        self._landed: asyncio.Future[None] | None = None

    async def back(self, line: Line, hand_over: Callable[[], None]) -> None:
        """Wait until it is back, or the thread has taken it over. Cancelled, it is handed over.

        `is_back` says afterwards that it went well, so that nothing more has to be waited for.
        """
        self._loop = loop = asyncio.get_running_loop()
        self._landed = loop.create_future()
        self._socket = line.socket
        loop.add_reader(self._socket, self._look, line)
        try:
            await self._landed
        except asyncio.CancelledError:
            hand_over()
            raise

    def _look(self, line: Line) -> None:
        if line.arrived(self.trip):
            self.is_back = line.well(self.trip)
            self.land()

    def land(self) -> None:
        """Look no more whether it is back."""
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._socket)
            if self._landed is not None and not self._landed.done():
                self._landed.set_result(None)

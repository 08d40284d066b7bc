"""The calls that a host makes at once: it drops what is under way beside one that raises."""

from __future__ import annotations

import asyncio


class Batch:
    """Calls made at once. One that is to be parked, or cannot be made, waits for the others first."""

    def __init__(self) -> None:
        self.calls = 0
        self._resting = 0
        self._changed = asyncio.Event()

    def __enter__(self) -> None:
        self.calls += 1

    def __exit__(self, *_: object) -> None:
        self.calls -= 1
        self._changed.set()

    async def others(self) -> None:
        """Wait until every other call has ended, or waits here, too."""
        await asyncio.sleep(0)  # the others were made with this one, and may not have begun
        self._resting += 1
        self._changed.set()
        try:
            while self._resting < self.calls:
                self._changed.clear()
                await self._changed.wait()
        finally:
            self._resting -= 1

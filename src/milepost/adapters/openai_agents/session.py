"""A session in the record of its run: what was said in turns that ended, and in the one that is being taken.

A turn that is killed leaves nothing behind: taken again, it sees the history that it saw before, asks the same
questions, and gets the recorded answers. What a turn adds or removes counts once `run` came to an end with a final
output. After a pause the turn goes on with what it had said.
"""

from __future__ import annotations

import asyncio
from typing import Any

import milepost as mp
from milepost.adapters.openai_agents.holding import Attached, attached


class Told:
    """What one session holds, as far as it has been read from the record."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.next = 1
        self.read = False
        self.history: list[Any] = []
        self.turn: list[Any] | None = None  # the history as the turn that is being taken has it

    def apply(self, what: dict[str, Any]) -> None:
        """Take over one change."""
        self.next += 1
        verb, now = what["verb"], self.history if self.turn is None else self.turn
        if verb == "begin":
            self.turn = list(self.history)
        elif verb == "go_on":
            self.turn = list(now)
        elif verb == "end":
            self.history, self.turn = list(now), None
        elif verb == "add":
            now.extend(what["items"])
        elif verb == "pop":
            del now[-1:]
        else:
            now.clear()


class DurableSession:
    """A session of the SDK that lives in the record of the run that `durable` holds, with all guarantees of it."""

    session_settings = None

    def __init__(self, session_id: str = "conversation") -> None:
        self.session_id = session_id

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return what was said, oldest first; the latest `limit` of it."""
        told = await self._told()
        now = told.history if told.turn is None else told.turn
        return list(now if limit is None else now[max(len(now) - limit, 0) :])

    async def add_items(self, items: list[Any]) -> None:
        """Add what was said."""
        if items:
            await self._change({"verb": "add", "items": list(items)})

    async def pop_item(self) -> Any:
        """Take back what was said last, and return it; None where nothing was."""
        last = await self.get_items(1)
        if not last:
            return None
        await self._change({"verb": "pop"})
        return last[0]

    async def clear_session(self) -> None:
        """Forget what was said."""
        await self._change({"verb": "clear"})

    async def turn(self, verb: str) -> None:
        """Begin a turn, go on with it, or end it."""
        await self._change({"verb": verb})

    async def _change(self, what: dict[str, Any]) -> None:
        held, told = self._held(), await self._told()
        async with told.lock:
            await held.keep(f"session/{self.session_id}/{told.next}", what)
            told.apply(what)

    async def _told(self) -> Told:
        held = self._held()
        told: Told = held.sessions.setdefault(self.session_id, Told())
        async with told.lock:
            while not told.read:
                what = await held.kept(f"session/{self.session_id}/{told.next}")
                if what is None:
                    told.read = True
                else:
                    told.apply(what)
        return told

    def _held(self) -> Attached:
        held = attached()
        if held is None:
            raise mp.NoRun(f"session {self.session_id}")
        return held

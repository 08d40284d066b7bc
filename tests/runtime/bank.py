"""A bank outside: it keeps its own ledger, whatever it answers, and can be asked what it has."""

from collections.abc import Callable
from typing import Any, Literal

import milepost as mp

Mode = Literal["answers", "loses the answer", "loses the request", "refuses", "is away"]


class Bank:
    """Applies charges under keys. `modes` says how it treats the next calls; the last one stays."""

    def __init__(self, *modes: Mode) -> None:
        self.modes = list(modes) or ["answers"]
        self.applied: list[tuple[str, str, int]] = []
        self.calls: list[tuple[str, int]] = []
        self.asked: list[int] = []
        self.hidden = False
        self.broken = False
        self.dedups = False

    def charge(self, call: mp.Call, order: str, cents: int) -> str:
        """Take a charge, as the mode says."""
        self.calls.append((call.key, call.attempt))
        mode = self.modes.pop(0) if len(self.modes) > 1 else self.modes[0]
        if mode == "refuses":
            raise mp.Rejected("card stolen")
        if mode == "is away":
            raise mp.NotSent("no route")
        known = self.dedups and any(key == call.key for key, _, _ in self.applied)
        if mode != "loses the request" and not known:
            self.applied.append((call.key, order, cents))
        if mode != "answers":
            raise RuntimeError("connection reset")
        return f"receipt {order}"

    def find(self, call: mp.Call, now: int) -> mp.Finding[str]:
        """Say what stands in the ledger under a key."""
        self.asked.append(now)
        if self.broken:
            raise ConnectionError("the search is down")
        found = [] if self.hidden else [order for key, order, _ in self.applied if key == call.key]
        if not found:
            return mp.did_not_happen()
        return mp.happened(f"receipt {found[0]}") if len(found) == 1 else mp.conflict(found)


def tool_of(bank: Bank, now: Callable[[], int], *, asks: bool = True, **options: Any) -> mp.Tool[[str, int], str]:
    """Return a tool that charges this bank, and asks it where `asks` says so."""

    @mp.tool(name="charge", **options)
    async def charge(call: mp.Call, order: str, cents: int) -> str:
        return bank.charge(call, order, cents)

    if asks:

        @charge.reconcile
        async def find(call: mp.Call, order: str, cents: int) -> mp.Finding[str]:
            return bank.find(call, now())

    tool: mp.Tool[[str, int], str] = charge
    return tool


def paying(tool: mp.Tool[[str, int], str]) -> mp.Workflow[str, str]:
    """Return a workflow that charges one order."""

    @mp.workflow(version="1", name="flow", tools=[tool])
    async def flow(run: mp.Run, order: str) -> str:
        return await tool(order, 100)

    return flow

"""What falls due in the very moment in which a run comes to rest is not forgotten.

A run looks at what may be done, and then at whether it may rest. Between the two the clock goes on. Each test lets the
clock reach the moment at every place at which it is read, one after the other.
"""

from pathlib import Path

import pytest

import milepost as mp
from milepost.core.duration import from_ms, to_ms
from milepost.testing.manual_clock import START, ManualClock
from tests.runtime.stage import Stage, has_entry

READS = range(1, 40)  # a resend is well under way after that many looks at the clock


class ArrivingClock(ManualClock):
    """A clock that stands a millisecond before a moment, and reaches it when it is read for the n-th time."""

    def __init__(self, moment: int, reads: int) -> None:
        super().__init__(from_ms(moment - 1))
        self.left = reads

    def now(self) -> int:
        self.left -= 1
        if self.left == 0:
            self.advance("1ms")
        return super().now()


@mp.tool(effect="keyed", key_ttl="24h")
async def pay(call: mp.Call) -> int:
    if call.attempt == 1:
        raise RuntimeError("the line dropped")
    return call.attempt


@mp.workflow(version="1", tools=[pay])
async def paying(run: mp.Run) -> int:
    return await pay()


@pytest.mark.parametrize("reads", READS)
async def test_a_resend_that_falls_due_while_its_run_comes_to_rest_is_sent(tmp_path: Path, reads: int) -> None:
    """Found by the demo: a run parked with nothing due, and would never have moved again."""
    stage = Stage(tmp_path)
    async with stage.app(paying, still=True) as app:
        handle = await app.start(paying)
        await has_entry(app, handle.id, "effect_unknown")
    clock = ArrivingClock(to_ms(START) + 1_000, reads)  # the first resend is due a second after the loss

    async with stage.app(paying, clock=clock) as app:
        assert await app.handle(handle.id, paying).result(timeout="30s") == 2

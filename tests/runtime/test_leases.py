"""A lease that lapsed is no lease any more, whatever is taken afterwards."""

import milepost as mp
from tests.runtime.stage import Stage


@mp.workflow(version="1")
async def flow(run: mp.Run, name: str) -> str:
    return name


async def test_a_longer_lease_for_one_attempt_lets_nothing_be_sent_that_began_under_one_that_lapsed(
    stage: Stage,
) -> None:
    async with stage.app(flow, still=True, lease="1h") as app:
        engine = app._need_engine()
        before = engine.lapses  # as an attempt notes it whose `started` is queued now

        running = engine.lease_for(stage.clock.now(), 2 * 3_600_000)
        unchanged = engine.lapses
        stage.clock.advance("3h")
        engine.leased(engine.lease_for(stage.clock.now(), 60_000))

        assert running is not None
        assert unchanged == before
        assert engine.lease_until > stage.clock.now()
        assert engine.lapses > before

"""No run parks with nothing that would ever move it."""

import asyncio
import logging
from typing import Any

import pytest

from milepost.core import messages as m
from milepost.core.duration import from_ms
from milepost.errors import Waiting
from milepost.runtime import boundaries, ruling, waits
from tests.core import samples as s
from tests.runtime.committing import committing, tool_of
from tests.runtime.sessions import NOW, engine_of

LATER = NOW + waits.LATER_MS


@pytest.mark.parametrize(
    ("waiting", "due"),
    [
        (Waiting("unknown"), LATER),
        (Waiting("breaker"), LATER),
        (Waiting("time"), LATER),
        (Waiting("unknown", from_ms(NOW + 5)), NOW + 5),
        (Waiting("unknown", None, "milepost resolve …"), None),
        (Waiting("signal"), None),
        (Waiting("child"), None),
    ],
)
async def test_a_run_that_waits_for_no_moment_no_message_and_no_person_looks_again_later(
    caplog: pytest.LogCaptureFixture, waiting: Waiting, due: int | None
) -> None:
    session = committing(s.started(), tool=tool_of())

    with caplog.at_level(logging.WARNING, "milepost"):
        assert await boundaries.park(session, waiting) == due

    (append,) = engine_of(session).appends
    assert append.release == (NOW, due)
    assert append.status is not None
    assert append.status.until == (due if waiting.until is not None or due == LATER else None)
    assert ("nothing would move it" in caplog.text) is (due == LATER)


ASKS_FOR_IT = f"{ruling.CHECK} policy.toml: flow/charge#1 is denied"


@pytest.mark.parametrize(
    ("waiting", "turned", "told"),
    [
        (Waiting("authority", None, ASKS_FOR_IT), True, True),
        (Waiting("approval", None, f"milepost approve ap-1 {ruling.BY_RULE}'large')"), True, True),
        (Waiting("authority", None, ASKS_FOR_IT), False, False),
        (Waiting("authority", None, "milepost grant run-1 pay"), True, False),
        (Waiting("signal", None, ASKS_FOR_IT), True, False),
    ],
)
async def test_a_run_looks_once_more_whose_policy_became_another_one_while_it_was_being_parked(
    waiting: Waiting, *, turned: bool, told: bool
) -> None:
    """Whoever tells runs that wait for the policy did not see it yet; nobody would have told it until the next one."""
    session: Any = committing(s.started(), tool=tool_of())
    engine = session.engine
    engine.holds, engine.policy, engine.policy_told = True, type("Policy", (), {"turns": 4}), 3
    parking = asyncio.create_task(boundaries.park(session, waiting))
    await asyncio.sleep(0)

    engine.policy_told += turned
    engine.waiting[0].set_result(None)
    await parking

    recheck = m.Recheck(at=NOW, by=engine.worker)
    assert [(post.run_id, m.decode(post.body)) for post in engine.posts] == ([(s.RUN, recheck)] if told else [])

"""No run parks with nothing that would ever move it."""

import logging

import pytest

from milepost.core.duration import from_ms
from milepost.errors import Waiting
from milepost.runtime import boundaries, waits
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

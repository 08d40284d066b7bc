"""What a host is told where no outcome could be had: that nothing was done only where that is certain."""

import pytest

import milepost as mp
from milepost import errors
from milepost.adapters.mcp.gateway.answering import answer, refused
from milepost.adapters.mcp.gateway.calls import Attempted
from tests.adapters.mcp.town import meta, said


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidArguments("pay", "it needs order"),
        errors.RunHeld("r-1", "another"),
        errors.Diverged("@c-1", "pay (1)", "pay (2)"),
        errors.RunEnded("r-1", "killed", "it begins nothing new"),
        errors.RunBlocked("r-1", "diverged", "why"),
    ],
)
def test_what_is_refused_before_anything_is_sent_says_so(error: errors.MilepostError) -> None:
    told = refused(error, "pay")

    assert told.is_error
    assert "othing was done" in said(told)
    assert (meta(told, "outcome"), meta(told, "code")) == ("refused", error.code)


@pytest.mark.parametrize("error", [errors.EpochLost("r-1", 3), errors.StoreFailed("disk full"), errors.MilepostError()])
def test_what_may_have_been_sent_is_told_as_that_and_invites_nobody_to_repeat_it(error: errors.MilepostError) -> None:
    """Requirement 11."""
    told = said(refused(error, "pay"))

    assert "nobody knows yet whether it happened" in told
    assert "Do not make this call again" in told
    assert "nothing was done" not in told


@pytest.mark.parametrize(
    "reason", ["approval", "authority", "budget", "breaker", "switch", "unknown", "person", "time"]
)
def test_a_call_that_waits_is_no_error_and_names_what_a_person_may_type(reason: errors.Reason) -> None:
    waiting = mp.Waiting(reason, None, "milepost approve ap-1")

    told = answer(Attempted("key", "r-1", "c-1", waiting, recorded=False), "pay")

    assert not told.is_error
    assert "Do not make this call again" in said(told)
    assert "milepost approve ap-1" in said(told)
    assert (meta(told, "outcome"), meta(told, "reason"), meta(told, "run")) == ("waiting", reason, "r-1")

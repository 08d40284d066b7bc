"""The words for models and people: an unknown outcome never reads like a failure, and nothing invites to repeat it."""

import re
from datetime import UTC, datetime
from typing import get_args

import pytest

import milepost as mp
from milepost.adapters.saying import to_model, to_person
from milepost.errors import Reason

INVITING = re.compile(
    r"\b(fail\w*|error\w*|unsuccessful\w*|retr(y|ies|ied)|try|tried|again later|once more|timed? ?out)\b", re.IGNORECASE
)
REASONS = get_args(Reason)


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("ask", ["", "milepost approve ap-1"])
def test_nothing_that_waits_reads_like_a_failure_or_invites_to_call_again(reason: Reason, ask: str) -> None:
    said = to_model(mp.Waiting(reason, None, ask), "refund")

    assert not INVITING.search(said), said
    assert "refund" in said
    assert "Do not make this call again" in said


def test_an_unknown_outcome_may_have_happened_and_is_being_found_out() -> None:
    said = to_model(mp.Waiting("unknown", datetime(2026, 1, 1, tzinfo=UTC)), "refund")

    assert "may have happened" in said
    assert "is being found out" in said
    assert "neither as done nor as not done" in said
    assert "has not been done" not in said


def test_an_unknown_outcome_that_a_person_settles_says_so_and_shows_the_model_no_command() -> None:
    said = to_model(mp.Waiting("unknown", None, "milepost resolve r1 @c1 --happened VALUE"), "refund")

    assert "A person is finding out" in said
    assert "milepost" not in said


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("approval", "approve"),
        ("budget", "budget"),
        ("switch", "on hold"),
        ("breaker", "provider"),
        ("authority", "permission"),
    ],
)
def test_what_waits_is_not_done_yet_and_says_for_what(reason: Reason, words: str) -> None:
    said = to_model(mp.Waiting(reason), "refund")

    assert "has not been done yet" in said
    assert words in said
    assert "may have happened" not in said


def test_what_failed_certainly_did_not_happen_and_says_why() -> None:
    assert to_model(mp.Failed("no such order"), "refund") == (
        "refund certainly did not happen, nothing was done: no such order"
    )


def test_a_person_is_told_what_waits_until_when_and_what_to_type() -> None:
    until = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)

    assert to_person("r1", mp.Waiting("approval", None, "milepost approve ap-1")) == (
        "run r1: a call waits: a person has to approve it first.\nmilepost approve ap-1"
    )
    assert to_person("r1", mp.Waiting("unknown", until)) == (
        "run r1: it is not known whether a call happened; it looks again by itself at 2026-03-04 05:06:07 UTC.\n"
        "milepost show r1"
    )

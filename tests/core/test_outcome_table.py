"""One table holds every legal change of an outcome; whatever is not in it is refused."""

from itertools import product
from typing import get_args

import pytest

from milepost.core.outcome import TABLE, Event, Outcome, change
from milepost.errors import IllegalOutcome
from tests.core import samples as say

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
EVENTS: tuple[Event, ...] = get_args(Event)

# Written out a second time, by hand, from docs/DESIGN.md §5: a change of the table has to be meant twice.
LEGAL: dict[tuple[str, str], str] = {
    ("not_started", "start"): "started",
    ("not_started", "confirm"): "confirmed",
    ("not_started", "fail"): "failed",
    ("started", "confirm"): "confirmed",
    ("started", "fail"): "failed",
    ("started", "lose"): "unknown",
    ("started", "contradict"): "started",
    ("unknown", "confirm"): "confirmed",
    ("unknown", "fail"): "failed",
    ("unknown", "lose"): "unknown",
    ("unknown", "resend"): "unknown",
    ("unknown", "contradict"): "unknown",
    ("failed", "retry"): "started",
    ("failed", "fail"): "failed",
    ("failed", "confirm"): "confirmed",
    ("failed", "contradict"): "failed",
    ("confirmed", "contradict"): "confirmed",
}
PAIRS = list(product(OUTCOMES, EVENTS))


def test_there_are_five_outcomes_and_each_is_reached_and_told_apart() -> None:
    """Requirement 27. Requirement 28. Requirement 29. Requirement 30. Requirement 31."""
    reached = {
        "not_started": say.run(say.planned()),
        "started": say.run(say.started()),
        "confirmed": say.run(say.started(), say.confirmed()),
        "failed": say.run(say.started(), say.failed()),
        "unknown": say.run(say.started(), say.lost()),
    }

    assert set(OUTCOMES) == set(reached)
    assert {name: say.effect(state).outcome for name, state in reached.items()} == {name: name for name in reached}


@pytest.mark.parametrize(("outcome", "event"), [pair for pair in PAIRS if pair in LEGAL])
def test_a_legal_event_leads_to_the_outcome_of_the_table(outcome: Outcome, event: Event) -> None:
    """Requirement 31."""
    assert change(outcome, event, final=False, contradicted=True) == LEGAL[outcome, event]


@pytest.mark.parametrize(("outcome", "event"), [pair for pair in PAIRS if pair not in LEGAL])
def test_an_event_that_is_not_in_the_table_is_refused(outcome: Outcome, event: Event) -> None:
    """Requirement 31."""
    with pytest.raises(IllegalOutcome) as refused:
        change(outcome, event, final=False, contradicted=True)

    assert (refused.value.outcome, refused.value.event) == (outcome, event)


def test_the_table_holds_nothing_else() -> None:
    assert TABLE == LEGAL


@pytest.mark.parametrize("event", ["retry", "fail"])
def test_what_failed_for_good_is_neither_retried_nor_given_up_again(event: Event) -> None:
    with pytest.raises(IllegalOutcome):
        change("failed", event, final=True)


def test_what_failed_becomes_confirmed_only_after_a_contradiction() -> None:
    with pytest.raises(IllegalOutcome):
        change("failed", "confirm")

    assert change("failed", "confirm", contradicted=True) == "confirmed"


def test_an_unknown_effect_is_never_retried_and_never_starts_anew() -> None:
    """Requirement 32."""
    for event in ("start", "retry"):
        with pytest.raises(IllegalOutcome):
            change("unknown", event, final=False, contradicted=True)


def test_nothing_leads_back_to_not_started() -> None:
    assert "not_started" not in TABLE.values()


def test_a_confirmed_effect_stays_confirmed_whatever_comes() -> None:
    assert {after for (outcome, _), after in TABLE.items() if outcome == "confirmed"} == {"confirmed"}

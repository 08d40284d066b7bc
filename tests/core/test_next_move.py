"""What may be done about an effect that nobody knows the outcome of: by class, by time, by what was found so far."""

from typing import Any

import pytest

from milepost.core.outcome import (
    Ask,
    Attempt,
    Doubt,
    Facts,
    Move,
    Person,
    ProvenAbsent,
    Resend,
    Wait,
    ask_delay_ms,
    key_valid_until,
    next_move,
    quiet_since,
    resend_delay_ms,
    spacing_ms,
)

BOUND = 30_000
HOUR = 3_600_000


def attempt(
    number: int = 1, at: int = 0, quiet_at: int | None = 1_000, *, died: bool = False, settled: str = ""
) -> Attempt:
    return Attempt(number, at, 1, "worker-1", quiet_at, died, settled)  # type: ignore[arg-type]


def doubt(
    *attempts: Attempt, asks: int = 0, absences: tuple[int, ...] = (), ask_at: int = 0, person: str = ""
) -> Doubt:
    return Doubt(list(attempts) or [attempt()], asks, list(absences), ask_at, person)


def facts(effect: str = "queryable", **changes: Any) -> Facts:
    known: dict[str, Any] = {"visible_ms": BOUND, "reconcilable": True}
    return Facts(effect=effect, **{**known, **changes})


# ---------------------------------------------------------------- by class


def test_a_read_is_called_again() -> None:
    assert next_move(facts("read"), doubt(), now=1_000) == Resend()


def test_a_keyed_effect_is_sent_again_under_its_key_while_the_key_lasts() -> None:
    keyed = facts("keyed", key_ttl_ms=24 * HOUR)

    assert next_move(keyed, doubt(attempt(died=True)), now=2_000) == Resend()


def test_a_keyed_effect_whose_key_may_have_expired_is_asked_about() -> None:
    keyed = facts("keyed", key_ttl_ms=24 * HOUR, timeout_ms=60_000)
    lasts_until = 24 * HOUR - 60_000

    assert next_move(keyed, doubt(attempt(died=True)), now=lasts_until - 1) == Resend()
    assert next_move(keyed, doubt(attempt(died=True)), now=lasts_until) == Ask()


def test_a_keyed_effect_without_key_or_reconciler_waits_for_a_person() -> None:
    move = next_move(facts("keyed", reconcilable=False), doubt(), now=1_000)

    assert isinstance(move, Person)
    assert "key" in move.why


def test_an_absolute_effect_is_sent_again_with_its_precondition() -> None:
    assert next_move(facts("absolute"), doubt(attempt(died=True)), now=1_000) == Resend()


def test_an_absolute_effect_whose_precondition_was_refused_is_asked_about() -> None:
    refused = doubt(attempt(1), attempt(2, settled="rejected"))

    assert next_move(facts("absolute"), refused, now=HOUR) == Ask()


def test_an_absolute_effect_whose_precondition_was_refused_waits_for_a_person_without_reconciler() -> None:
    refused = doubt(attempt(1), attempt(2, settled="rejected"))

    move = next_move(facts("absolute", reconcilable=False), refused, now=HOUR)

    assert isinstance(move, Person)
    assert "cannot be sent again" in move.why


def test_a_queryable_effect_is_asked_about_and_never_sent_first() -> None:
    """Requirement 32."""
    assert next_move(facts("queryable"), doubt(), now=1_000) == Ask()


@pytest.mark.parametrize("effect", ["irreversible", "transactional"])
def test_what_can_be_neither_repeated_nor_looked_up_waits_for_a_person_at_once(effect: str) -> None:
    move = next_move(facts(effect), doubt(), now=0)

    assert isinstance(move, Person)
    assert "neither repeated nor looked up" in move.why


def test_a_queryable_effect_without_reconciler_waits_for_a_person() -> None:
    assert isinstance(next_move(facts("queryable", reconcilable=False), doubt(), now=0), Person)


@pytest.mark.parametrize("effect", ["read", "keyed", "absolute", "queryable", "irreversible"])
def test_once_a_person_is_needed_nothing_automatic_happens_any_more(effect: str) -> None:
    called = doubt(person="found twice")

    assert next_move(facts(effect, key_ttl_ms=24 * HOUR), called, now=HOUR) == Person("found twice")


# ---------------------------------------------------------------- how often, and when, the same key is sent again


def test_resends_by_living_processes_are_bounded() -> None:
    """Requirement 68."""
    keyed = facts("keyed", key_ttl_ms=24 * HOUR, tries=3)
    spent = doubt(attempt(1), attempt(2), attempt(3))

    assert next_move(keyed, doubt(attempt(1), attempt(2)), now=HOUR) == Resend()
    assert next_move(keyed, spent, now=HOUR) == Ask()


def test_resends_of_an_absolute_effect_are_bounded_too() -> None:
    spent = doubt(attempt(1), attempt(2), attempt(3))

    assert next_move(facts("absolute", tries=3), spent, now=HOUR) == Ask()


def test_deaths_are_not_counted_so_that_killing_a_worker_again_and_again_strands_no_run() -> None:
    """Requirement 33."""
    keyed = facts("keyed", key_ttl_ms=24 * HOUR, tries=3)
    killed = doubt(*(attempt(number, at=number, died=True) for number in range(1, 201)))

    assert next_move(keyed, killed, now=2_000) == Resend()


def test_a_death_lets_the_same_key_be_sent_at_once() -> None:
    assert resend_delay_ms([attempt(1), attempt(2, died=True)]) == 0
    assert resend_delay_ms([attempt(1, died=True)]) == 0
    assert resend_delay_ms([]) == 0


def test_between_resends_of_a_living_process_the_wait_doubles_up_to_a_minute() -> None:
    delays = [resend_delay_ms([attempt(n) for n in range(1, count + 1)]) for count in (1, 2, 3, 7, 50)]

    assert delays == [1_000, 2_000, 4_000, 60_000, 60_000]


def test_a_resend_waits_for_its_time_counted_from_when_the_last_attempt_was_quiet() -> None:
    keyed = facts("keyed", key_ttl_ms=24 * HOUR)

    assert next_move(keyed, doubt(attempt(at=0, quiet_at=5_000)), now=5_999) == Wait(6_000)
    assert next_move(keyed, doubt(attempt(at=0, quiet_at=5_000)), now=6_000) == Resend()
    assert next_move(keyed, doubt(attempt(at=0, quiet_at=None)), now=999) == Wait(1_000)


def test_a_key_is_trusted_for_less_than_its_time_to_live() -> None:
    assert key_valid_until(facts("keyed", key_ttl_ms=HOUR, timeout_ms=60_000), [attempt(at=100)]) == 100 + HOUR - 60_000
    assert key_valid_until(facts("keyed", key_ttl_ms=HOUR, timeout_ms=10), [attempt(at=100)]) == 100 + HOUR - 5_000


def test_a_key_that_lives_little_longer_than_an_attempt_loses_a_quarter() -> None:
    assert key_valid_until(facts("keyed", key_ttl_ms=4_000, timeout_ms=1_000), [attempt(at=100)]) == 3_100


def test_a_key_counts_from_the_first_attempt_and_not_from_the_latest() -> None:
    keyed = facts("keyed", key_ttl_ms=HOUR, timeout_ms=60_000)

    assert key_valid_until(keyed, [attempt(1, at=0), attempt(2, at=HOUR)]) == HOUR - 60_000


def test_without_attempt_or_promise_no_key_is_valid() -> None:
    assert key_valid_until(facts("keyed", key_ttl_ms=HOUR), []) == 0
    assert key_valid_until(facts("keyed"), [attempt()]) == 0


# ---------------------------------------------------------------- when absence counts


def asked(now: int, *absences: int, quiet_at: int | None = 1_000, **changes: Any) -> Move:
    in_doubt = doubt(attempt(quiet_at=quiet_at), asks=max(1, len(absences)), absences=absences)
    return next_move(facts(**changes), in_doubt, now)


def test_a_finding_is_sought_at_once_since_what_is_found_counts_at_once() -> None:
    assert next_move(facts(), doubt(attempt(quiet_at=None)), now=0) == Ask()


def test_a_reconciler_that_said_when_to_ask_again_is_not_asked_before() -> None:
    in_doubt = doubt(asks=1, ask_at=9_000)

    assert next_move(facts(), in_doubt, now=8_999) == Wait(9_000)
    assert next_move(facts(), in_doubt, now=9_000) == Ask()


def test_absence_before_the_visibility_bound_proves_nothing() -> None:
    counts_from = 1_000 + BOUND

    assert asked(2_000, 1_500) == Wait(counts_from)
    assert asked(counts_from, 1_500) == Ask()


def test_absence_counts_on_two_reads_that_lie_apart() -> None:
    first = 1_000 + BOUND
    second = first + BOUND // 10

    assert asked(first + 1, first) == Wait(second)
    assert asked(second, first) == Ask()
    assert asked(second, first, second) == ProvenAbsent(final=False, why="proven absent")


def test_two_reads_close_together_are_one() -> None:
    first = 1_000 + BOUND
    second = first + BOUND // 10

    assert asked(second - 1, first, first + 1, second - 1) == Wait(second)
    assert asked(second, first, first + 1, second - 1) == Ask()


def test_one_read_before_the_bound_and_one_after_it_are_not_enough() -> None:
    first = 1_000 + BOUND

    assert asked(first + 1, 2_000, first) == Wait(first + BOUND // 10)


def test_while_an_attempt_may_still_act_absence_cannot_count() -> None:
    assert asked(10 * BOUND, 5 * BOUND, 9 * BOUND, quiet_at=None) == Ask()


def test_absence_counts_from_when_the_last_of_several_attempts_is_quiet() -> None:
    two = [attempt(1, quiet_at=1_000), attempt(2, quiet_at=50_000)]

    assert quiet_since(two) == 50_000
    assert quiet_since([*two, attempt(3, quiet_at=None)]) is None
    assert quiet_since([]) == 0
    late = doubt(*two, asks=2, absences=(32_000, 40_000))
    assert next_move(facts(), late, now=60_000) == Wait(80_000)


def test_without_a_declared_bound_absence_never_counts() -> None:
    absences = tuple(range(1_000, 100_000, 1_000))

    assert isinstance(asked(10 * HOUR, *absences, visible_ms=None), Person)


def test_without_a_declared_bound_it_is_asked_until_it_was_not_found() -> None:
    assert next_move(facts(visible_ms=None), doubt(asks=3), now=1_000) == Ask()


def test_two_absences_lie_a_tenth_of_the_bound_apart_but_at_least_100_ms() -> None:
    assert [spacing_ms(bound) for bound in (0, 500, 1_000, 1_010, 60_000)] == [100, 100, 100, 101, 6_000]


def test_a_proven_absence_is_final_when_no_try_is_left() -> None:
    first = 1_000 + BOUND
    attempts = [attempt(number) for number in (1, 2, 3)]
    in_doubt = doubt(*attempts, asks=2, absences=(first, first + BOUND))

    move = next_move(facts(tries=3), in_doubt, now=3 * BOUND)

    assert move == ProvenAbsent(final=True, why="proven absent after 3 attempts")


def test_a_proven_absence_after_deaths_alone_is_never_final() -> None:
    first = 1_000 + BOUND
    attempts = [attempt(number, died=True) for number in (1, 2, 3)]
    in_doubt = doubt(*attempts, asks=2, absences=(first, first + BOUND))

    assert next_move(facts(tries=3), in_doubt, now=3 * BOUND) == ProvenAbsent(final=False, why="proven absent")


def test_a_resend_that_was_rejected_makes_the_absence_of_the_earlier_attempt_final() -> None:
    first = 1_000 + BOUND
    in_doubt = doubt(attempt(1), attempt(2, settled="rejected"), asks=2, absences=(first, first + BOUND))

    move = next_move(facts("keyed", key_ttl_ms=24 * HOUR), in_doubt, now=3 * BOUND)

    assert isinstance(move, ProvenAbsent)
    assert move.final


def test_a_reconciler_that_cannot_say_is_asked_less_and_less_often() -> None:
    assert [ask_delay_ms(asks) for asks in (0, 1, 2, 3, 6, 7, 1_000)] == [
        1_000, 1_000, 2_000, 4_000, 32_000, 60_000, 60_000,
    ]  # fmt: skip


def test_an_absence_that_cannot_count_yet_is_asked_again_only_after_a_while() -> None:
    in_doubt = doubt(attempt(quiet_at=None), asks=3, absences=(1_000, 2_000, 4_000))

    assert next_move(facts(), in_doubt, now=7_999) == Wait(8_000)
    assert next_move(facts(), in_doubt, now=8_000) == Ask()

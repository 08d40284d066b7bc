"""What the record says of an effect: its attempts, its outcome, its money, its approval."""

from decimal import Decimal

import pytest

from milepost.core import entries as e
from milepost.core.state import fold
from milepost.errors import IllegalOutcome
from tests.core import samples as say

ASKED = e.ApprovalAsked(at=11, step=say.STEP, id="ap-1", tool_version="1", digest="d1")


# ---------------------------------------------------------------- effects


def test_a_planned_effect_is_known_and_not_started() -> None:
    effect = say.effect(say.run(say.planned(once="o1")))

    assert (effect.outcome, effect.attempt, effect.key, effect.once) == ("not_started", 0, "k1", "o1")
    assert not effect.open


def test_a_planned_effect_starts_without_a_second_plan() -> None:
    effect = say.effect(say.run(say.planned(), say.started(plan=None)))

    assert (effect.outcome, effect.attempt, effect.key) == ("started", 1, "k1")
    assert effect.open


def test_an_attempt_names_the_owner_of_its_epoch() -> None:
    state = say.run(say.started(), say.lost(), say.claimed(30, 2, "worker-2"), say.started(40, 2, resend=True, epoch=2))

    assert [attempt.owner for attempt in say.effect(state).doubt.attempts] == ["worker-1", "worker-2"]


def test_an_attempt_of_the_boundary_s_own_epoch_names_the_boundary_s_owner() -> None:
    checkpoint = e.Checkpointed(at=3, boundary=say.boundary(visit=1, epoch=4, owner="worker-4"))

    state = fold(say.RUN, [checkpoint, say.started(epoch=4)])

    assert say.effect(state).doubt.attempts[0].owner == "worker-4"


def test_a_confirmed_effect_keeps_its_result_and_the_provider_s_own_id() -> None:
    """Requirement 55."""
    effect = say.effect(say.run(say.started(), say.confirmed(external="ch_9", by="answer")))

    assert (effect.outcome, bytes(effect.result), effect.external, effect.final) == ("confirmed", b'"ok"', "ch_9", True)
    assert effect.doubt.attempts[0].settled == "returned"
    assert effect.doubt.attempts[0].quiet_at == 20


def test_a_result_without_confirmation_from_outside_leaves_the_effect_unknown() -> None:
    """Requirement 11."""
    effect = say.effect(say.run(say.started(), say.lost(quiet_at=20)))

    assert (effect.outcome, effect.result, effect.open) == ("unknown", None, True)


def test_another_step_s_confirmation_confirms_what_never_started() -> None:
    effect = say.effect(say.run(say.planned(once="o1"), say.confirmed(attempt=0, by="once", spent={})))

    assert (effect.outcome, effect.attempt) == ("confirmed", 0)


def test_a_failure_that_is_not_final_is_tried_again_with_the_same_key_and_a_clean_slate() -> None:
    """Requirement 13."""
    state = say.run(say.started(), say.lost(quiet_at=20), *say.absent(50), say.started(60, 2))

    effect = say.effect(state)
    assert (effect.outcome, effect.key, effect.attempt, effect.retry_at) == ("started", "k1", 2, None)
    assert (effect.doubt.asks, effect.doubt.absences, effect.doubt.person) == (0, [], "")
    assert effect.doubt.attempts[0].settled == "absent"


def test_a_person_who_was_asked_before_a_retry_is_not_asked_about_the_retry() -> None:
    needed = e.PersonNeeded(at=30, step=say.STEP, why="nobody can say")
    denied = say.failed(40, reason="person", by="person ann")

    state = say.run(say.started(), say.lost(), needed, denied, say.started(50, 2))

    assert say.effect(state).doubt.person == ""


def test_a_final_failure_cannot_be_tried_again() -> None:
    with pytest.raises(IllegalOutcome):
        say.run(say.started(), say.failed(final=True), say.started(30, 2))


def test_a_retry_moment_and_the_count_of_attempts_survive_in_the_record() -> None:
    """Requirement 36."""
    effect = say.effect(say.run(say.started(), say.failed(retry_at=5_000)))

    assert (effect.retry_at, effect.attempt, effect.final) == (5_000, 1, False)


def test_a_resend_keeps_the_effect_unknown_while_the_earlier_attempt_is_unsettled() -> None:
    effect = say.effect(say.run(say.started(), say.lost(quiet_at=20), say.started(30, 2, resend=True)))

    assert (effect.outcome, effect.attempt) == ("unknown", 2)


def test_a_resend_that_was_refused_settles_itself_alone() -> None:
    settled = e.AttemptSettled(at=40, step=say.STEP, attempt=2, reason="rejected", why="no such order")
    effect = say.effect(say.run(say.started(), say.lost(quiet_at=20), say.started(30, 2, resend=True), settled))

    assert effect.outcome == "unknown"
    assert [attempt.settled for attempt in effect.doubt.attempts] == ["", "rejected"]
    assert effect.doubt.attempts[1].quiet_at == 40


def test_the_moment_of_quiet_is_fixed_once() -> None:
    quieted = e.AttemptQuieted(at=90, step=say.STEP, attempt=1, quiet_at=90, died=True)
    again = say.lost(95, quiet_at=95)

    attempt = say.effect(say.run(say.started(), say.lost(), quieted, quieted, again)).doubt.attempts[0]
    early = say.effect(say.run(say.started(), say.lost(quiet_at=20), quieted)).doubt.attempts[0]

    assert attempt.quiet_at == 90
    assert (early.quiet_at, early.died) == (20, True)


def test_settling_does_not_move_a_moment_of_quiet_that_is_known() -> None:
    settled = e.AttemptSettled(at=80, step=say.STEP, attempt=2, reason="not_sent")
    state = say.run(
        say.started(), say.lost(quiet_at=20), say.started(30, 2, resend=True), say.lost(40, 2, quiet_at=41), settled,
        say.failed(90, 2, reason="absent"), say.started(95, 3), say.lost(96, 3, quiet_at=97), say.confirmed(99, 3),
    )  # fmt: skip

    assert [attempt.quiet_at for attempt in say.effect(state).doubt.attempts] == [20, 41, 97]


def test_what_was_sent_again_after_an_absence_is_to_be_asked_about_once_more() -> None:
    again = [say.started(), say.lost(quiet_at=20), *say.absent(50), say.started(60, 2)]

    assert say.effect(say.run(*again, say.confirmed(70, 2))).verify_from == 70
    assert say.effect(say.run(*again, say.confirmed(70, 2), say.found(80, "happened"))).verify_from is None
    assert say.effect(say.run(*again, say.confirmed(70, 2), say.found(80, "did_not_happen"))).verify_from is None
    assert say.effect(say.run(*again, say.confirmed(70, 2), say.found(80, "still_unknown"))).verify_from == 70


def test_what_a_person_said_did_not_happen_is_not_asked_about_after_its_retry() -> None:
    state = say.run(
        say.started(),
        say.lost(),
        say.failed(30, reason="person", by="person ann"),
        say.started(40, 2),
        say.confirmed(50, 2),
    )

    assert say.effect(state).verify_from is None
    assert say.effect(state).doubt.attempts[0].settled == "person"


def test_a_person_s_word_ends_the_last_question() -> None:
    looked = say.found(80, "happened", by="person ann")
    state = say.run(
        say.started(), say.lost(quiet_at=20), *say.absent(50), say.started(60, 2), say.confirmed(70, 2), looked
    )

    assert say.effect(state).verify_from is None


def test_findings_are_counted_and_their_absences_kept() -> None:
    effect = say.effect(
        say.run(
            say.started(),
            say.lost(quiet_at=20),
            say.found(30, "did_not_happen"),
            say.found(40, "still_unknown", ask_at=99),
        )
    )

    assert (effect.doubt.asks, effect.doubt.absences, effect.doubt.ask_at) == (2, [30], 99)


def test_a_need_for_a_person_is_a_reason_on_unknown_and_no_outcome() -> None:
    effect = say.effect(say.run(say.started(), say.lost(), e.PersonNeeded(at=30, step=say.STEP, why="found twice")))

    assert (effect.outcome, effect.doubt.person) == ("unknown", "found twice")


def test_a_contradiction_is_written_beside_the_outcome_and_calls_a_person() -> None:
    against = e.Contradicted(at=90, step=say.STEP, evidence="it returned after all", by="worker-1")

    effect = say.effect(say.run(say.started(), say.failed(final=True), against))

    assert (effect.outcome, effect.contradicted, effect.doubt.person) == ("failed", True, "it returned after all")


def test_a_contradiction_of_an_earlier_segment_s_effect_touches_none_of_this_one() -> None:
    against = e.Contradicted(at=90, step="", evidence="it returned after all", by="worker-1")

    state = say.run(say.started(), against)

    assert (say.effect(state).outcome, say.effect(state).contradicted) == ("started", False)


def test_a_credential_s_fingerprint_stays_with_its_effect() -> None:
    used = e.CredentialUsed(at=11, step=say.STEP, name="stripe", fingerprint="f1")

    assert say.effect(say.run(say.started(), used)).credentials == {"stripe": "f1"}


# ---------------------------------------------------------------- money


def test_a_reservation_is_settled_with_what_was_truly_spent() -> None:
    reserved = say.run(say.started(reserve=say.usd(2)), granted=say.usd(5))
    exact = say.run(say.started(reserve=say.usd(2)), say.confirmed(spent=say.usd("0.5")), granted=say.usd(5))
    silent = say.run(say.started(reserve=say.usd(2)), say.confirmed(), granted=say.usd(5))

    assert reserved.ledger.left("usd") == 3
    assert (exact.ledger.spent, exact.ledger.left("usd")) == (say.usd("0.5"), Decimal("4.5"))
    assert (silent.ledger.spent, silent.ledger.left("usd")) == (say.usd(2), Decimal(3))


def test_an_unknown_effect_keeps_its_reservation() -> None:
    state = say.run(say.started(reserve=say.usd(2)), say.lost(), granted=say.usd(5))

    assert state.ledger.reserved == {say.STEP: say.usd(2)}


def test_a_final_failure_gives_its_reservation_back_and_a_passing_one_keeps_it() -> None:
    final = say.run(say.started(reserve=say.usd(2)), say.failed(final=True), granted=say.usd(5))
    charged = say.run(say.started(reserve=say.usd(2)), say.failed(final=True, spent=say.usd(1)), granted=say.usd(5))
    passing = say.run(say.started(reserve=say.usd(2)), say.failed(), granted=say.usd(5))

    assert final.ledger.left("usd") == 5
    assert charged.ledger.left("usd") == 4
    assert passing.ledger.left("usd") == 3


def test_a_costed_read_that_was_lost_is_booked_in_full_when_it_is_called_again() -> None:
    again = say.started(30, 2, resend=True, reserve=say.usd(2))

    state = say.run(say.started(effect="read", reserve=say.usd(2)), say.lost(), again, granted=say.usd(5))

    assert (state.ledger.spent, state.ledger.reserved) == (say.usd(2), {say.STEP: say.usd(2)})
    assert state.ledger.left("usd") == 1


# ---------------------------------------------------------------- approvals


def test_an_approval_is_asked_answered_and_used_once() -> None:
    answered = e.ApprovalAnswered(at=12, id="ap-1", approved=True, by="ann")
    asked, approved = say.run(say.planned(), ASKED), say.run(say.planned(), ASKED, answered)
    used = say.run(say.planned(), ASKED, answered, say.started(plan=None, approval="ap-1"))

    assert asked.approvals["ap-1"].verdict == "asked"
    assert (approved.approvals["ap-1"].verdict, approved.approvals["ap-1"].by) == ("approved", "ann")
    assert used.approvals["ap-1"].verdict == "used"
    assert say.effect(used).approval == "ap-1"


def test_a_denial_keeps_its_reason() -> None:
    denied = e.ApprovalAnswered(at=12, id="ap-1", approved=False, by="ann", why="too much")

    approval = say.run(say.planned(), ASKED, denied).approvals["ap-1"]

    assert (approval.verdict, approval.by, approval.why) == ("denied", "ann", "too much")


def test_an_effect_that_a_rule_denies_before_it_is_tried_again_has_failed_for_good() -> None:
    denied = say.failed(at=30, reason="denied", final=True, retry_at=None, by="policy never", policy="1+ab")

    effect = say.effect(say.run(say.started(), say.failed(), denied))

    assert (effect.outcome, effect.reason, effect.final, effect.by) == ("failed", "denied", True, "policy never")
    with pytest.raises(IllegalOutcome):
        say.run(say.started(), say.failed(), denied, denied)

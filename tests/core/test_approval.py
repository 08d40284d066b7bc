"""An approval is for exactly one effect: whatever of it changes is another approval, and absence is denial."""

from itertools import combinations
from typing import Any

import pytest
from msgspec.structs import replace

from milepost.core.approval import Approval, Binding, approval_id, facts, same_person
from milepost.core.statement import APPROVAL, domain_of

BOUND = Binding(":0", "charge", "1", "keyed", "d1", "p+1")
ANOTHER = {"step": ":1", "tool": "refund", "version": "2", "effect": "read", "digest": "d2", "policy": "p+2"}
NOW = 20


def approval(verdict: str = "approved", **more: Any) -> Approval:
    bound = BOUND
    given = Approval(
        "ap-1", bound.step, bound.version, bound.digest, 10, bound.tool, bound.effect, bound.policy, expires_at=30
    )
    given.verdict = verdict  # type: ignore[assignment]
    for name, value in more.items():
        setattr(given, name, value)
    return given


def id_(run: str = "run-1", visit: int = 0, place: str = "0/0", who: str = "bot", until: int = 30, **bound: str) -> str:
    return approval_id(run, visit, place, replace(BOUND, **bound), who, until)


def test_only_an_approval_that_was_given_and_not_used_permits() -> None:
    """Requirement 20."""
    verdicts = ("asked", "approved", "denied", "used", "superseded", "expired")

    assert [verdict for verdict in verdicts if approval(verdict).permits(BOUND, NOW)] == ["approved"]


@pytest.mark.parametrize("what", list(ANOTHER))
def test_an_approval_does_not_permit_anything_else(what: str) -> None:
    """Requirement 20."""
    assert not approval().permits(replace(BOUND, **{what: ANOTHER[what]}), NOW)


def test_an_approval_permits_nothing_from_the_moment_on_in_which_it_expires() -> None:
    assert [approval().permits(BOUND, now) for now in (29, 30, 31)] == [True, False, False]


def test_the_id_of_an_approval_follows_from_what_it_is_for() -> None:
    assert id_() == id_()
    assert id_().startswith("ap-")


def test_a_change_of_anything_it_is_for_makes_another_approval() -> None:
    changed = [{what: value} for what, value in ANOTHER.items()]
    more: list[dict[str, Any]] = [{"run": "run-2"}, {"visit": 1}, {"place": "1/0"}, {"who": "eve"}, {"until": 31}]

    assert len({id_(), *(id_(**one) for one in [*changed, *more])}) == 1 + len(changed) + len(more)


def test_the_parts_of_an_approval_s_place_cannot_be_shifted_into_each_other() -> None:
    shifted = [id_(tool="char", version="ge1"), id_(tool="charge1", version=""), id_(tool="charge\x001", version="")]

    assert all(one != other for one, other in combinations([*shifted, id_()], 2))


def test_what_is_signed_says_all_that_is_bound_and_all_that_was_said() -> None:
    def signed(store: str = "s", run: str = "r", **said: Any) -> bytes:
        told = {"approved": True, "by": "ann", "why": "ok", "at": 15, **said}
        return approval(**{name: told.pop(name) for name in list(told) if name in FIELDS}).statement(store, run, **told)

    fields: dict[str, Any] = {
        "id": "ap-2", "step": ":1", "tool": "refund", "tool_version": "2", "effect": "read", "digest": "d2",
        "policy": "p+2", "expires_at": 31, "requester": "eve",
    }  # fmt: skip
    said: dict[str, Any] = {"store": "t", "run": "q", "approved": False, "by": "bob", "why": "no", "at": 16}
    FIELDS = set(fields)  # noqa: N806  what belongs to the approval and not to the answer

    assert domain_of(signed()) == APPROVAL
    assert len({signed(), *(signed(**{name: value}) for name, value in {**fields, **said}.items())}) == 16


def test_what_is_signed_has_the_same_names_in_every_version() -> None:
    """An answer that was signed yesterday, or on another machine, must be what is verified today."""
    given = approval(requester="bot")

    assert facts(given, "s", "r", approved=False, by="ann", why="no", at=15) == {
        "store": "s", "run": "r", "approval": "ap-1", "step": ":0", "tool": "charge", "version": "1", "effect": "keyed",
        "digest": "d1", "policy": "p+1", "requester": "bot", "expires_at": 30, "approved": False, "by": "ann",
        "why": "no", "at": 15,
    }  # fmt: skip


@pytest.mark.parametrize(("verdict", "approved"), [("approved", True), ("used", True), ("denied", False)])
def test_a_recorded_answer_must_have_signed_what_it_says_also_after_it_was_used(
    verdict: str,
    approved: bool,  # noqa: FBT001
) -> None:
    answered = approval(verdict, by="ann", why="ok", said_at=15)

    assert answered.said("s", "r") == answered.statement("s", "r", approved=approved, by="ann", why="ok", at=15)


def test_a_name_is_the_same_person_s_however_it_is_spelt_and_nobody_is_nobody() -> None:
    assert same_person("Ann ", "ann")
    assert same_person("\uff41nn", "ann")
    assert not same_person("ann", "bob")
    assert not same_person("", "")

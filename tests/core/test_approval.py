"""An approval is for exactly one effect: other bytes are another approval, and absence is denial."""

from itertools import combinations

from milepost.core.approval import Approval, approval_id

PLACE = ("run-1", 0, ":0", "charge", "1", "d1")


def approval(verdict: str) -> Approval:
    return Approval("ap-1", ":0", "1", "d1", 10, verdict)  # type: ignore[arg-type]


def test_only_an_approval_that_was_given_and_not_used_permits() -> None:
    assert {verdict: approval(verdict).permits("1", "d1") for verdict in ("asked", "approved", "denied", "used")} == {
        "asked": False, "approved": True, "denied": False, "used": False,
    }  # fmt: skip


def test_an_approval_does_not_permit_other_arguments_or_another_version() -> None:
    """Requirement 20."""
    given = approval("approved")

    assert not given.permits("1", "d2")
    assert not given.permits("2", "d1")


def test_the_id_of_an_approval_follows_from_what_it_is_for() -> None:
    assert approval_id(*PLACE) == approval_id(*PLACE)
    assert approval_id(*PLACE).startswith("ap-")


def test_a_change_of_anything_it_is_for_makes_another_approval() -> None:
    others = [("run-2", 1, ":1", "refund", "2", "d2")[i] for i in range(6)]
    ids = {approval_id(*(others[i] if i == changed else PLACE[i] for i in range(6))) for changed in range(7)}  # type: ignore[arg-type]

    assert len(ids) == 7


def test_the_parts_of_an_approval_s_place_cannot_be_shifted_into_each_other() -> None:
    shifted = [("run-1", 0, ":0", "char", "ge1", "d1"), ("run-1", 0, ":0", "charge1", "", "d1"), PLACE]

    assert all(approval_id(*one) != approval_id(*other) for one, other in combinations(shifted, 2))

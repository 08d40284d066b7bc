"""Whose turn it is: what a limit counts, who is let through, and in which order."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from milepost.core.queues import Limit, Turns, Used, fills, free_at

TOGETHER = Limit("mail", together=2)
KEEPS = Limit("mail", together=2, begun=True)
RATE = Limit("mail", starts=3, per_ms=1_000)


@dataclass
class One:
    """A run that is due."""

    id: str
    queue: str = "mail"
    group: str | None = None
    began: int | None = None
    ended: bool = False


def chosen(limits: list[Limit], due: list[One], most: int = 9, used: dict[str | None, Used] | None = None) -> str:
    return " ".join(run.id for run in Turns(limits, lambda _: dict(used or {})).choose(due, most))


def test_a_limit_of_each_group_governs_what_is_of_a_group() -> None:
    of_each = Limit("mail", each_group=True, together=1)

    assert of_each.governs("mail", "ann")
    assert not of_each.governs("mail", None)
    assert not of_each.governs("other", "ann")
    assert TOGETHER.governs("mail", None)


def test_a_limit_of_those_that_are_held_stops_whoever_is_next_also_one_that_began() -> None:
    assert not fills(TOGETHER, Used(1), None)
    assert fills(TOGETHER, Used(2), None)
    assert fills(TOGETHER, Used(2), 5)


def test_a_limit_that_counts_who_waits_lets_those_go_on_that_began() -> None:
    assert fills(KEEPS, Used(2), None)
    assert not fills(KEEPS, Used(2), 5)


def test_a_limit_of_starts_stops_those_alone_that_have_not_begun() -> None:
    assert not fills(RATE, Used(recent=2), None)
    assert fills(RATE, Used(recent=3), None)
    assert not fills(RATE, Used(recent=3), 5)


def test_time_makes_room_where_starts_are_limited_and_used_up() -> None:
    assert free_at(RATE, Used(recent=3, oldest=100)) == 1_100
    assert free_at(RATE, Used(recent=2, oldest=100)) is None
    assert free_at(RATE, Used(recent=3)) is None
    assert free_at(TOGETHER, Used(9, oldest=100)) is None


def test_what_two_groups_use_is_used_together() -> None:
    assert Used(1, 2, 30).plus(Used(3, 1, 10)) == Used(4, 3, 10)
    assert Used(1).plus(Used(1)) == Used(2)


def test_of_those_that_are_due_as_many_are_chosen_as_there_is_room_for() -> None:
    due = [One("a"), One("b"), One("c"), One("d", queue="other")]

    assert chosen([TOGETHER], due) == "a b d"
    assert chosen([TOGETHER], due, used={None: Used(1)}) == "a d"
    assert chosen([TOGETHER], due, used={"ann": Used(1), "bob": Used(1)}) == "d"
    assert chosen([TOGETHER], due, most=1) == "a"
    assert chosen([], due) == "a b c d"


def test_each_group_is_counted_by_itself() -> None:
    of_each = Limit("mail", each_group=True, together=1)
    due = [One("a1", group="ann"), One("a2", group="ann"), One("b1", group="bob"), One("c"), One("c2")]

    assert chosen([of_each], due) == "a1 b1 c c2"
    assert chosen([of_each], due, used={"ann": Used(1)}) == "b1 c c2"


def test_who_is_stopped_by_one_limit_uses_nothing_of_another() -> None:
    one_each, two = Limit("mail", each_group=True, together=1), TOGETHER
    due = [One("a1", group="ann"), One("a2", group="ann"), One("b1", group="bob")]

    assert chosen([two, one_each], due) == "a1 b1"


def test_who_began_uses_no_start_and_keeps_the_place_that_it_has() -> None:
    assert chosen([RATE], [One("a", began=1), One("b"), One("c")], used={None: Used(recent=2, oldest=5)}) == "a b"
    assert chosen([KEEPS], [One("a", began=1), One("b"), One("c")], used={None: Used(1)}) == "a b"
    assert chosen([KEEPS], [One("a", began=1), One("b")], used={None: Used(2)}) == "a"


def test_what_has_ended_needs_no_turn() -> None:
    assert chosen([TOGETHER], [One("a", ended=True), One("b")], used={None: Used(2)}) == "a"


@given(
    st.lists(st.tuples(st.sampled_from(["ann", "bob", None]), st.booleans()), max_size=30),
    st.integers(1, 4),
    st.integers(0, 4),
    st.sampled_from(["queue", "group"]),
)
def test_never_are_more_chosen_than_a_limit_lets_through(
    runs: list[tuple[str | None, bool]], together: int, held: int, by: str
) -> None:
    each = by == "group"
    limit = Limit("mail", each_group=each, together=together)
    due = [One(str(n), group=group, began=1 if began else None) for n, (group, began) in enumerate(runs)]

    ids = chosen([limit], due, most=100, used={"ann": Used(held)}).split()

    for group in ("ann", "bob"):
        of_group = [run for run in due if run.id in ids and run.group == group]
        most = max(0, together - (held if group == "ann" else 0))
        assert len(of_group) <= most
    if not each:
        assert len(ids) == min(len(due), max(0, together - held))

"""Queues: who is due comes in the order of turns, and a limit is decided in the transaction that takes a run."""

from __future__ import annotations

from typing import Any

from milepost.core.queues import Limit, Place, Serving
from milepost.stores.api import Claim, Head
from milepost.stores.fleet import LimitReached, QueueRow
from milepost.testing.store_conformance.subject import Subject, append, proves, refused, status

TWO = Limit("mail", together=2)
ONE_EACH = Limit("mail", each_group=True, together=1)
KEEPS = Limit("mail", each_group=True, together=1, begun=True)
RATE = Limit("mail", starts=2, per_ms=1_000)


def claim(run_id: str, *limits: Limit, at: int = 100, owner: str = "worker-1", owner_was: str | None = None) -> Claim:
    """Return a claim under limits."""
    return Claim(run_id, owner, owner_was, at, lambda epoch: f"claimed {epoch}".encode(), limits)


async def take(subject: Subject, run_id: str, *limits: Limit, **facts: Any) -> Head:
    """Claim a run that must be given."""
    head: Head = await subject.done(claim(run_id, *limits, **facts))
    return head


async def stand(subject: Subject, *run_ids: str, group: str | None = None, **facts: Any) -> None:
    """Create runs in the queue."""
    for run_id in run_ids:
        await subject.create(run_id, place=Place("mail", 0, group), **facts)


async def park(subject: Subject, head: Head, due: int | None = 900) -> None:
    """Park a run."""
    await subject.done(append(head, b"parked", status=status("parked", reason="time"), release=(10, due)))


async def end(subject: Subject, head: Head) -> None:
    """End a run."""
    await subject.done(append(head, b"done", status=status("done"), release=(10, None)))


async def turns(subject: Subject, *limits: Limit, now: int = 100, most: int = 9, queues: Any = None) -> list[str]:
    """Return who is due."""
    return [run.id for run in await subject.store.due(now, ["desk"], most, Serving(queues, limits))]


class Turns:
    """Queues, priorities and limits."""

    @proves
    async def test_a_run_stands_where_its_start_said(self, subject: Subject) -> None:
        await subject.create("a1", place=Place("mail", -3, "ann"))
        await subject.create("a2")

        one, two = await subject.store.run("a1"), await subject.store.run("a2")

        assert (one.queue, one.priority, one.group) == ("mail", -3, "ann")
        assert (two.queue, two.priority, two.group) == ("default", 0, None)

    @proves
    async def test_the_highest_priority_goes_first_and_among_equals_who_was_due_first(self, subject: Subject) -> None:
        await subject.create("late", due=9)
        await subject.create("early", due=5)
        await subject.create("urgent", due=50, place=Place(priority=7))
        await subject.create("last", due=1, place=Place(priority=-7))

        assert await turns(subject) == ["urgent", "early", "late", "last"]
        assert await turns(subject, most=2) == ["urgent", "early"]
        assert await turns(subject, now=10) == ["early", "late", "last"]

    @proves
    async def test_a_worker_is_shown_the_runs_of_its_queues_alone(self, subject: Subject) -> None:
        await subject.create("a1")
        await stand(subject, "a2")

        assert await turns(subject, queues=("mail",)) == ["a2"]
        assert await turns(subject, queues=("mail", "default")) == ["a1", "a2"]
        assert await turns(subject, queues=("other",)) == []

    @proves
    async def test_of_a_queue_no_more_are_taken_than_may_go_together(self, subject: Subject) -> None:
        await stand(subject, "a1", "a2", "a3", "a4")
        other = await subject.other()

        assert await turns(subject, TWO) == ["a1", "a2"]
        await take(subject, "a1", TWO)
        (mine, theirs) = await subject.write(claim("a2", TWO), claim("a3", TWO))
        (late,) = await subject.write(claim("a4", TWO, owner="worker-2"), store=other)

        assert isinstance(mine, Head)
        assert refused(theirs, LimitReached).until is None
        assert refused(late, LimitReached).queue == "mail"
        assert await turns(subject, TWO) == []
        assert (await subject.store.run("a3")).owner is None

    @proves
    async def test_who_rests_or_ends_makes_room(self, subject: Subject) -> None:
        await stand(subject, "a1", "a2", "a3", "a4")
        first, second = await take(subject, "a1", TWO), await take(subject, "a2", TWO)

        await park(subject, first)
        await take(subject, "a3", TWO)
        refused((await subject.write(claim("a4", TWO)))[0], LimitReached)
        await end(subject, second)

        assert await turns(subject, TWO) == ["a4"]
        await take(subject, "a4", TWO)

    @proves
    async def test_what_has_ended_is_taken_whatever_the_limits_say(self, subject: Subject) -> None:
        await stand(subject, "a1", "a2", "a3")
        await end(subject, await take(subject, "a1", TWO))
        await take(subject, "a2", TWO)
        await take(subject, "a3", TWO)

        assert (await take(subject, "a1", TWO)).epoch == 2

    @proves
    async def test_who_is_killed_makes_room(self, subject: Subject) -> None:
        await stand(subject, "a1", "a2", "a3")
        await take(subject, "a1", TWO)
        await take(subject, "a2", TWO)

        await subject.kill("a1")

        await take(subject, "a3", TWO)

    @proves
    async def test_each_group_has_its_own_limit_and_who_is_of_no_group_has_none(self, subject: Subject) -> None:
        await stand(subject, "a1", "a2", "a3", group="ann")
        await stand(subject, "b1", "b2", group="bob")
        await stand(subject, "c1", "c2")

        assert await turns(subject, ONE_EACH) == ["a1", "b1", "c1", "c2"]
        await take(subject, "a1", ONE_EACH)
        error = refused((await subject.write(claim("a2", ONE_EACH)))[0], LimitReached)
        await take(subject, "c1", ONE_EACH)
        await take(subject, "c2", ONE_EACH)

        assert error.group == "ann"
        assert await turns(subject, ONE_EACH) == ["b1"]

    @proves
    async def test_where_waiting_keeps_the_place_who_began_alone_may_go_on(self, subject: Subject) -> None:
        await stand(subject, "a1", "a2", group="ann")
        first = await take(subject, "a1", KEEPS)
        await park(subject, first, due=50)

        assert await turns(subject, KEEPS) == ["a1"]
        refused((await subject.write(claim("a2", KEEPS)))[0], LimitReached)
        await end(subject, await take(subject, "a1", KEEPS))

        assert await turns(subject, KEEPS) == ["a2"]
        await take(subject, "a2", KEEPS)

    @proves
    async def test_within_a_span_no_more_runs_begin_than_it_allows(self, subject: Subject) -> None:
        await stand(subject, "a1", "a2", "a3", "a4")
        await end(subject, await take(subject, "a1", RATE, at=100))
        second = await take(subject, "a2", RATE, at=600)

        error = refused((await subject.write(claim("a3", RATE, at=700)))[0], LimitReached)
        assert error.until == 1_100
        assert await turns(subject, RATE, now=700) == []
        await park(subject, second, due=800)
        assert await turns(subject, RATE, now=900) == ["a2"], "who began goes on"
        await take(subject, "a3", RATE, at=1_100)

        assert await turns(subject, RATE, now=1_200) == ["a2"]
        assert await turns(subject, RATE, now=1_600) == ["a4", "a2"]

    @proves
    async def test_of_a_group_too_no_more_begin_than_the_span_allows(self, subject: Subject) -> None:
        limit = Limit("mail", each_group=True, starts=1, per_ms=1_000)
        await stand(subject, "a1", "a2", group="ann")
        await stand(subject, "b1", group="bob")
        await take(subject, "a1", limit, at=100)

        assert refused((await subject.write(claim("a2", limit, at=300)))[0], LimitReached).until == 1_100
        assert await turns(subject, limit, now=300) == ["b1"]
        assert await subject.store.next_due(300, ["desk"], Serving(None, (limit,))) == 1_100

    @proves
    async def test_all_limits_of_a_run_must_have_room(self, subject: Subject) -> None:
        await stand(subject, "a1", "a2", group="ann")
        await stand(subject, "b1", "b2", group="bob")
        await take(subject, "a1", TWO, ONE_EACH)

        assert await turns(subject, TWO, ONE_EACH) == ["b1"]
        await take(subject, "b1", TWO, ONE_EACH)
        (error,) = await subject.write(claim("b2", TWO, ONE_EACH))

        assert refused(error, LimitReached).group is None

    @proves
    async def test_a_limit_of_another_queue_is_nobody_s_here(self, subject: Subject) -> None:
        await subject.create("a1")
        await subject.create("a2")

        await take(subject, "a1", Limit("mail", together=1))
        await take(subject, "a2", Limit("mail", together=1))

    @proves
    async def test_who_takes_a_run_over_is_not_asked_for_its_turn(self, subject: Subject) -> None:
        await stand(subject, "a1", "a2", group="ann")
        await take(subject, "a1", ONE_EACH)

        await take(subject, "a1", ONE_EACH, owner="worker-2", owner_was="worker-1")

        assert (await subject.store.run("a1")).owner == "worker-2"

    @proves
    async def test_what_has_ended_is_settled_without_a_turn(self, subject: Subject) -> None:
        await stand(subject, "a1", "a2", group="ann")
        await end(subject, await take(subject, "a1", ONE_EACH))
        await take(subject, "a2", ONE_EACH)

        await take(subject, "a1", ONE_EACH)

    @proves
    async def test_the_next_moment_is_when_a_run_of_these_queues_falls_due(self, subject: Subject) -> None:
        await subject.create("a1", due=700)
        await stand(subject, "a2", due=500)
        await subject.create("a3", workflow="other", due=300)
        await subject.create("a4", due=90)
        store = subject.store

        assert await store.next_due(100, ["desk"]) == 500
        assert await store.next_due(100, ["desk"], Serving(("default",))) == 700
        assert await store.next_due(700, ["desk"]) is None

    @proves
    async def test_due_among_names_those_of_the_given_runs_that_may_be_claimed(self, subject: Subject) -> None:
        await subject.create("a1")
        await subject.create("a2", due=500)
        await subject.held("a3")
        await subject.create("a4")

        found = await subject.store.due_among(100, ["a1", "a2", "a3", "nobody"])

        assert [run.id for run in found] == ["a1"]

    @proves
    async def test_queues_say_who_waits_since_when_and_who_is_held(self, subject: Subject) -> None:
        await stand(subject, "a1", due=40)
        await stand(subject, "a2", due=30)
        await stand(subject, "a3", due=900)
        await subject.held("a4")

        assert await subject.store.queues(100) == [QueueRow("default", 0, None, 1), QueueRow("mail", 2, 30, 0)]

    @proves
    async def test_what_is_held_and_not_written_to_is_listed_as_still(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.held("a2")
        await subject.create("a3")
        await subject.done(append(head, b"moved", at=500))

        (still,) = await subject.store.still(400)
        assert (still.id, still.workflow, still.segment, still.owner) == ("a2", "desk", "pay", "worker-1")
        assert [one.id for one in await subject.store.still(501)] == ["a2", "a1"]

    @proves
    async def test_what_another_process_wrote_may_be_hinted_at_and_is_told_once(self, subject: Subject) -> None:
        other = await subject.other()
        await subject.create("a1")
        hinted = subject.store.changed()
        if hinted:
            assert not subject.store.changed()

        await subject.create("a2", store=other)

        assert subject.store.changed() or not hinted
        assert not all(subject.store.changed() for _ in range(9))  # what comes over a network may come a little later

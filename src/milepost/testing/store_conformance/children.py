"""Children: their ends wake a parent that waits for many now and then, and the last of them at once."""

from __future__ import annotations

from milepost.errors import UnknownRun
from milepost.stores.api import Head, Post
from milepost.testing.store_conformance.subject import Subject, append, deliver, proves, raised, status


async def family(subject: Subject, count: int = 3) -> tuple[Head, list[Head]]:
    """Create a parent and its children, all of them held."""
    parent = await subject.held("p1")
    return parent, [await subject.held(f"c{number}", parent="p1") for number in range(count)]


async def park(subject: Subject, parent: Head, patience: int = 500, due: int | None = None) -> None:
    """Park the parent at moment 100."""
    parked = append(parent, b"parked", status=status("parked", reason="child"), release=(100, due), patience=patience)
    await subject.done(parked)


async def end(subject: Subject, child: Head, at: int) -> None:
    """End a child, which tells its parent."""
    told = Post("p1", f"end of {child.run_id}", b"ended", at, patient=True)
    await subject.done(append(child, b"done", status=status("done"), posts=[told], release=(at, None)))


async def due(subject: Subject) -> int | None:
    """Return when the parent is due."""
    return (await subject.store.run("p1")).due


class Children:
    """Parents of many."""

    @proves
    async def test_children_are_listed_oldest_first_all_or_those_that_have_not_ended(self, subject: Subject) -> None:
        _, (first, second, _) = await family(subject)
        await end(subject, second, 10)
        await subject.create("c9", parent="p1")
        await subject.create("other")
        store = subject.store

        listed = [id_ for id_, _ in await store.children("p1", 9)]
        assert listed == ["c0", "c1", "c2", "c9"]
        assert await store.children("p1", 2, live=True) == [("c0", "running"), ("c2", "running")]
        assert await store.children(first.run_id, 9) == []
        await raised(store.children("nobody", 9), UnknownRun)

    @proves
    async def test_the_end_of_a_child_waits_for_the_others_as_long_as_the_parent_is_patient(
        self, subject: Subject
    ) -> None:
        parent, (first, second, _) = await family(subject)
        await park(subject, parent)

        await end(subject, first, 200)
        assert await due(subject) == 700
        await end(subject, second, 300)
        assert await due(subject) == 700

    @proves
    async def test_the_last_child_wakes_its_parent_at_once(self, subject: Subject) -> None:
        parent, heads = await family(subject)
        await park(subject, parent)
        for at, child in enumerate(heads, start=200):
            await end(subject, child, at)

        assert await due(subject) == 202
        assert len(await subject.messages("p1")) == 3

    @proves
    async def test_a_parent_that_is_not_patient_is_woken_by_each(self, subject: Subject) -> None:
        parent, (first, _, _) = await family(subject)
        await park(subject, parent, patience=0)

        await end(subject, first, 200)

        assert await due(subject) == 200

    @proves
    async def test_any_other_message_wakes_a_patient_parent_at_once(self, subject: Subject) -> None:
        parent, (first, _, _) = await family(subject)
        await park(subject, parent)
        await end(subject, first, 200)

        await subject.done(deliver("p1", "m1", at=250))

        assert await due(subject) == 250

    @proves
    async def test_what_arrived_while_the_parent_was_held_waits_too_where_only_children_ended(
        self, subject: Subject
    ) -> None:
        parent, (first, second, third) = await family(subject)
        await end(subject, first, 50)
        await park(subject, parent, due=90_000)
        assert await due(subject) == 600

        again = await subject.claim("p1")
        await subject.done(deliver("p1", "m1", at=60))
        await park(subject, again)
        assert await due(subject) == 100

        once_more = await subject.claim("p1")
        await subject.done(append(once_more, b"took m1", taken=[id_ for id_, _ in await subject.store.inbox("p1")]))
        await end(subject, second, 70)
        await end(subject, third, 80)
        await park(subject, once_more)
        assert await due(subject) == 100, "the last of them has ended"

    @proves
    async def test_a_parent_that_was_patient_once_is_so_no_longer_than_it_says(self, subject: Subject) -> None:
        parent, (first, second, _) = await family(subject)
        await park(subject, parent)
        await end(subject, first, 200)
        await park(subject, await subject.claim("p1"), patience=0)

        await end(subject, second, 300)

        assert await due(subject) == 100

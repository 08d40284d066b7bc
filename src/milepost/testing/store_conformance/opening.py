"""Opening a place again: it is the same store, and everything is there."""

from __future__ import annotations

from milepost.core.chain import genesis
from milepost.testing.store_conformance.subject import Subject, append, deliver, proves, status


class Opening:
    """A store outlives its openings."""

    @proves
    async def test_a_store_has_one_id_in_every_opening(self, subject: Subject) -> None:
        other, third = await subject.other(), await subject.other()

        assert subject.store.id == other.id == third.id
        assert len(subject.store.id) >= 16
        assert subject.store.place == other.place

    @proves
    async def test_opening_again_changes_nothing(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.write(append(head, b"one"), deliver("a1", "m1"))
        before = (await subject.store.chain("a1"), await subject.store.run("a1"), await subject.store.inbox("a1"))

        other = await subject.other()

        assert (await other.chain("a1"), await other.run("a1"), await other.inbox("a1")) == before

    @proves
    async def test_an_owner_that_opens_again_goes_on_under_its_epoch(self, subject: Subject) -> None:
        await subject.held("a1")

        other = await subject.other()
        head = (await other.tail("a1")).head
        await subject.done(append(head, b"one", status=status("parked")), store=other)

        assert (head.epoch, (await subject.bodies("a1"))[-1]) == (1, b"one")

    @proves
    async def test_the_chain_of_a_run_is_bound_to_this_store(self, subject: Subject) -> None:
        await subject.create("a1")

        before, _, _ = await subject.store.chain("a1")

        assert before == genesis(subject.store.id, "a1")
        assert before != genesis("another store", "a1")

    @proves
    async def test_everything_that_the_store_rests_on_is_as_it_should_be(self, subject: Subject) -> None:
        checks = await subject.store.checks(now=1)

        assert [check for check in checks if not check.ok and check.name != "disk"] == []
        assert (await subject.store.pages()).ok

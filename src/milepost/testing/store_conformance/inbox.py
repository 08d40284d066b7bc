"""The inbox: anybody delivers, the owner takes, nothing is lost and nothing counts twice."""

from __future__ import annotations

from milepost.errors import EpochLost, UnknownRun
from milepost.stores.api import Post
from milepost.testing.store_conformance.subject import Subject, append, deliver, proves, refused, status


class Inbox:
    """Messages to a run."""

    @proves
    async def test_messages_wait_in_the_order_of_their_delivery(self, subject: Subject) -> None:
        await subject.create("a1")

        answers = await subject.write(*(deliver("a1", f"m{number}", b"%d" % number) for number in range(3)))

        assert answers == [True, True, True]
        assert await subject.messages("a1") == [b"0", b"1", b"2"]

    @proves
    async def test_a_message_that_is_delivered_twice_counts_once(self, subject: Subject) -> None:
        await subject.create("a1")

        answers = await subject.write(deliver("a1", "m1", b"first"), deliver("a1", "m1", b"second"))

        assert answers == [True, False]
        assert await subject.messages("a1") == [b"first"]

    @proves
    async def test_a_message_that_was_taken_is_still_known(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.write(deliver("a1", "m1"))
        ((message, _),) = await subject.store.inbox("a1")
        await subject.done(append(head, b"sent", taken=[message]))

        assert await subject.write(deliver("a1", "m1")) == [False]
        assert await subject.messages("a1") == []

    @proves
    async def test_the_same_message_id_may_be_sent_to_two_runs(self, subject: Subject) -> None:
        await subject.create("a1")
        await subject.create("a2")

        assert await subject.write(deliver("a1", "m1"), deliver("a2", "m1")) == [True, True]

    @proves
    async def test_a_message_for_nobody_is_refused(self, subject: Subject) -> None:
        (answer,) = await subject.write(deliver("nobody", "m1"))

        refused(answer, UnknownRun)

    @proves
    async def test_a_message_is_taken_in_the_append_that_journals_it(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.write(deliver("a1", "m1", b"one"), deliver("a1", "m2", b"two"))
        (first, _), _ = await subject.store.inbox("a1")

        await subject.done(append(head, b"signal one", taken=[first]))

        assert await subject.messages("a1") == [b"two"]
        assert (await subject.bodies("a1"))[-1] == b"signal one"

    @proves
    async def test_a_message_is_not_taken_by_an_append_that_is_refused(self, subject: Subject) -> None:
        lost = await subject.held("a1")
        await subject.write(deliver("a1", "m1"))
        ((message, _),) = await subject.store.inbox("a1")
        await subject.claim("a1", "worker-2", "worker-1")

        (answer,) = await subject.write(append(lost, b"signal", taken=[message]))

        refused(answer, EpochLost)
        assert await subject.messages("a1") == [b"hello"]

    @proves
    async def test_a_message_wakes_a_run_that_nobody_holds(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"parked", status=status("parked"), release=(10, None)))

        await subject.write(deliver("a1", "m1", at=50))

        assert [run.id for run in await subject.store.due(50, ["desk"], 10)] == ["a1"]

    @proves
    async def test_a_message_does_not_put_off_what_is_due_before(self, subject: Subject) -> None:
        await subject.create("a1", due=20)

        await subject.write(deliver("a1", "m1", at=50))

        assert (await subject.store.run("a1")).due == 20

    @proves
    async def test_a_message_for_a_held_run_is_seen_by_its_owner(self, subject: Subject) -> None:
        await subject.held("a1", "worker-1")
        await subject.held("a2", "worker-1")
        await subject.held("a3", "worker-2")

        await subject.write(deliver("a1", "m1"), deliver("a1", "m2"), deliver("a3", "m1"))

        assert await subject.store.with_mail("worker-1") == ["a1"]
        assert (await subject.store.run("a1")).due is None

    @proves
    async def test_a_run_that_is_released_with_messages_waiting_is_due_at_once(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.write(deliver("a1", "m1"))

        await subject.done(append(head, b"parked", status=status("parked"), release=(60, None)))

        assert (await subject.store.run("a1")).due == 60

    @proves
    async def test_a_run_that_takes_its_last_message_and_rests_is_not_woken_by_it(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.write(deliver("a1", "m1"))
        ((message, _),) = await subject.store.inbox("a1")

        await subject.done(append(head, b"signal", taken=[message], status=status("parked"), release=(60, 900)))

        assert (await subject.store.run("a1")).due == 900

    @proves
    async def test_a_run_may_write_to_another_in_its_own_append(self, subject: Subject) -> None:
        child = await subject.held("c1")
        parent = await subject.held("a1")
        await subject.done(append(parent, b"parked", status=status("parked"), release=(10, None)))

        await subject.done(append(child, b"done", status=status("done"), posts=[Post("a1", "child c1", b"ended", 70)]))

        assert await subject.messages("a1") == [b"ended"]
        assert (await subject.store.run("a1")).due == 70

    @proves
    async def test_what_waits_undelivered_is_counted_by_run(self, subject: Subject) -> None:
        await subject.create("a1")
        await subject.create("a2")

        await subject.write(deliver("a1", "m1"), deliver("a1", "m2"))

        assert await subject.store.undelivered() == {"a1": 2}

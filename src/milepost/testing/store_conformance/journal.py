"""The chain: entries stand in the order of writing, byte for byte, each bound to the one before."""

from __future__ import annotations

from milepost.core.chain import genesis, verify
from milepost.errors import EpochLost, UnknownRun
from milepost.stores.api import Head
from milepost.testing.store_conformance.subject import Subject, append, proves, raised, refused, status


class Journal:
    """Order, numbers and hashes of entries."""

    @proves
    async def test_entries_come_back_in_order_byte_for_byte(self, subject: Subject) -> None:
        odd = bytes(range(256))
        head = await subject.held("a1")

        await subject.done(append(head, b"one", odd, b""))
        await subject.done(append(head, b"four"))

        assert await subject.bodies("a1") == [b"created a1", b"claimed 1", b"one", odd, b"", b"four"]

    @proves
    async def test_every_entry_is_bound_to_the_one_before_and_the_first_to_store_and_run(
        self, subject: Subject
    ) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"one"))

        before, stored, found = await subject.store.chain("a1")

        assert before == genesis(subject.store.id, "a1")
        assert [one.seq for one in stored] == [1, 2, 3]
        assert verify("a1", before, 1, ((s.seq, s.body, s.hash) for s in stored), found.hash) == 3
        assert (found.seq, found.epoch) == (3, 1)

    @proves
    async def test_the_owner_s_head_moves_with_what_was_written(self, subject: Subject) -> None:
        head = await subject.held("a1")

        await subject.done(append(head, b"one", b"two"))

        _, stored, found = await subject.store.chain("a1")
        assert (head.seq, head.hash, head.row) == (4, stored[-1].hash, found.row)

    @proves
    async def test_several_appends_of_one_run_in_one_batch_follow_each_other(self, subject: Subject) -> None:
        head = await subject.held("a1")

        answers = await subject.write(append(head, b"one"), append(head, b"two", b"three"), append(head, b"four"))

        assert answers == [None, None, None]
        assert (await subject.bodies("a1"))[2:] == [b"one", b"two", b"three", b"four"]

    @proves
    async def test_runs_that_are_written_in_one_batch_have_chains_of_their_own(self, subject: Subject) -> None:
        heads = [await subject.held(f"a{number}") for number in range(5)]

        await subject.write(
            *(append(head, b"%d %s" % (turn, head.run_id.encode())) for turn in range(3) for head in heads)
        )

        for head in heads:
            name = head.run_id.encode()
            assert (await subject.bodies(head.run_id))[2:] == [b"0 " + name, b"1 " + name, b"2 " + name]

    @proves
    async def test_a_refused_append_leaves_no_gap(self, subject: Subject) -> None:
        lost = await subject.held("a1")
        won = await subject.claim("a1", "worker-2", "worker-1")
        other = await subject.held("a2")

        answers = await subject.write(
            append(won, b"one"), append(lost, b"stale"), append(other, b"two"), append(won, b"three")
        )

        refused(answers[1], EpochLost)
        assert [answers[0], answers[2], answers[3]] == [None, None, None]
        assert (await subject.bodies("a1"))[3:] == [b"one", b"three"]
        assert (await subject.bodies("a2"))[2:] == [b"two"]

    @proves
    async def test_processes_that_write_in_turns_keep_every_chain_whole(self, subject: Subject) -> None:
        other = await subject.other()
        mine = await subject.held("a1")
        theirs = await subject.claim((await subject.create("a2")).id, "worker-2", store=other)

        for turn in range(20):
            await subject.done(append(mine, b"%d" % turn))
            await subject.done(append(theirs, b"%d" % turn), store=other)

        expected = [b"%d" % turn for turn in range(20)]
        assert (await subject.bodies("a1"))[2:] == expected
        assert (await subject.bodies("a2", store=other))[2:] == expected

    @proves
    async def test_an_append_without_entries_changes_the_run_and_not_its_chain(self, subject: Subject) -> None:
        head = await subject.held("a1")

        await subject.done(append(head, status=status("parked", reason="signal")))

        assert await subject.bodies("a1") == [b"created a1", b"claimed 1"]
        assert (await subject.store.run("a1")).reason == "signal"
        await subject.done(append(head, b"one"))
        assert (await subject.bodies("a1"))[2:] == [b"one"]

    @proves
    async def test_what_is_committed_is_there_for_every_process(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"one"))

        other = await subject.other()

        assert await subject.bodies("a1", store=other) == [b"created a1", b"claimed 1", b"one"]
        assert other.id == subject.store.id

    # ------------------------------------------------------------ from the latest boundary

    @proves
    async def test_the_tail_begins_at_the_latest_boundary_and_ends_at_the_head(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"one", b"boundary 1", b"two", boundary=1))
        await subject.done(append(head, b"three"))
        await subject.done(append(head, b"boundary 2", b"four", boundary=0))

        tail = await subject.store.tail("a1")

        assert [one.plain for one in tail.entries] == [b"boundary 2", b"four"]
        assert [one.seq for one in tail.entries] == [7, 8]
        bodies = ((one.seq, one.body, one.hash) for one in tail.entries)
        assert verify("a1", tail.before, 7, bodies, tail.head.hash) == 2

    @proves
    async def test_the_tail_of_a_new_run_is_all_of_it(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"one"))

        tail = await subject.store.tail("a1")

        assert [one.plain for one in tail.entries] == [b"created a1", b"claimed 1", b"one"]
        assert tail.before == genesis(subject.store.id, "a1")

    @proves
    async def test_boundaries_of_several_appends_in_one_batch_leave_the_latest(self, subject: Subject) -> None:
        head, other = await subject.held("a1"), await subject.held("a2")

        await subject.write(
            append(head, b"boundary 1", boundary=0), append(other, b"x"), append(head, b"one"),
            append(head, b"two", b"boundary 2", boundary=1), append(head, b"three"),
        )  # fmt: skip

        assert [one.plain for one in (await subject.store.tail("a1")).entries] == [b"boundary 2", b"three"]
        assert (await subject.store.tail("a2")).entries[0].plain == b"created a2"

    @proves
    async def test_a_claim_does_not_move_the_boundary(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"boundary", boundary=0))

        await subject.claim("a1", "worker-2", "worker-1")

        assert [one.plain for one in (await subject.store.tail("a1")).entries] == [b"boundary", b"claimed 2"]

    @proves
    async def test_the_head_in_the_tail_can_be_appended_to(self, subject: Subject) -> None:
        await subject.held("a1")

        head: Head = (await subject.store.tail("a1")).head
        await subject.done(append(head, b"one"))

        assert (await subject.bodies("a1"))[2:] == [b"one"]

    @proves
    async def test_the_entries_after_a_number_are_read_apart(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"one", b"two"))

        assert [(one.seq, one.plain) for one in await subject.store.after("a1", 2)] == [(3, b"one"), (4, b"two")]
        assert await subject.store.after("a1", 4) == []

    @proves
    async def test_a_run_that_does_not_exist_has_no_record(self, subject: Subject) -> None:
        for reading in (subject.store.chain("nobody"), subject.store.tail("nobody"), subject.store.after("nobody", 0)):
            await raised(reading, UnknownRun)

    @proves
    async def test_the_segment_that_a_run_is_in_follows_its_head(self, subject: Subject) -> None:
        head = await subject.held("a1")

        head.segment = "mail"
        await subject.done(append(head, b"boundary", boundary=0))

        assert (await subject.store.run("a1")).segment == "mail"
        assert (await subject.store.tail("a1")).head.segment == "mail"

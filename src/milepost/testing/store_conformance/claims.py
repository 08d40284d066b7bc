"""Creating, claiming, releasing: one run for a key, one owner for a run, and the epoch that tells the latest."""

from __future__ import annotations

import asyncio

from milepost.errors import EpochLost, UnknownRun
from milepost.stores.api import Create, EffectRow, NewRun, Once
from milepost.stores.fleet import Enlist, WorkerRow
from milepost.testing.store_conformance.subject import (
    Subject,
    append,
    claim,
    deliver,
    proves,
    raised,
    refused,
    status,
)


class Claims:
    """One run for a key, one owner for a run."""

    @proves
    async def test_the_same_key_names_the_same_run(self, subject: Subject) -> None:
        first = await subject.create("a1", key="ticket-7", digest="d1")
        second = await subject.create("a2", key="ticket-7", digest="d2")

        assert (first.id, first.fresh) == ("a1", True)
        assert (second.id, second.fresh, second.workflow, second.digest) == ("a1", False, "desk", "d1")
        assert await subject.bodies("a1") == [b"created a1"]
        await raised(subject.store.run("a2"), UnknownRun)

    @proves
    async def test_creating_the_same_run_again_finds_it(self, subject: Subject) -> None:
        await subject.create("a1")

        again = await subject.create("a1", entry=b"other")

        assert (again.id, again.fresh) == ("a1", False)
        assert await subject.bodies("a1") == [b"created a1"]

    @proves
    async def test_attached_runs_have_keys_of_their_own(self, subject: Subject) -> None:
        await subject.create("a1", key="k")

        attached = await subject.create("a2", key="k", attached=True)

        assert (attached.id, attached.fresh) == ("a2", True)

    @proves
    async def test_runs_without_a_key_are_all_different(self, subject: Subject) -> None:
        assert (await subject.create("a1")).fresh
        assert (await subject.create("a2")).fresh

    @proves
    async def test_of_two_processes_that_start_the_same_key_one_creates_the_run(self, subject: Subject) -> None:
        other = await subject.other()
        new = [Create(NewRun(run_id, "desk", "1", "d", b"created", "pay", 1, 1, key="k")) for run_id in ("a1", "a2")]

        (first,), (second,) = await asyncio.gather(subject.store.commit([new[0]]), other.commit([new[1]]))

        assert sorted([first.fresh, second.fresh]) == [False, True]
        assert first.id == second.id

    @proves
    async def test_each_claim_raises_the_epoch_and_stands_in_the_chain(self, subject: Subject) -> None:
        await subject.create("a1")

        first = await subject.claim("a1", "worker-1")
        second = await subject.claim("a1", "worker-2", "worker-1")

        assert (first.epoch, first.seq, second.epoch, second.seq) == (1, 2, 2, 3)
        assert await subject.bodies("a1") == [b"created a1", b"claimed 1", b"claimed 2"]
        row = await subject.store.run("a1")
        assert (row.status, row.owner, row.epoch, row.seq, row.due) == ("running", "worker-2", 2, 3, None)

    @proves
    async def test_a_run_is_taken_only_from_whom_it_was_seen_with(self, subject: Subject) -> None:
        await subject.held("a1")

        answers = [(await subject.write(claim("a1", "worker-2", owner_was)))[0] for owner_was in (None, "worker-3")]

        assert [type(answer) for answer in answers] == [EpochLost, EpochLost]
        assert (await subject.store.run("a1")).owner == "worker-1"
        assert await subject.bodies("a1") == [b"created a1", b"claimed 1"]

    @proves
    async def test_a_run_that_does_not_exist_cannot_be_claimed(self, subject: Subject) -> None:
        (answer,) = await subject.write(claim("nobody"))

        refused(answer, UnknownRun)

    @proves
    async def test_of_two_processes_that_claim_one_run_one_gets_it(self, subject: Subject) -> None:
        other = await subject.other()
        for number in range(20):
            await subject.create(f"a{number}")

            (one,), (two,) = await asyncio.gather(
                subject.store.commit([claim(f"a{number}", "worker-1")]), other.commit([claim(f"a{number}", "worker-2")])
            )

            assert sorted([isinstance(one, EpochLost), isinstance(two, EpochLost)]) == [False, True]
            assert (await subject.store.run(f"a{number}")).epoch == 1

    @proves
    async def test_an_owner_that_lost_its_epoch_writes_nothing_at_all(self, subject: Subject) -> None:
        lost = await subject.held("a1")
        await subject.write(deliver("a1", "m1"))
        ((message, _),) = await subject.store.inbox("a1")
        await subject.claim("a1", "worker-2", "worker-1")

        (answer,) = await subject.write(
            append(
                lost,
                b"stale",
                status=status("failed"),
                effects=[EffectRow(":0", "started", "pay/charge#1", "charge", "keyed", 1, 10)],
                once=Once("", "charge", "o1", ":0", "d"),
                chunks={"c" * 64: b"chunk"},
                taken=[message],
                release=(10, None),
            )
        )

        assert refused(answer, EpochLost).held == 1
        row = await subject.store.run("a1")
        assert (row.status, row.owner, row.epoch) == ("running", "worker-2", 2)
        assert await subject.bodies("a1") == [b"created a1", b"claimed 1", b"claimed 2"]
        assert await subject.store.effects("a1") == []
        assert await subject.store.once("", "charge", "o1") is None
        assert await subject.messages("a1") == [b"hello"]

    @proves
    async def test_the_loser_of_a_race_cannot_append_and_the_winner_can(self, subject: Subject) -> None:
        other = await subject.other()
        lost = await subject.held("a1")
        won = await subject.claim("a1", "worker-2", "worker-1", store=other)

        (first,) = await subject.write(append(lost, b"stale"))
        (second,) = await subject.write(append(won, b"fresh"), store=other)

        refused(first, EpochLost)
        assert second is None
        assert (await subject.bodies("a1"))[-1] == b"fresh"

    @proves
    async def test_a_claim_behind_an_append_of_the_old_owner_in_one_batch_follows_it(self, subject: Subject) -> None:
        head = await subject.held("a1")

        first, claimed, stale = await subject.write(
            append(head, b"last"), claim("a1", "worker-2", "worker-1"), append(head, b"stale")
        )

        assert (first, claimed.epoch) == (None, 2)
        refused(stale, EpochLost)
        assert await subject.bodies("a1") == [b"created a1", b"claimed 1", b"last", b"claimed 2"]
        await subject.done(append(claimed, b"next"))
        assert (await subject.bodies("a1"))[-1] == b"next"

    # ------------------------------------------------------------ who may take what, and when

    @proves
    async def test_a_new_run_is_due_and_a_claimed_one_is_not(self, subject: Subject) -> None:
        await subject.create("a1")

        before = [run.id for run in await subject.store.due(1, ["desk"], 10)]
        await subject.claim("a1")

        assert before == ["a1"]
        assert await subject.store.due(10**13, ["desk"], 10) == []

    @proves
    async def test_a_run_is_due_at_its_time_and_not_before(self, subject: Subject) -> None:
        await subject.create("a1", due=500)

        assert await subject.store.due(499, ["desk"], 10) == []
        assert [run.id for run in await subject.store.due(500, ["desk"], 10)] == ["a1"]

    @proves
    async def test_only_runs_of_workflows_that_the_worker_knows_are_due_for_it(self, subject: Subject) -> None:
        await subject.create("a1")
        await subject.create("a2", workflow='shop "x"')

        assert [run.id for run in await subject.store.due(9, ['shop "x"'], 10)] == ["a2"]
        assert await subject.store.due(9, [], 10) == []

    @proves
    async def test_attached_runs_are_due_for_a_worker_that_has_tools_for_them(self, subject: Subject) -> None:
        await subject.create("a2", workflow="", attached=True, due=1)

        assert await subject.store.due(20, ["shop"], 10) == []
        assert [run.id for run in await subject.store.due(20, ["shop", ""], 10)] == ["a2"]

    @proves
    async def test_a_run_that_ended_is_still_due_for_settling(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"failed", status=status("failed"), release=(10, 20)))

        assert [run.id for run in await subject.store.due(20, ["desk"], 10)] == ["a1"]

    @proves
    async def test_no_more_runs_are_listed_as_due_than_were_asked_for_the_longest_waiting_first(
        self, subject: Subject
    ) -> None:
        for number, due in enumerate([30, 10, 20]):
            await subject.create(f"a{number}", due=due)

        assert [run.id for run in await subject.store.due(99, ["desk"], 2)] == ["a1", "a2"]

    @proves
    async def test_a_released_run_is_nobody_s_and_due_when_it_said(self, subject: Subject) -> None:
        head = await subject.held("a1")

        await subject.done(append(head, b"parked", status=status("parked"), release=(10, 700)))

        row = await subject.store.run("a1")
        assert (row.owner, row.due, row.status) == (None, 700, "parked")
        assert (await subject.claim("a1", "worker-2")).epoch == 2

    @proves
    async def test_a_run_may_be_released_without_a_time(self, subject: Subject) -> None:
        head = await subject.held("a1")

        await subject.done(append(head, release=(10, None)))

        assert (await subject.store.run("a1")).due is None
        assert await subject.store.due(10**13, ["desk"], 10) == []

    @proves
    async def test_the_runs_of_an_owner_are_found_and_so_are_the_owners_of_runs(self, subject: Subject) -> None:
        for worker in ("worker-1", "worker-2", "worker-3"):
            await subject.done(Enlist(WorkerRow(worker, "host", 7, 1, 100)))
        await subject.held("a1", "worker-1")
        await subject.held("a2", "worker-2")

        assert [run.id for run in await subject.store.held_by("worker-1")] == ["a1"]
        assert await subject.store.held_by("worker-3") == []
        assert {worker.id for worker in await subject.store.holders()} == {"worker-1", "worker-2"}

    @proves
    async def test_a_lease_is_renewed_and_never_shortened(self, subject: Subject) -> None:
        await subject.done(Enlist(WorkerRow("worker-1", "host", 7, 1, 100)))
        head = await subject.held("a1")

        subject.store.renew("worker-1", 300)
        subject.store.renew("worker-1", 200)
        renewed = (await subject.store.workers())[0].lease_until
        await subject.done(append(head, b"started", lease=("worker-1", 900)))

        assert renewed == 300
        assert (await subject.store.holders())[0].lease_until == 900

    @proves
    async def test_a_worker_that_left_holds_no_lease_and_gets_none(self, subject: Subject) -> None:
        await subject.done(Enlist(WorkerRow("worker-1", "host", 7, 1, 100)))

        subject.store.end_worker("worker-1", 50)
        subject.store.renew("worker-1", 300)

        (worker,) = await subject.store.workers()
        assert (worker.ended_at, worker.lease_until) == (50, 0)

    @proves
    async def test_a_child_is_created_under_the_epoch_of_its_parent_s_owner(self, subject: Subject) -> None:
        await subject.held("a1")
        await subject.create("c1", parent="a1", parent_epoch=1)
        await subject.claim("a1", "worker-2", "worker-1")
        late = NewRun("c2", "desk", "1", "d", b"created", "pay", 1, 1, parent="a1", parent_epoch=1)

        (answer,) = await subject.write(Create(late))

        refused(answer, EpochLost)
        assert (await subject.store.run("c1")).parent == "a1"
        await raised(subject.store.run("c2"), UnknownRun)

"""Kill: it asks nobody, takes the epoch of a whole family in one transaction, and says what it leaves unknown."""

from __future__ import annotations

from milepost.errors import EpochLost, UnknownRun
from milepost.stores.api import Append, ApprovalRow, Create, EffectRow, Head, Killed, NewRun, Once, OnceSettled
from milepost.stores.waits import Awaited, once_scope
from milepost.testing.store_conformance.subject import Subject, append, kill, proves, refused, status


def parked(head: Head, scope: str) -> Append:
    """Return the append that parks a run until a scope is free."""
    return append(head, b"parked", status=status("parked"), release=(20, None), waits=(Awaited(scope),))


def effect(step: str, outcome: str | None) -> EffectRow:
    """Return the row of an effect that is open, or has not begun."""
    return EffectRow(step, outcome, f"pay/charge{step}", "charge", "keyed", 1, 10)


class Killing:
    """The operator's stop."""

    @proves
    async def test_a_killed_run_has_ended_and_says_so_in_its_chain(self, subject: Subject) -> None:
        await subject.held("a1")

        killed = await subject.kill("a1")

        row = await subject.store.run("a1")
        assert killed == Killed(["a1"], [], ["worker-1"])
        assert (row.status, row.owner, row.due, row.epoch, row.why) == ("killed", None, None, 2, "runaway")
        assert (await subject.bodies("a1"))[-1] == b"killed 2 "

    @proves
    async def test_what_was_killed_since_a_moment_is_found_the_latest_first(self, subject: Subject) -> None:
        for number in range(4):
            await subject.held(f"a{number}")
        await subject.kill("a1", now=100)
        await subject.kill("a0", now=200)
        await subject.kill("a2", now=50)

        assert await subject.store.killed_since(100) == ["a0", "a1"]
        assert await subject.store.killed_since(0) == ["a0", "a1", "a2"]
        assert await subject.store.killed_since(201) == []

    @proves
    async def test_the_worker_that_held_it_can_write_no_more(self, subject: Subject) -> None:
        head, other = await subject.held("a1"), await subject.other()

        await subject.kill("a1", store=other)

        (answer,) = await subject.write(append(head, b"started"))
        refused(answer, EpochLost)
        assert b"started" not in await subject.bodies("a1")

    @proves
    async def test_what_the_worker_has_queued_behind_the_kill_is_refused(self, subject: Subject) -> None:
        head = await subject.held("a1")

        before, killed, behind = await subject.write(append(head, b"before"), kill("a1"), append(head, b"behind"))

        assert before is None
        assert killed.runs == ["a1"]
        refused(behind, EpochLost)
        assert (await subject.bodies("a1"))[2:] == [b"before", b"killed 2 "]

    @proves
    async def test_what_was_in_flight_is_unknown_and_told(self, subject: Subject) -> None:
        head = await subject.held("a1")
        open_ = [effect(":0", "started"), effect(":1", "unknown"), effect(":2", "not_started"), effect(":3", "failed")]
        await subject.done(append(head, b"started", effects=open_))

        killed = await subject.kill("a1")

        assert killed.unknown == [("a1", "pay/charge:0"), ("a1", "pay/charge:1")]
        assert (await subject.bodies("a1"))[-1] == b"killed 2 pay/charge:0,pay/charge:1"
        outcomes = {row.step: row.outcome for row in await subject.store.effects("a1")}
        assert outcomes == {":0": "unknown", ":1": "unknown"}

    @proves
    async def test_a_killed_run_with_unknown_effects_is_due_for_settling(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"started", effects=[effect(":0", "started")]))

        await subject.kill("a1")

        assert [run.id for run in await subject.store.due(99, ["desk"], 10)] == ["a1"]
        settling = await subject.claim("a1", "worker-2")
        await subject.done(append(settling, b"confirmed", effects=[effect(":0", None)]))
        assert (await subject.store.run("a1")).status == "killed"
        assert await subject.store.effects("a1") == []

    @proves
    async def test_what_a_killed_run_had_asked_for_is_void(self, subject: Subject) -> None:
        for run_id, id_ in (("a1", "ap-1"), ("b1", "bp-1")):
            asked = ApprovalRow(id_, run_id, ":0", "pay/charge#1", "charge", b"{}", 9, "asked")
            await subject.done(append(await subject.held(run_id), b"asked", approvals=[asked]))

        await subject.kill("a1")

        assert {row.id: row.verdict for row in await subject.store.approvals()} == {"ap-1": "void", "bp-1": "asked"}

    @proves
    async def test_all_descendants_are_killed_with_it_and_nobody_else(self, subject: Subject) -> None:
        heads = {"a1": await subject.held("a1")}
        for run_id, parent in (("b1", "a1"), ("b2", "a1"), ("c1", "b1"), ("x1", None)):
            heads[run_id] = await subject.held(run_id, parent=parent)
        await subject.done(append(heads["c1"], b"started", effects=[effect(":0", "started")]))

        killed = await subject.kill("a1")

        assert sorted(killed.runs) == ["a1", "b1", "b2", "c1"]
        assert killed.unknown == [("c1", "pay/charge:0")]
        assert (await subject.store.run("x1")).status == "running"
        for run_id in ("a1", "b1", "b2", "c1"):
            (answer,) = await subject.write(append(heads[run_id], b"stale"))
            refused(answer, EpochLost)

    @proves
    async def test_a_killed_run_gets_no_new_children(self, subject: Subject) -> None:
        await subject.held("a1")
        await subject.kill("a1")

        child = NewRun("b1", "desk", "1", "d", b"created", "pay", 1, 1, parent="a1", parent_epoch=1)

        refused((await subject.write(Create(child)))[0], EpochLost)

    @proves
    async def test_descendants_that_ended_are_left_as_they_are(self, subject: Subject) -> None:
        await subject.held("a1")
        child = await subject.held("b1", parent="a1")
        await subject.done(append(child, b"done", status=status("done"), release=(10, None)))

        killed = await subject.kill("a1")

        assert killed.runs == ["a1"]
        assert (await subject.store.run("b1")).status == "done"
        assert (await subject.bodies("b1"))[-1] == b"done"

    @proves
    async def test_the_children_of_a_run_that_ended_are_still_killed(self, subject: Subject) -> None:
        parent = await subject.held("a1")
        await subject.held("b1", parent="a1")
        await subject.done(append(parent, b"done", status=status("done"), release=(10, None)))

        killed = await subject.kill("a1")

        assert killed.runs == ["b1"]
        assert (await subject.store.run("a1")).status == "done"

    @proves
    async def test_the_parent_of_a_killed_run_is_told(self, subject: Subject) -> None:
        await subject.held("a1")
        await subject.held("b1", parent="a1")

        killed = await subject.kill("b1")

        assert killed.runs == ["b1"]
        assert await subject.messages("a1") == [b"told"]
        assert (await subject.store.run("a1")).status == "running"

    @proves
    async def test_identities_of_what_failed_are_free_and_who_waits_for_them_is_due(self, subject: Subject) -> None:
        head, other = await subject.held("a1"), await subject.held("a2")
        tried = [effect(":0", "failed"), effect(":1", "started")]
        for step, value in ((":0", "o1"), (":1", "o2")):
            await subject.done(append(head, b"started", once=Once("", "charge", value, step, "d1"), effects=tried))
        await subject.done(parked(other, once_scope("", "charge", "o1")))

        await subject.kill("a1")

        assert await subject.store.once("", "charge", "o1") is None
        kept = await subject.store.once("", "charge", "o2")
        assert kept is not None
        assert kept.run_id == "a1", "it may have happened"
        assert (await subject.store.run("a2")).due == 99

    @proves
    async def test_a_killed_run_waits_for_nothing_any_more(self, subject: Subject) -> None:
        head, other = await subject.held("a1"), await subject.held("a2")
        await subject.done(append(head, b"started", once=Once("", "charge", "o1", ":0", "d1")))
        await subject.done(parked(other, once_scope("", "charge", "o1")))
        await subject.kill("a2")

        await subject.done(append(head, b"failed", once_settled=[OnceSettled("", "charge", "o1", None, None, ":0")]))

        assert (await subject.store.run("a2")).due is None

    @proves
    async def test_a_worker_that_holds_several_of_them_is_told_of_once_and_nobody_where_none_did(
        self, subject: Subject
    ) -> None:
        await subject.held("a1")
        await subject.held("b1", parent="a1")
        await subject.held("b2", "worker-2", parent="a1")
        await subject.create("b3", parent="a1")

        killed = await subject.kill("a1")

        assert sorted(killed.owners) == ["worker-1", "worker-2"]

    @proves
    async def test_killing_again_changes_nothing(self, subject: Subject) -> None:
        await subject.held("a1")
        await subject.kill("a1")
        chain = await subject.bodies("a1")

        assert await subject.kill("a1") == Killed([], [])
        assert await subject.bodies("a1") == chain

    @proves
    async def test_a_run_that_nobody_holds_is_killed_too(self, subject: Subject) -> None:
        await subject.create("a1")

        await subject.kill("a1")

        assert (await subject.store.run("a1")).status == "killed"
        assert await subject.store.due(10**13, ["desk"], 10) == []

    @proves
    async def test_a_run_that_does_not_exist_cannot_be_killed(self, subject: Subject) -> None:
        (answer,) = await subject.write(kill("nobody"))

        refused(answer, UnknownRun)

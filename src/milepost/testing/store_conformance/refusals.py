"""One refusal never touches the others of its batch, and leaves nothing of its own behind."""

from __future__ import annotations

from milepost.errors import EpochLost, UnknownRun
from milepost.stores.api import Append, ApprovalRow, Create, EffectRow, NewRun, Once, OnceTaken, Post, SwitchedOff
from milepost.stores.fleet import Enlist, WorkerRow
from milepost.testing.store_conformance.subject import (
    Subject,
    append,
    claim,
    deliver,
    kill,
    proves,
    refused,
    status,
    switch,
)

ONCE = Once("", "charge", "o1", ":0", "d1")


async def refusable(subject: Subject) -> dict[type[Exception], Append]:
    """Return an append for each reason to refuse one, each of a run of its own."""
    lost = await subject.held("lost")
    await subject.claim("lost", "worker-2", "worker-1")
    holder, late = await subject.held("holder"), await subject.held("late")
    await subject.done(append(holder, b"first", once=ONCE))
    stopped, alone = await subject.held("stopped"), await subject.held("alone")
    await subject.done(append(holder, b"held", holds=[switch("tool:charge")]))
    return {
        EpochLost: append(lost, b"refused"),
        OnceTaken: append(late, b"refused", once=ONCE),
        SwitchedOff: append(stopped, b"refused", scopes=("all", "tool:charge")),
        UnknownRun: append(alone, b"refused", posts=[Post("nobody", "m", b"x", 1)]),
    }


class Refusals:
    """Every reason to refuse an append, alone and among others."""

    @proves
    async def test_a_refused_append_is_answered_with_its_reason(self, subject: Subject) -> None:
        for kind, stopped in (await refusable(subject)).items():
            (answer,) = await subject.write(stopped)

            refused(answer, kind)
            assert b"refused" not in await subject.bodies(stopped.head.run_id)

    @proves
    async def test_a_refusal_leaves_the_appends_before_and_behind_it_as_they_are(self, subject: Subject) -> None:
        before, behind = await subject.held("a1"), await subject.held("a2")
        for kind, stopped in (await refusable(subject)).items():
            first, answer, last = await subject.write(append(before, b"before"), stopped, append(behind, b"behind"))

            assert (first, last) == (None, None)
            refused(answer, kind)
            assert (await subject.bodies("a1"))[-1] == b"before"
            assert (await subject.bodies("a2"))[-1] == b"behind"
            assert b"refused" not in await subject.bodies(stopped.head.run_id)

    @proves
    async def test_all_refusals_in_one_batch_are_told_apart(self, subject: Subject) -> None:
        head = await subject.held("a1")
        stopped = await refusable(subject)

        answers = await subject.write(append(head, b"one"), *stopped.values(), append(head, b"two"))

        assert [type(answer) for answer in answers] == [type(None), *stopped, type(None)]
        assert (await subject.bodies("a1"))[2:] == [b"one", b"two"]

    @proves
    async def test_a_refusal_leaves_operations_of_every_kind_as_they_are(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.create("a2")
        await subject.held("a3")
        stopped = await refusable(subject)
        new = NewRun("a4", "desk", "1", "d", b"created", "pay", 1, 1)

        answers = await subject.write(
            Create(new), stopped[EpochLost], claim("a2"), stopped[SwitchedOff], deliver("a1", "m1"),
            append(head, b"one"), stopped[OnceTaken], kill("a3"), stopped[UnknownRun],
            Enlist(WorkerRow("worker-9", "h", 1, 1, 9)),
            claim("nobody"), deliver("nobody", "m"), append(head, b"two"),
        )  # fmt: skip

        kinds = [type(answer) for answer in answers if isinstance(answer, Exception)]
        assert kinds == [EpochLost, SwitchedOff, OnceTaken, UnknownRun, UnknownRun, UnknownRun]
        assert (await subject.bodies("a1"))[2:] == [b"one", b"two"]
        assert (await subject.store.run("a2")).owner == "worker-1"
        assert (await subject.store.run("a3")).status == "killed"
        assert (await subject.store.run("a4")).status == "ready"
        assert await subject.messages("a1") == [b"hello"]

    @proves
    async def test_what_stood_beside_a_refused_append_is_not_written_either(self, subject: Subject) -> None:
        await subject.done(Enlist(WorkerRow("worker-1", "h", 1, 1, 100)))
        await subject.create("a1")
        effect = EffectRow(":0", "started", "pay/charge#1", "charge", "keyed", 1, 10)
        approval = ApprovalRow("ap-1", "", ":0", "pay/charge#1", "charge", b"{}", 9, "asked")
        for stopped in (await refusable(subject)).values():
            stopped.status, stopped.effects, stopped.chunks = status("failed"), [effect], {"c" * 64: b"chunk"}
            stopped.approvals, stopped.lease, stopped.release = [approval], ("worker-1", 900), (10, 20)
            stopped.posts = [Post("a1", "m1", b"told", 10), *stopped.posts]

            await subject.write(stopped)

            row = await subject.store.run(stopped.head.run_id)
            assert (row.status, row.owner is None) == ("running", False)
            assert await subject.store.effects(stopped.head.run_id) == []
        assert await subject.store.approvals() == []
        assert (await subject.store.workers())[0].lease_until == 100
        assert await subject.messages("a1") == []

    @proves
    async def test_what_is_queued_behind_a_refused_append_of_the_same_run_is_written(self, subject: Subject) -> None:
        """A switch or a taken identity refuses one append; the run and its chain go on."""
        head = await subject.held("a1")
        stopped = await refusable(subject)
        by_switch = append(head, b"refused", scopes=("tool:charge",))
        by_identity = append(head, b"refused", once=ONCE)

        answers = await subject.write(
            append(head, b"one"), by_switch, append(head, b"two"), by_identity, append(head, b"three")
        )

        assert [type(answer) for answer in answers] == [type(None), SwitchedOff, type(None), OnceTaken, type(None)]
        assert (await subject.bodies("a1"))[2:] == [b"one", b"two", b"three"]
        await subject.done(append(head, b"four"))
        assert (await subject.bodies("a1"))[-1] == b"four"
        assert stopped

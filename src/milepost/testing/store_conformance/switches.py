"""Switches: what is stopped refuses every start under it, at once and for every process, and all of it is on record."""

from __future__ import annotations

from milepost.core import codec
from milepost.core.store_entries import SwitchLifted, SwitchSet
from milepost.errors import UnknownRun
from milepost.stores.api import Lift, Switch, SwitchedOff
from milepost.testing.store_conformance.subject import Subject, append, proves, raised, refused, switch

SYSTEM = "system"


class Switches:
    """Stopping a scope, and setting it free."""

    @proves
    async def test_a_switch_refuses_what_names_its_scope(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"held", holds=[switch("tool:charge")]))

        (answer,) = await subject.write(append(head, b"started", scopes=("all", "tool:charge")))

        assert refused(answer, SwitchedOff).switch == switch("tool:charge")
        assert await subject.store.switches() == [switch("tool:charge")]

    @proves
    async def test_a_switch_leaves_other_scopes_and_appends_without_scopes_alone(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"held", holds=[switch("tool:charge")]))

        answers = await subject.write(append(head, b"other", scopes=("tool:mail", "all")), append(head, b"confirmed"))

        assert answers == [None, None]

    @proves
    async def test_a_switch_stops_what_stands_behind_it_in_the_same_batch(self, subject: Subject) -> None:
        head, other = await subject.held("a1"), await subject.held("a2")

        before, held, behind = await subject.write(
            append(other, b"one", scopes=("tool:charge",)),
            append(head, b"held", holds=[switch("tool:charge")]),
            append(other, b"two", scopes=("tool:charge",)),
        )

        assert (before, held) == (None, None)
        refused(behind, SwitchedOff)
        assert (await subject.bodies("a2"))[2:] == [b"one"]

    @proves
    async def test_a_switch_holds_for_every_process(self, subject: Subject) -> None:
        other = await subject.other()
        mine = await subject.held("a1")
        theirs = await subject.claim((await subject.create("a2")).id, "worker-2", store=other)
        await subject.done(append(theirs, b"warm", scopes=("tool:charge",)), store=other)

        await subject.done(append(mine, b"held", holds=[switch("tool:charge")]))

        (answer,) = await subject.write(append(theirs, b"started", scopes=("tool:charge",)), store=other)
        refused(answer, SwitchedOff)

    @proves
    async def test_a_switch_that_is_lifted_lets_work_go_on(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"held", holds=[switch("tool:charge")]))

        lifted, started = await subject.write(
            append(head, b"resolved", lifts=[Lift("tool:charge", "looked into", "ann")]),
            append(head, b"started", scopes=("tool:charge",)),
        )

        assert (lifted, started) == (None, None)
        assert await subject.store.switches() == []

    @proves
    async def test_a_switch_that_is_set_again_keeps_one_row_with_the_latest_reason(self, subject: Subject) -> None:
        head = await subject.held("a1")

        await subject.done(append(head, b"held", holds=[switch("tool:charge"), switch("all", "freeze")]))
        await subject.done(append(head, b"held", holds=[Switch("tool:charge", "hold", "once more", "bob", 30)]))

        again = Switch("tool:charge", "hold", "once more", "bob", 30)
        assert await subject.store.switches() == [switch("all", "freeze"), again]

    @proves
    async def test_setting_and_lifting_stand_in_the_store_s_own_verified_journal(self, subject: Subject) -> None:
        head, other = await subject.held("a1"), await subject.other()
        await subject.done(append(head, b"held", holds=[switch("tool:charge"), switch("all", "freeze")]))
        await subject.done(append(head, b"resolved", at=40, lifts=[Lift("tool:charge", "looked into", "ann")]))

        entries = [codec.decode(body) for body in await subject.bodies(SYSTEM, store=other)]

        assert entries == [
            SwitchSet(at=20, scope="tool:charge", kind="hold", why="found twice", by="ann"),
            SwitchSet(at=20, scope="all", kind="freeze", why="found twice", by="ann"),
            SwitchLifted(at=40, scope="tool:charge", why="looked into", by="ann", kind="hold"),
        ]

    @proves
    async def test_lifting_what_does_not_stand_is_no_event(self, subject: Subject) -> None:
        head = await subject.held("a1")

        await subject.done(append(head, b"resolved", lifts=[Lift("tool:charge", "looked into", "ann")]))

        await raised(subject.store.chain(SYSTEM), UnknownRun)

    @proves
    async def test_a_switch_beside_a_refused_append_is_not_set(self, subject: Subject) -> None:
        lost = await subject.held("a1")
        await subject.claim("a1", "worker-2", "worker-1")
        head = await subject.held("a2")

        stale, started = await subject.write(
            append(lost, b"held", holds=[switch("tool:charge")]), append(head, b"started", scopes=("tool:charge",))
        )

        assert isinstance(stale, Exception)
        assert started is None
        assert await subject.store.switches() == []

    @proves
    async def test_the_store_s_own_journal_is_no_run_that_anybody_lists_or_claims(self, subject: Subject) -> None:
        from_start = await subject.store.counts()
        head = await subject.held("a1")
        await subject.done(append(head, b"held", holds=[switch("tool:charge")]))

        assert from_start == {}
        assert sum((await subject.store.counts()).values()) == 1
        assert await subject.store.due(10**13, ["", "desk"], 10) == []

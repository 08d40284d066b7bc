"""Breakers and who waits: counted and checked in the transaction of what they govern, shared by every process."""

from __future__ import annotations

from milepost.core import codec
from milepost.core.breaker import Answered, Breaker, Failed, Probing, Vacated
from milepost.core.store_entries import BreakerClosed, BreakerOpened, BreakerProbed
from milepost.stores.api import (
    Append,
    Head,
    Lift,
    Once,
    OnceSettled,
    SwitchedOff,
    Throw,
    Thrown,
)
from milepost.stores.waits import Awaited, once_scope
from milepost.testing.store_conformance.subject import Subject, append, proves, refused, status, switch

SETTINGS = Breaker(2, cooldown="10s", most="60s")
SCOPES = ("all", "tool:charge")
AFTER = 100_000


def failed(by: str = "x") -> Failed:
    """Return a failure of the tool's provider."""
    return Failed("charge", by, "refused", SETTINGS)


def started(head: Head, body: bytes = b"started", *, at: int = 10, by: str = "") -> Append:
    """Return a `started`; with `by` it may be the probe, under a lease of five seconds."""
    probe = Probing("charge", by, at + 5_000) if by else None
    return append(head, body, at=at, scopes=SCOPES, probe=probe)


def parked(head: Head, *waits: Awaited, at: int = 20, otherwise: int | None = 900_000) -> Append:
    """Return the append that parks a run."""
    return append(head, b"parked", at=at, status=status("parked"), release=(at, otherwise), waits=waits)


async def tripped(subject: Subject, head: Head) -> int:
    """Let the tool fail twice; return when a probe may be made."""
    await subject.done(append(head, b"failed 1", tried=[failed()]))
    await subject.done(append(head, b"failed 2", tried=[failed()]))
    (open_,) = await subject.store.switches()
    assert open_.until is not None
    return open_.until


class Breakers:
    """The automatic stop of one tool."""

    @proves
    async def test_failures_of_several_runs_and_processes_are_counted_in_one_row(self, subject: Subject) -> None:
        mine, other = await subject.held("a1"), await subject.other()
        theirs = await subject.claim((await subject.create("a2")).id, "worker-2", store=other)
        await subject.done(append(mine, b"failed", tried=[failed()]))

        await subject.done(append(theirs, b"failed", tried=[failed()]), store=other)

        (answer,) = await subject.write(started(mine))
        held = refused(answer, SwitchedOff).switch
        assert (held.scope, held.kind) == ("tool:charge", "breaker")
        assert await subject.store.switches() == [held]

    @proves
    async def test_an_answer_in_between_sets_the_count_back(self, subject: Subject) -> None:
        head = await subject.held("a1")

        for event in (failed(), Answered("charge", "x"), failed()):
            await subject.done(append(head, b"tried", tried=[event]))

        await subject.done(started(head))
        assert await subject.store.switches() == []

    @proves
    async def test_a_count_beside_a_refused_append_is_not_kept(self, subject: Subject) -> None:
        lost = await subject.held("a1")
        head = await subject.claim("a1", "worker-2", "worker-1")

        await subject.write(append(lost, b"failed", tried=[failed()]), append(lost, b"failed", tried=[failed()]))

        await subject.done(started(head))

    @proves
    async def test_one_probe_passes_after_the_cool_down_and_nobody_beside_it(self, subject: Subject) -> None:
        head, other = await subject.held("a1"), await subject.held("a2")
        until = await tripped(subject, head)

        early, first, second, plain = await subject.write(
            started(head, at=until - 1, by="early"),
            started(head, b"probe", at=until, by="p"),
            started(other, at=until, by="q"),
            started(other, at=until),
        )

        assert first is None
        for answer in (early, second, plain):
            refused(answer, SwitchedOff)
        assert (await subject.bodies("a1"))[-1] == b"probe"

    @proves
    async def test_an_answered_probe_closes_it_and_a_failed_one_does_not(self, subject: Subject) -> None:
        head = await subject.held("a1")
        until = await tripped(subject, head)
        await subject.done(started(head, at=until, by="p"))
        await subject.done(append(head, b"failed", at=until + 1, tried=[failed("p")]))
        (again,) = await subject.store.switches()
        assert again.until is not None
        refused((await subject.write(started(head, at=again.until - 1, by="q")))[0], SwitchedOff)

        await subject.done(started(head, at=again.until, by="q"))
        await subject.done(append(head, b"confirmed", at=again.until + 1, tried=[Answered("charge", "q")]))

        await subject.done(started(head))
        assert await subject.store.switches() == []

    @proves
    async def test_a_probe_whose_process_died_holds_nobody_up_for_longer_than_its_lease(self, subject: Subject) -> None:
        head, other = await subject.held("a1"), await subject.held("a2")
        until = await tripped(subject, head)
        await subject.done(started(head, at=until, by="p"))

        before, behind = await subject.write(
            started(other, at=until + 4_999, by="q"), started(other, at=until + 5_000, by="q")
        )

        refused(before, SwitchedOff)
        assert behind is None

    @proves
    async def test_what_a_person_froze_stops_the_probe_too(self, subject: Subject) -> None:
        head = await subject.held("a1")
        until = await tripped(subject, head)
        await subject.done(Throw(30, holds=[switch("tool:charge", "freeze")]))

        (answer,) = await subject.write(started(head, at=until, by="p"))

        assert refused(answer, SwitchedOff).switch.kind == "freeze"
        assert [one.kind for one in await subject.store.switches()] == ["freeze", "breaker"]
        (open_,) = [one for one in await subject.store.switches() if one.kind == "breaker"]
        assert open_.until == until, "the refused probe took no lease"

    @proves
    async def test_trip_probe_and_close_stand_in_the_store_s_own_journal(self, subject: Subject) -> None:
        head = await subject.held("a1")
        until = await tripped(subject, head)
        await subject.done(started(head, at=until, by="p"))
        await subject.done(append(head, b"cancelled", at=until + 1, tried=[Vacated("charge", "p")]))
        await subject.done(started(head, at=until + 2, by="q"))
        await subject.done(append(head, b"confirmed", at=until + 3, tried=[Answered("charge", "q")]))

        entries = [codec.decode(body) for body in await subject.bodies("system")]

        kinds = [BreakerOpened, BreakerProbed, BreakerOpened, BreakerProbed, BreakerClosed]
        assert [type(entry) for entry in entries] == kinds
        assert [getattr(entry, "by", "") for entry in entries] == ["x", "p", "p", "q", "q"]

    @proves
    async def test_a_person_resets_a_breaker(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await tripped(subject, head)

        lifts = [Lift("tool:charge", "they are back", "ann", "breaker")]
        thrown = await subject.done(Throw(40, lifts=lifts))

        assert thrown.lifted == 1
        await subject.done(started(head))
        last = codec.decode((await subject.bodies("system"))[-1])
        assert last == BreakerClosed(at=40, tool="charge", why="they are back", by="ann")
        assert (await subject.done(Throw(41, lifts=lifts))).lifted == 0


class Waits:
    """Who rests on a switch, a breaker or an identity is made due by whoever changes it."""

    @proves
    async def test_a_run_that_waits_for_a_switch_is_due_in_the_transaction_that_lifts_it(
        self, subject: Subject
    ) -> None:
        head = await subject.held("a1")
        await subject.done(Throw(15, holds=[switch("tool:charge", "freeze")]))
        await subject.done(parked(head, Awaited("tool:charge")))
        assert await subject.store.due(AFTER, ["desk"], 10) == []
        assert await subject.store.waiting() == {"tool:charge": 1}

        thrown = await subject.done(Throw(50, lifts=[Lift("tool:charge", "enough", "ann", "freeze")]))

        assert thrown == Thrown(0, 1, 1)
        assert [run.id for run in await subject.store.due(50, ["desk"], 10)] == ["a1"]

    @proves
    async def test_a_switch_that_was_lifted_before_the_run_was_noted_makes_it_due_at_once(
        self, subject: Subject
    ) -> None:
        head = await subject.held("a1")

        await subject.done(parked(head, Awaited("tool:charge"), at=20))

        assert (await subject.store.run("a1")).due == 20

    @proves
    async def test_lifting_one_of_two_reasons_wakes_nobody(self, subject: Subject) -> None:
        head = await subject.held("a1")
        holds = [switch("tool:charge", "freeze"), switch("tool:charge", "hold")]
        await subject.done(Throw(15, holds=holds))
        await subject.done(parked(head, Awaited("tool:charge")))

        thrown = await subject.done(Throw(50, lifts=[Lift("tool:charge", "enough", "ann", "freeze")]))

        assert (thrown.lifted, thrown.woken) == (1, 0)
        assert (await subject.store.run("a1")).due == 900_000

    @proves
    async def test_one_contradiction_s_hold_is_not_lifted_with_another_s(self, subject: Subject) -> None:
        first, second = switch("tool:charge"), switch("tool:charge")
        first.about, second.about = "a1 pay/charge#1", "b1 pay/charge#1"
        await subject.done(Throw(15, holds=[first, second]))

        lift = Lift("tool:charge", "looked", "ann", "hold", "a1 pay/charge#1")
        assert (await subject.done(Throw(50, lifts=[lift]))).lifted == 1

        assert await subject.store.switches() == [second]

    @proves
    async def test_a_run_that_is_claimed_waits_no_more(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(Throw(15, holds=[switch("tool:charge", "freeze")]))
        await subject.done(parked(head, Awaited("tool:charge")))

        await subject.claim("a1", "worker-2")

        assert await subject.store.waiting() == {}

    @proves
    async def test_of_those_who_wait_for_a_breaker_one_looks_when_the_probe_is_due(self, subject: Subject) -> None:
        heads = [await subject.held(f"a{number}") for number in range(4)]
        until = await tripped(subject, heads[3])
        for head in heads[:3]:
            await subject.done(parked(head, Awaited("tool:charge", probes=True)))

        dues = [(await subject.store.run(f"a{number}")).due for number in range(3)]

        assert dues[0] == until
        assert until < (dues[1] or 0) < (dues[2] or 0)

    @proves
    async def test_a_failed_probe_moves_all_who_wait_and_none_beyond_what_else_it_waits_for(
        self, subject: Subject
    ) -> None:
        heads = [await subject.held(f"a{number}") for number in range(3)]
        until = await tripped(subject, heads[2])
        await subject.done(parked(heads[0], Awaited("tool:charge", probes=True)))
        await subject.done(parked(heads[1], Awaited("tool:charge", probes=True), otherwise=until + 1_000))
        await subject.done(started(heads[2], at=until - 0, by="p"))

        await subject.done(append(heads[2], b"failed", at=until - 1, tried=[failed("p")]))

        (open_,) = await subject.store.switches()
        assert [(await subject.store.run(f"a{number}")).due for number in range(2)] == [open_.until, until + 1_000]

    @proves
    async def test_when_it_closes_all_who_wait_go_on_but_not_in_one_moment(self, subject: Subject) -> None:
        heads = [await subject.held(f"a{number}") for number in range(4)]
        until = await tripped(subject, heads[3])
        for head in heads[:3]:
            await subject.done(parked(head, Awaited("tool:charge", probes=True)))
        await subject.done(started(heads[3], at=until, by="p"))

        await subject.done(append(heads[3], b"confirmed", at=until + 1, tried=[Answered("charge", "p")]))

        dues = [(await subject.store.run(f"a{number}")).due or 0 for number in range(3)]
        assert dues[0] == until
        assert dues[0] < dues[1] < dues[2] < until + 60_000

    @proves
    async def test_the_fewest_attempts_go_first_as_probes_and_who_has_waited_longest_when_it_closes(
        self, subject: Subject
    ) -> None:
        heads = [await subject.held(f"a{number}") for number in range(4)]
        until = await tripped(subject, heads[3])
        for at, (head, spent) in enumerate(zip(heads[:3], (2, 0, 0), strict=True), start=20):
            await subject.done(parked(head, Awaited("tool:charge", probes=True, spent=spent), at=at))

        async def dues(from_: int) -> list[int]:
            return [((await subject.store.run(f"a{number}")).due or 0) - from_ for number in range(3)]

        await subject.done(started(heads[3], at=until, by="p"))
        await subject.done(append(heads[3], b"failed", at=until - 1, tried=[failed("p")]))
        (again,) = await subject.store.switches()
        assert again.until is not None
        as_probes = await dues(again.until)
        assert as_probes[1] == 0 < as_probes[2] < as_probes[0]

        await subject.done(started(heads[3], at=again.until, by="q"))
        await subject.done(append(heads[3], b"confirmed", at=again.until, tried=[Answered("charge", "q")]))
        assert await dues(again.until) == [0, 0, 100]

    @proves
    async def test_who_must_not_probe_is_not_due_when_a_probe_is(self, subject: Subject) -> None:
        head, other = await subject.held("a1"), await subject.held("a2")
        await tripped(subject, other)

        await subject.done(parked(head, Awaited("tool:charge")))

        assert (await subject.store.run("a1")).due == 900_000

    @proves
    async def test_who_waits_for_an_identity_is_due_when_it_is_settled_or_given_up(self, subject: Subject) -> None:
        first, second, third = [await subject.held(f"a{number}") for number in (1, 2, 3)]
        once, scope = Once("", "charge", "o-1", ":0", "d"), once_scope("", "charge", "o-1")
        await subject.done(append(first, b"started", once=once))
        await subject.done(parked(second, Awaited(scope)))
        assert (await subject.store.run("a2")).due == 900_000

        settled = OnceSettled("", "charge", "o-1", "confirmed", b"1", ":0")
        await subject.done(append(first, b"confirmed", at=60, once_settled=[settled]))

        assert (await subject.store.run("a2")).due == 60
        await subject.done(parked(third, Awaited(scope), at=70))
        assert (await subject.store.run("a3")).due == 70, "it was settled before it was noted"

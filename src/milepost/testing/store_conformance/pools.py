"""Shared budgets: what is reserved and spent never exceeds a ceiling, whoever asks at once, and nothing of it leaks."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from milepost.core import codec
from milepost.core.store_entries import CeilingSet
from milepost.errors import EpochLost, UnknownRun
from milepost.stores.api import EffectRow, Status, SwitchedOff
from milepost.stores.pools import PoolRow, PoolShort, PoolSpent, Reserve, SetCeiling
from milepost.testing.store_conformance.subject import Subject, append, proves, raised, refused, switch

if TYPE_CHECKING:
    from milepost.stores.api import Append, Head

SYSTEM = "system"
TODAY, TOMORROW = 20_786, 20_787
POOLS = ("total", "tenant:acme")


def usd(amount: int | str) -> dict[str, Decimal]:
    """Return an amount of money."""
    return {"usd": Decimal(amount)}


def ceiling(pool: str = "total", per: str = "ever", **units: int | str | None) -> SetCeiling:
    """Return the setting of a ceiling."""
    exact = {unit: None if amount is None else Decimal(amount) for unit, amount in units.items()}
    return SetCeiling(pool, per, exact, "a try", "ann", 20)


def starting(head: Head, cost: dict[str, Decimal], step: str = ":0", day: int = TODAY, **beside: Any) -> Append:
    """Return an append that reserves."""
    return append(head, b"started", reserve=Reserve(step, cost, POOLS, day), **beside)


def settling(head: Head, spent: dict[str, Decimal], step: str = ":0", day: int = TODAY, **beside: Any) -> Append:
    """Return an append that settles."""
    return append(head, b"settled", spent=[PoolSpent(step, spent, POOLS, day)], **beside)


async def stands(subject: Subject, day: int = TODAY) -> dict[tuple[str, str, str], tuple[str, str]]:
    """Return what is spent and reserved under each ceiling."""
    rows = await subject.store.pools(day)
    return {(row.pool, row.per, row.unit): (f"{row.spent:f}", f"{row.reserved:f}") for row in rows}


class Pools:
    """Ceilings that runs share."""

    @proves
    async def test_a_ceiling_refuses_what_exceeds_it_and_that_append_alone(self, subject: Subject) -> None:
        head, other = await subject.held("a1"), await subject.held("a2")
        await subject.done(ceiling(usd=10))

        first, short, third = await subject.write(
            starting(head, usd(6)), starting(other, usd(5)), starting(other, usd(4), ":1")
        )

        found = refused(short, PoolShort).short
        assert (first, third) == (None, None)
        assert (found.pool, found.per, found.unit) == ("total", "ever", "usd")
        assert (found.ceiling, found.gap, found.held) == tuple(map(Decimal, (10, 1, 6)))
        assert (await subject.bodies("a2"))[2:] == [b"started"]
        assert await subject.store.pools(TODAY) == [PoolRow("total", "ever", "usd", *map(Decimal, (10, 0, 10)))]

    @proves
    async def test_a_ceiling_of_zero_grants_nothing_and_a_reservation_is_never_cut_down(self, subject: Subject) -> None:
        """Requirement 72."""
        head = await subject.held("a1")
        await subject.done(ceiling(usd=0, calls=3))

        (answer,) = await subject.write(starting(head, {"usd": Decimal("0.01"), "calls": Decimal(1)}))

        assert refused(answer, PoolShort).short.gap == Decimal("0.01")
        assert set((await stands(subject)).values()) == {("0", "0")}

    @proves
    async def test_settling_books_what_was_spent_and_sets_the_rest_free(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(ceiling(usd=10))
        await subject.done(starting(head, usd(8)))

        settled, again = await subject.write(settling(head, usd("2.50")), starting(head, usd("7.50"), ":1"))

        assert (settled, again) == (None, None)
        assert await stands(subject) == {("total", "ever", "usd"): ("2.50", "7.50")}

    @proves
    async def test_what_failed_is_released_and_what_was_overspent_is_booked_in_full(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(ceiling(usd=10))
        await subject.done(starting(head, usd(8)))
        await subject.done(settling(head, {}))
        released = await stands(subject)
        await subject.done(starting(head, usd(8)))
        await subject.done(settling(head, usd(12), overspent=usd(4)))

        (answer,) = await subject.write(starting(head, usd(1), ":1"))

        assert released == {("total", "ever", "usd"): ("0", "0")}
        assert refused(answer, PoolShort).short.gap == 3
        assert await subject.store.overspent() == {"a1": usd(4)}

    @proves
    async def test_what_one_batch_reserves_settles_and_reserves_again_stands_as_it_was_said(
        self, subject: Subject
    ) -> None:
        head, other = await subject.held("a1"), await subject.held("a2")
        await subject.done(ceiling(usd=10))
        await subject.write(starting(head, usd(4)), starting(other, usd(5)))

        answers = await subject.write(
            settling(head, usd(1)),
            starting(head, usd(2)),
            settling(head, usd(2)),
            starting(other, usd(2), ":1"),
            settling(other, usd(3)),
            starting(head, usd(1)),
        )
        late = await subject.write(settling(other, {}, ":1"), settling(head, {}), starting(head, usd(4), ":2"))

        assert answers == [None] * 6
        assert late == [None] * 3
        assert await stands(subject) == {("total", "ever", "usd"): ("6", "4")}

    @proves
    async def test_a_start_that_is_the_first_of_its_step_books_nothing(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(ceiling(usd=10))
        first = Reserve(":0", usd(4), POOLS, TODAY, again=False)

        await subject.done(append(head, b"started", reserve=first))
        held = await stands(subject)
        await subject.done(settling(head, usd(3)))

        assert held == {("total", "ever", "usd"): ("0", "4")}
        assert await stands(subject) == {("total", "ever", "usd"): ("3", "0")}

    @proves
    async def test_a_reservation_belongs_to_its_step_and_reserving_again_books_the_one_before(
        self, subject: Subject
    ) -> None:
        head = await subject.held("a1")
        await subject.done(ceiling(usd=10))
        await subject.done(starting(head, usd(4)))
        await subject.done(append(head, b"a retry, which reserves nothing"))
        retried = await stands(subject)

        await subject.done(starting(head, usd(5)))

        assert retried == {("total", "ever", "usd"): ("0", "4")}
        assert await stands(subject) == {("total", "ever", "usd"): ("4", "5")}

    @proves
    async def test_every_pool_and_period_that_a_run_falls_under_must_suffice(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(ceiling(usd=100))
        await subject.done(ceiling("tenant:acme", "day", usd=5))
        await subject.done(ceiling("tenant:other", usd=0))
        await subject.done(ceiling("principal:bot", calls=0))

        first, short = await subject.write(starting(head, usd(4)), starting(head, usd(4), ":1"))

        assert first is None
        assert refused(short, PoolShort).short.pool == "tenant:acme"
        assert await stands(subject) == {
            ("total", "ever", "usd"): ("0", "4"), ("tenant:acme", "day", "usd"): ("0", "4"),
            ("tenant:other", "ever", "usd"): ("0", "0"), ("principal:bot", "ever", "calls"): ("0", "0"),
        }  # fmt: skip

    @proves
    async def test_a_ceiling_for_a_day_begins_anew_and_counts_under_the_day_of_the_start(
        self, subject: Subject
    ) -> None:
        head = await subject.held("a1")
        await subject.done(ceiling(per="day", usd=5))
        await subject.done(starting(head, usd(4)))

        next_day, yesterdays = await subject.write(
            starting(head, usd(5), ":1", TOMORROW), settling(head, usd(3), day=TODAY)
        )

        assert (next_day, yesterdays) == (None, None)
        assert await stands(subject) == {("total", "day", "usd"): ("3", "0")}
        assert await stands(subject, TOMORROW) == {("total", "day", "usd"): ("0", "5")}

    @proves
    async def test_an_unlimited_unit_and_a_store_without_ceilings_keep_no_books(self, subject: Subject) -> None:
        head = await subject.held("a1")

        free = await subject.write(starting(head, usd(1_000)), settling(head, usd(1_000)))
        await subject.done(ceiling(calls=1))
        await subject.done(starting(head, usd(1_000)))

        rows = await subject.store.pool_rows()
        assert free == [None, None]
        assert (rows.spent, rows.held) == ({}, {})

    @proves
    async def test_a_tightened_ceiling_holds_at_once_and_what_was_spent_counts(self, subject: Subject) -> None:
        """Requirement 83."""
        head = await subject.held("a1")
        await subject.done(ceiling(usd=10))
        await subject.done(starting(head, usd(6)))
        await subject.done(settling(head, usd(6)))

        tightened, short = await subject.write(ceiling(usd=5), starting(head, usd(1), ":1"))

        assert tightened == 0
        assert refused(short, PoolShort).short.gap == 2

    @proves
    async def test_a_ceiling_that_is_lifted_lets_go_what_it_held_and_remembers_what_was_spent(
        self, subject: Subject
    ) -> None:
        head = await subject.held("a1")
        await subject.done(ceiling(usd=10))
        await subject.done(ceiling(per="day", usd=10))
        await subject.done(starting(head, usd(3)))
        await subject.done(settling(head, usd(3)))
        await subject.done(starting(head, usd(6), ":1"))

        await subject.done(ceiling(usd=None))
        rows = await subject.store.pool_rows()
        await subject.done(ceiling(usd=10))

        assert rows.held == {("a1", ":1"): {("total", TODAY, "usd"): Decimal(6)}}
        assert await stands(subject) == {("total", "day", "usd"): ("3", "6"), ("total", "ever", "usd"): ("3", "0")}

    @proves
    async def test_ceilings_stand_in_the_store_s_own_verified_journal(self, subject: Subject) -> None:
        await raised(subject.store.chain(SYSTEM), UnknownRun)

        await subject.done(ceiling("tenant:acme", "day", usd="2.50", calls=None))

        said = {"usd": Decimal("2.50"), "calls": None}
        entry = CeilingSet(at=20, pool="tenant:acme", per="day", ceilings=said, why="a try", by="ann")
        assert [codec.decode(body) for body in await subject.bodies(SYSTEM)] == [entry]

    @proves
    async def test_a_kill_keeps_what_may_have_been_spent_and_releases_the_rest(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(ceiling(usd=10))
        for step, outcome in ((":0", "started"), (":1", "unknown"), (":2", "failed")):
            row = EffectRow(step, outcome, step, "charge", "keyed", 1, 5)
            await subject.done(starting(head, usd(2), step, effects=[row]))

        await subject.kill("a1")

        rows = await subject.store.pool_rows()
        assert sorted(rows.held) == [("a1", ":0"), ("a1", ":1")]
        after = await subject.claim("a1", "worker-2", None)
        await subject.done(settling(after, usd(1)))
        assert await stands(subject) == {("total", "ever", "usd"): ("1", "2")}

    @proves
    async def test_what_is_refused_for_another_reason_reserves_nothing(self, subject: Subject) -> None:
        lost = await subject.held("a1")
        await subject.claim("a1", "worker-2", "worker-1")
        head = await subject.held("a2")
        await subject.done(ceiling(usd=10))
        await subject.done(append(head, b"held", holds=[switch("tool:charge")]))

        stale, stopped, fits = await subject.write(
            starting(lost, usd(9)), starting(head, usd(9), scopes=("tool:charge",)), starting(head, usd(9), ":1")
        )

        refused(stale, EpochLost)
        refused(stopped, SwitchedOff)
        assert fits is None
        assert await stands(subject) == {("total", "ever", "usd"): ("0", "9")}

    @proves
    async def test_many_processes_that_reserve_at_once_never_exceed_the_ceiling(self, subject: Subject) -> None:
        """Requirement 72."""
        await subject.done(ceiling(usd=10))
        stores = [subject.store, *[await subject.other() for _ in range(3)]]
        heads = [await subject.held(f"a{number}") for number in range(len(stores))]

        async def reserve(place: int) -> int:
            held = 0
            for number in range(8):
                asked = starting(heads[place], usd("0.75"), f":{number}")
                (answer,) = await subject.write(asked, store=stores[place])
                held += answer is None
            return held

        granted = sum(await asyncio.gather(*map(reserve, range(len(stores)))))

        assert granted == 13
        assert await stands(subject) == {("total", "ever", "usd"): ("0", "9.75")}

    @proves
    async def test_setting_a_ceiling_makes_runs_due_that_wait_for_money_and_no_others(self, subject: Subject) -> None:
        for run_id, reason in (("a1", "budget"), ("a2", "approval")):
            head = await subject.held(run_id)
            await subject.done(append(head, b"parked", status=Status("parked", 30, reason), release=(30, 10**12)))

        woken = await subject.done(ceiling(usd=10))

        assert woken == 1
        assert [run.id for run in await subject.store.due(1_000, ["desk"], 10)] == ["a1"]

    @proves
    async def test_amounts_are_added_exactly(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(ceiling(usd="0.3"))

        answers = await subject.write(*(starting(head, usd("0.1"), f":{number}") for number in range(4)))

        assert [type(answer) for answer in answers] == [type(None), type(None), type(None), PoolShort]

    @proves
    async def test_what_is_written_is_read_in_the_order_of_writing(self, subject: Subject) -> None:
        head, other = await subject.held("a1"), await subject.held("a2")
        last = (await subject.store.written(0))[-1][0]

        await subject.write(append(head, b"one"), append(other, b"two"), ceiling(usd=1), append(head, b"three"))

        written = await subject.store.written(last)
        assert [(run, body[:9]) for _, run, _, body in written] == [
            ("a1", b"one"), ("a2", b"two"), (SYSTEM, b'{"entry":'), ("a1", b"three"),
        ]  # fmt: skip

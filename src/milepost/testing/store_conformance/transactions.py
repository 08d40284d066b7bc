"""Tools that run inside the append: their effect and its outcome are kept together, or neither is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from milepost.errors import EpochLost, MilepostError, Rejected
from milepost.stores.api import Append, Head
from milepost.testing.store_conformance.subject import Subject, append, claim, proves, refused

Work = Callable[[Any], list[bytes]]
MAKE = "CREATE TABLE IF NOT EXISTS crm (name TEXT PRIMARY KEY, notes INTEGER)"
ADD = "INSERT INTO crm (name, notes) VALUES ('ann', 1)"
READ = "SELECT name, notes FROM crm ORDER BY name"


def insert(tx: Any) -> list[bytes]:
    """Make the table and write a row; the outcome follows."""
    tx.execute(MAKE)
    tx.execute(ADD)
    return [b"confirmed"]


def transact(head: Head, work: Work, *bodies: bytes) -> Append:
    """Return an append whose outcome a tool writes inside it."""
    return append(head, *(bodies or (b"started",)), work=work)


async def rows(subject: Subject, head: Head) -> list[tuple[Any, ...]]:
    """Return what stands in the tool's table, read by another transactional tool."""
    found: list[tuple[Any, ...]] = []

    def look(tx: Any) -> list[bytes]:
        tx.execute(MAKE)
        found.extend(tx.execute(READ))
        return []

    await subject.done(transact(head, look))
    return found


class Transactions:
    """For a store whose capabilities say `transactional`."""

    @proves
    async def test_the_store_says_that_it_can(self, subject: Subject) -> None:
        assert subject.store.capabilities.transactional

    @proves
    async def test_effect_and_outcome_are_written_together(self, subject: Subject) -> None:
        head = await subject.held("a1")

        await subject.done(transact(head, insert))

        assert (await subject.bodies("a1"))[2:] == [b"started", b"confirmed"]
        assert await rows(subject, head) == [("ann", 1)]

    @proves
    async def test_a_tool_that_raises_leaves_neither_effect_nor_entry(self, subject: Subject) -> None:
        head, other = await subject.held("a1"), await subject.held("a2")

        def fail(tx: Any) -> list[bytes]:
            insert(tx)
            raise Rejected("no such customer")

        first, failed, last = await subject.write(append(other, b"one"), transact(head, fail), append(other, b"two"))

        assert (first, last) == (None, None)
        assert refused(failed, Rejected).why == "no such customer"
        assert await subject.bodies("a1") == [b"created a1", b"claimed 1"]
        assert (await subject.bodies("a2"))[2:] == [b"one", b"two"]
        assert await rows(subject, head) == []

    @proves
    async def test_a_tool_of_an_owner_that_lost_its_epoch_does_not_even_run(self, subject: Subject) -> None:
        lost = await subject.held("a1")
        ran: list[bool] = []

        def work(tx: Any) -> list[bytes]:
            ran.append(True)
            return insert(tx)

        _, answer = await subject.write(claim("a1", "worker-2", "worker-1"), transact(lost, work))

        refused(answer, EpochLost)
        assert ran == []

    @proves
    async def test_a_tool_sees_what_stood_before_it_in_the_batch(self, subject: Subject) -> None:
        head = await subject.held("a1")
        seen: list[tuple[Any, ...]] = []

        def look(tx: Any) -> list[bytes]:
            seen.extend(tx.execute(READ))
            return [b"looked"]

        await subject.write(transact(head, insert), append(head, b"between"), transact(head, look, b"started again"))

        assert seen == [("ann", 1)]
        assert (await subject.bodies("a1"))[2:] == [b"started", b"confirmed", b"between", b"started again", b"looked"]

    @proves
    async def test_a_tool_can_reach_neither_the_store_s_tables_nor_the_transaction(self, subject: Subject) -> None:
        head = await subject.held("a1")
        for sql in ("SELECT * FROM mp_runs", "DELETE FROM mp_journal", "DROP TABLE mp_heads", "COMMIT", "ROLLBACK"):

            def work(tx: Any, sql: str = sql) -> list[bytes]:
                insert(tx)
                tx.execute(sql)
                return [b"confirmed"]

            (answer,) = await subject.write(transact(head, work))

            refused(answer, MilepostError)
        assert await subject.bodies("a1") == [b"created a1", b"claimed 1"]
        assert await rows(subject, head) == []

    @proves
    async def test_the_transaction_is_closed_to_a_tool_that_kept_it(self, subject: Subject) -> None:
        head = await subject.held("a1")
        kept: list[Any] = []

        def keep(tx: Any) -> list[bytes]:
            kept.append(tx)
            return []

        await subject.done(transact(head, keep))

        with pytest.raises(Rejected, match="ended"):
            kept[0].execute(MAKE)

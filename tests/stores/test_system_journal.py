"""The store's own journal, in which switches are set and lifted: a run like any other, that nobody drives."""

import asyncio
from typing import Any

from milepost.core.chain import genesis, link
from milepost.stores.api import Lift
from milepost.testing.store_conformance import Subject
from milepost.testing.store_conformance.subject import append, switch
from tests.stores.conftest import SqlitePlace


def system(
    stores: SqlitePlace, *, lifted: bool = True
) -> tuple[tuple[Any, ...], tuple[Any, ...], list[tuple[Any, ...]]]:
    """Set a switch, lift it; return the system's row, its head and its entries, and check its chain."""

    async def scene() -> tuple[tuple[Any, ...], tuple[Any, ...], list[tuple[Any, ...]]]:
        subject = Subject(stores, await stores.open())
        head = await subject.held("a1")
        await subject.done(append(head, b"held", holds=[switch("tool:charge")]))
        if lifted:
            await subject.done(append(head, b"lifted", lifts=[Lift("tool:charge", "mended", "ann")]))
        writer = subject.store._writer  # type: ignore[attr-defined]
        row = writer.execute("SELECT * FROM mp_runs WHERE run = 0").fetchall()[0]
        moved = writer.execute(
            "SELECT epoch, row, seq, hash, boundary, segment FROM mp_heads WHERE run = 0"
        ).fetchall()[0]
        entries = writer.execute(
            "SELECT row, seq, previous, body, hash FROM mp_journal WHERE run = 0 ORDER BY row"
        ).fetchall()
        previous = genesis(subject.store.id, "system")
        for _, _, _, body, found in entries:
            previous = link(previous, body)
            assert found == previous
        subject.close()
        return row, moved, entries

    return asyncio.run(scene())


def test_the_system_s_run_belongs_to_nobody_and_is_never_due(stores: SqlitePlace) -> None:
    row, _, _ = system(stores)

    run, id_, workflow, version, attached, key, digest, status, *rest = row
    *waits, owner, parent, principal, tenant, tags, at, _ = rest[:12]
    assert (run, id_, workflow, version, attached, key, digest, status) == (0, "system", "", "", 0, None, "", "ready")
    assert (waits, owner, parent) == ([None] * 5, None, None)
    assert (principal, tenant, tags) == ("", None, "{}")
    assert at > 0
    assert rest[12:] == ["", 0, None, None, 0]


def test_the_system_s_entries_follow_one_another_from_its_genesis_on(stores: SqlitePlace) -> None:
    _, head, entries = system(stores)

    (first, *_), (second, *_) = entries
    assert [entry[1:3] for entry in entries] == [(1, 0), (2, first)]
    assert head[:6] == (0, second, 2, entries[-1][-1], 0, None)


def test_the_system_s_head_stands_at_its_first_entry_after_the_first_switch(stores: SqlitePlace) -> None:
    _, head, entries = system(stores, lifted=False)

    ((row, seq, previous, body, digest),) = entries
    assert (seq, previous) == (1, 0)
    assert head == (0, row, 1, digest, 0, None)
    assert b'"scope":"tool:charge"' in body

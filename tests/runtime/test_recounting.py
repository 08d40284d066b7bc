"""The shared budgets are compared with the journals only where nobody changes them meanwhile."""

from decimal import Decimal
from pathlib import Path

from milepost.operations.recounting import recount
from milepost.stores.pools import SetCeiling
from milepost.stores.sqlite.store import SqliteStore


def ceiling(usd: int) -> SetCeiling:
    return SetCeiling("total", "ever", {"usd": Decimal(usd)}, "a try", "ann", 20)


class Meanwhile(SqliteStore):
    """A store of which somebody else sets a ceiling right after its journals were read."""

    usd = 7

    async def written(self, after: int) -> list[tuple[int, str, int, bytes]]:
        found = await super().written(after)
        if not found:
            other = SqliteStore(self.place)
            await other.commit([ceiling(self.usd)])
            other.close()
        return found


async def test_a_ceiling_that_is_set_while_the_books_are_counted_is_no_damage(tmp_path: Path) -> None:
    store = Meanwhile(str(tmp_path / "store.db"), create=True)
    try:
        assert await recount(store) == []
        store.usd = 8
        assert await recount(store) == []
    finally:
        store.close()


async def test_a_ceiling_that_no_journal_speaks_of_is_damage(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "store.db"), create=True)
    try:
        await store.commit([ceiling(7)])
        assert await recount(store) == []
        store._writer.execute("UPDATE mp_ceilings SET ceiling = '700'").fetchall()
        assert await recount(store) == ["usd of total (ever): the rows say a ceiling of 700, the journal 7"]
    finally:
        store.close()

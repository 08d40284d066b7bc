"""A store in a PostgreSQL database, for as many workers on as many machines as it takes. Extra `postgres`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.errors import ExtraMissing

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from milepost.stores.postgres.store import PostgresStore
    from milepost.stores.postgres.tables import PostgresTables


def store_class(load: Callable[[str], ModuleType]) -> type[PostgresStore]:
    """Return the store, whose driver is an extra and slow to import: `load` imports by name. Raises ExtraMissing."""
    try:
        found: type[PostgresStore] = load("milepost.stores.postgres.store").PostgresStore
    except ImportError as error:
        what = "stores in PostgreSQL"
        raise ExtraMissing(what, "postgres") from error
    return found


def tables_class(load: Callable[[str], ModuleType]) -> type[PostgresTables]:
    """Return what keeps a surface's own tables in a database; as `store_class`. Raises ExtraMissing."""
    store_class(load)
    found: type[PostgresTables] = load("milepost.stores.postgres.tables").PostgresTables
    return found

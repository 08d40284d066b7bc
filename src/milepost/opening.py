"""Where concrete stores are named: by the URL of a store, the store itself, and tables that stand beside its own."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from milepost.stores import postgres
from milepost.stores.encryption import load as load_cipher
from milepost.stores.places import file_of
from milepost.stores.sqlite.store import SqliteStore
from milepost.stores.sqlite.tables import SqliteTables

if TYPE_CHECKING:
    from collections.abc import Callable

    from milepost.stores.api import Store
    from milepost.stores.encryption import Cipher
    from milepost.stores.tables import Tables

ENCRYPTION = "MILEPOST_ENCRYPTION"


def open_store(url: str, *, create: bool = False, encryption: Path | None = None) -> Store:
    """Open the store that a URL names; `encryption` is its key file, else the one that MILEPOST_ENCRYPTION names.

    Raises InvalidDeclaration for a scheme that this version does not have, KeyFileRefused.
    """
    file, cipher = file_of(url), _cipher(encryption)
    kind: Callable[..., Store] = postgres.store_class(import_module) if file is None else SqliteStore
    return kind(file or url, create=create, cipher=cipher)


def open_tables(url: str, package: str, *, encryption: Path | None = None) -> Tables:
    """Open the tables that a surface keeps in the database of a store; makes the store, and them, where they are not.

    `package` holds, for each kind of store, a package `sqlite` or `postgres` with `queries.sql` and a package
    `migrations`. Raises as opening the store does, and NewerSchema, NotPermitted where who opens may not make tables.
    """
    file, cipher = file_of(url), _cipher(encryption)
    kind: Callable[..., Tables] = postgres.tables_class(import_module) if file is None else SqliteTables
    return kind(file or url, package, cipher=cipher)


def _cipher(encryption: Path | None) -> Cipher | None:
    named = os.environ.get(ENCRYPTION)
    keys_at = encryption or (Path(named) if named else None)
    return None if keys_at is None else load_cipher(keys_at)

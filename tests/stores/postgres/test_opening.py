"""What a person reads when a database cannot be opened, and what is there once it is."""

import subprocess
import sys

import psycopg
import pytest

from milepost.app import open_store
from milepost.errors import NewerSchema, StoreError, StoreMissing, StoreUnreachable
from milepost.stores.places import local_of, place_of
from milepost.stores.postgres.connection import address
from milepost.stores.postgres.store import PostgresStore
from tests.servers.fixtures import OwnPostgres, PostgresDatabase

SECRET = "hunter2"  # noqa: S105  nobody's
ONE = pytest.mark.parametrize("postgres_version", [18], ids=["postgres-18"])


def kind_of(url: str) -> str:
    with pytest.raises(StoreUnreachable) as refused:
        open_store(url)
    assert SECRET not in str(refused.value)
    return refused.value.kind


@ONE
def test_a_database_without_our_tables_is_no_store_until_one_is_made(database: PostgresDatabase) -> None:
    with pytest.raises(StoreMissing, match="milepost init"):
        open_store(database.url)

    made = open_store(database.url, create=True)
    again = open_store(database.url)

    assert made.id == again.id
    for store in (made, again):
        store.close()


@ONE
def test_a_store_of_a_newer_version_is_left_alone(database: PostgresDatabase) -> None:
    PostgresStore(database.url, create=True).close()
    with psycopg.connect(database.url) as connection:
        connection.execute("INSERT INTO mp_migrations VALUES (99, '0099_post_later', 'post', 'sum', 1)")

    with pytest.raises(NewerSchema):
        open_store(database.url)


def test_a_server_that_is_away_a_database_that_is_not_there_and_a_full_server_are_told_apart(
    own_postgres: OwnPostgres,
) -> None:
    server = own_postgres(18, settings={"max_connections": "6", "superuser_reserved_connections": "0"})
    name = server.create_database()
    assert kind_of(server.url("nowhere")) == "database"
    taken = [psycopg.connect(server.url(name)) for _ in range(6)]
    assert kind_of(server.url(name)) == "exhausted"
    for connection in taken:
        connection.close()
    server.stop()
    assert kind_of(server.url(name)) == "away"
    assert kind_of(f"postgresql://owner:{SECRET}@127.0.0.1:1/x") == "away"


def test_a_wrong_password_is_told_without_showing_it(own_postgres: OwnPostgres) -> None:
    server = own_postgres(18)
    server.execute("CREATE ROLE worker LOGIN PASSWORD 'right'")
    (data,) = (str(row[0]) for row in server.execute("SHOW data_directory"))
    with open(f"{data}/pg_hba.conf", "w") as hba:  # noqa: PTH123
        hba.write(
            "local all owner trust\nhost all owner 127.0.0.1/32 trust\nhost all worker 127.0.0.1/32 scram-sha-256\n"
        )
    server.execute("SELECT pg_reload_conf()")

    assert kind_of(f"postgresql://worker:{SECRET}@127.0.0.1:{server.port}/postgres") == "login"


def test_without_the_extra_it_says_what_to_install() -> None:
    code = """
import sys
sys.modules["psycopg"] = None
from milepost.app import open_store
try:
    open_store("postgresql://x@y/z")
except Exception as error:
    print(type(error).__name__, error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert said.startswith("ExtraMissing")
    assert "milepost[postgres]" in said


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (f"postgresql://ann:{SECRET}@db.example:5433/shop?sslmode=require", "postgresql://ann@db.example:5433/shop"),
        (f"postgres:///shop?host=/run/pg&port=5433&user=ann&password={SECRET}", "postgresql://ann@/run/pg:5433/shop"),
        ("postgresql://db/shop", "postgresql://db/shop"),
    ],
)
def test_what_is_shown_of_a_url_has_no_password(url: str, place: str) -> None:
    assert place_of(url) == address(url).place == place
    assert SECRET not in local_of(url)


def test_a_url_that_is_none_is_refused_without_repeating_it() -> None:
    with pytest.raises(StoreError) as refused:
        address(f"postgresql://ann:{SECRET}@host/shop?no_such_setting=1")

    assert SECRET not in str(refused.value)

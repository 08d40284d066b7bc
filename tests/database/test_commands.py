"""What who owns the database types, and what it says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from milepost.cli.main import cli
from milepost.stores.postgres.connection import MIGRATIONS
from milepost.stores.postgres.schema import Schema
from tests.database.test_side_by_side import ADDS, NEW, TAKES, enlist
from tests.servers.fixtures import OwnPostgres, PostgresDatabase


class Owner:
    """Types commands on one database."""

    def __init__(self, url: str) -> None:
        self.url = url

    def types(self, *args: str, code: int = 0) -> str:
        done = CliRunner().invoke(cli, ["db", *args, "--store", self.url], prog_name="milepost")
        assert done.exit_code == code, done.output
        return str(done.stdout)

    def reads(self, *args: str, code: int = 0) -> Any:
        return json.loads(self.types(*args, "--json", code=code))


@pytest.fixture
def owner(database: PostgresDatabase) -> Owner:
    return Owner(database.url)


@pytest.mark.parametrize("postgres_version", [15, 18])
def test_a_store_is_made_once_with_its_roles_and_checked(owner: Owner) -> None:
    first, second = owner.reads("init"), owner.reads("init")
    owner.types("roles")
    checks = {one["name"]: one["ok"] for one in owner.reads("check", code=1)["checks"]}

    assert (first["created"], second["created"]) == (True, False)
    assert first["id"] == second["id"]
    assert [name for name, ok in checks.items() if not ok] == ["fsync", "full_page_writes"]  # as the test server has it


def test_a_store_on_a_server_as_it_comes_has_nothing_wrong(own_postgres: OwnPostgres) -> None:
    server = own_postgres(18, settings={"fsync": "on", "full_page_writes": "on"})
    owner = Owner(server.url(server.create_database()))
    owner.types("init")
    owner.types("roles")

    assert "nothing is wrong" in owner.types("check")


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("GRANT DELETE ON mp_journal TO milepost_worker", "too many grants"),
        ("REVOKE INSERT ON mp_journal FROM milepost_worker", "too few grants"),
        ("ALTER TABLE mp_inbox DISABLE TRIGGER mp_inbox_by_whom", "guards"),
        ("ALTER TABLE mp_journal DISABLE TRIGGER mp_journal_no_update", "triggers"),
    ],
)
@pytest.mark.parametrize("postgres_version", [15, 18])
def test_what_was_loosened_is_found(owner: Owner, roles: PostgresDatabase, statement: str, name: str) -> None:
    roles.server.execute(statement, roles.name)

    found = {one["name"] for one in owner.reads("check", code=1)["checks"] if not one["ok"]}

    assert found == {"fsync", "full_page_writes", name}


@pytest.mark.parametrize("postgres_version", [15, 18])
def test_a_worker_who_is_a_person_too_is_found(owner: Owner, roles: PostgresDatabase) -> None:
    roles.server.execute("DROP ROLE IF EXISTS twofold")
    roles.server.execute("CREATE ROLE twofold LOGIN IN ROLE milepost_worker, milepost_operator")

    found = {one["name"]: one["found"] for one in owner.reads("check", code=1)["checks"] if not one["ok"]}
    roles.server.execute("DROP ROLE twofold")

    assert found["workers who are people"] == "twofold"


@pytest.mark.parametrize("postgres_version", [15, 18])
def test_a_deploy_is_two_commands_with_the_new_code_between_them(
    owner: Owner, schema: Schema, database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    enlist(database, "old", len(MIGRATIONS))
    monkeypatch.setattr(Schema.__init__, "__defaults__", (NEW,))

    planned = owner.reads("migrate", "--pre", "--plan")
    before = owner.reads("migrate", "--pre")
    waits = owner.reads("migrate", "--post", code=5)
    everything = owner.types("migrate")
    database.server.execute("UPDATE mp_workers SET ended_at = 1", database.name)
    after = owner.types("migrate", "--post")

    assert planned["applied"] == before["applied"] == [ADDS.name]
    assert (waits["applied"], waits["waits"]) == ([], [TAKES.name])
    assert "is at work" in everything
    assert f"Applied {TAKES.name}" in after
    assert "is up to date" in owner.types("migrate")


@pytest.mark.parametrize("postgres_version", [18])
def test_the_statements_of_the_roles_can_be_given_to_somebody_else(owner: Owner, schema: Schema) -> None:
    printed = owner.types("roles", "--sql")

    assert "CREATE ROLE milepost_worker NOLOGIN" in printed
    (found,) = [one for one in owner.reads("check", code=1)["checks"] if one["name"] == "roles"]
    assert not found["ok"]


def test_a_store_in_a_file_has_no_tables_to_look_after() -> None:
    done = CliRunner().invoke(cli, ["db", "check", "--store", "sqlite:///some.db", "--json"])

    assert done.exit_code == 2
    assert "brought up to date when it is opened" in done.stderr


@pytest.mark.parametrize("postgres_version", [18])
def test_there_is_nothing_to_check_where_there_is_no_store(owner: Owner) -> None:
    for command in ("check", "migrate", "roles"):
        done = CliRunner().invoke(cli, ["db", command, "--store", owner.url, "--json"])

        assert done.exit_code == 4
        assert json.loads(done.stderr.splitlines()[-1])["error"]["code"] == "store_missing"

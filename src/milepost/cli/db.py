"""`milepost db`: the tables of a PostgreSQL store, for who owns them. A SQLite store looks after itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

import click

from milepost.cli.exits import FOUND_DAMAGE, OK, REFUSED
from milepost.cli.options import json_option, store_option
from milepost.cli.printing import plain, say, say_json, table
from milepost.cli.settings import Settings
from milepost.errors import ExtraMissing, InvalidDeclaration
from milepost.stores.places import is_postgres

if TYPE_CHECKING:
    from milepost.stores.migrate import Plan
    from milepost.stores.postgres.schema import Schema


@click.group()
def db() -> None:
    """Make, migrate and check the tables of a PostgreSQL store, and give roles what they need. Each takes --json.

    Connect as who owns the tables. A deploy: `db migrate --pre`, then the new code, worker by worker; and when the last
    old one has gone, `db migrate --post`. Programs never change tables when they open a store.
    """


def open_schema(url: str) -> Schema:
    """Open the tables of a PostgreSQL store, as who owns them. Raises InvalidDeclaration for a SQLite store."""
    if not is_postgres(url):
        raise InvalidDeclaration(
            f"store {url!r} has no tables to look after: a SQLite store is brought up to date when it is opened"
        )
    try:
        from milepost.stores.postgres.schema import schema_at  # the driver comes with an extra
    except ImportError as error:
        raise ExtraMissing("stores in PostgreSQL", "postgres") from error
    return schema_at(url)


@contextmanager
def schema_of(store: str | None) -> Iterator[Schema]:
    """Open the tables of the store that is meant."""
    schema = open_schema(Settings(store).url)
    try:
        yield schema
    finally:
        schema.close()


@db.command()
@store_option
@json_option
def init(store: str | None, *, as_json: bool) -> None:
    """Make the store's tables in a database that exists. Where they are already there, nothing is changed."""
    with schema_of(store) as schema:
        created = schema.create()
        standing = schema.standing()
        place = schema.place
    if as_json:
        say_json({"store": place, "id": standing.id, "created": created, "applied": len(standing.applied)})
        return
    say(f"{'Created' if created else 'There is a store already:'} {place} (store {standing.id[:8]}).")
    if standing.missing:
        say("It is older than this version: milepost db migrate")
    say("Next: milepost db roles, and let workers log in as members of milepost_worker.")


@db.command()
@click.option("--pre", "kind", flag_value="pre", help="Only what comes before the new code.")
@click.option("--post", "kind", flag_value="post", help="Only what comes after the last of the old code.")
@click.option("--plan", "only_plan", is_flag=True, help="Say what would be applied, and apply nothing.")
@store_option
@json_option
def migrate(kind: Literal["pre", "post"] | None, store: str | None, *, only_plan: bool, as_json: bool) -> None:
    """Bring the tables up to date: what adds at once, what takes away when no worker at work needs it.

    Ends with code 5 where something was asked for that has to wait.
    """
    with schema_of(store) as schema:
        plan = schema.plan(kind)
        applied = list(plan.apply) if only_plan else schema.apply(kind)
        after = plan if only_plan else schema.plan(kind)
        place = schema.place
    refused = kind is not None and any(one.kind == kind for one in after.waits)
    if as_json:
        names = {"applied": [one.name for one in applied], "waits": [one.name for one in after.waits]}
        say_json({"store": place, "planned_only": only_plan, **names, "why": after.why})
    else:
        told(place, after, [one.name for one in applied], only_plan=only_plan)
    click.get_current_context().exit(REFUSED if refused else OK)


def told(place: str, after: Plan, applied: list[str], *, only_plan: bool) -> None:
    """Say what was applied, and what waits."""
    for name in applied:
        say(f"{'Would apply' if only_plan else 'Applied'} {plain(name)}.")
    if after.waits:
        say(f"{', '.join(one.name for one in after.waits)} waits: {after.why}.")
    elif not applied:
        say(f"{place} is up to date.")


@db.command()
@store_option
@json_option
def check(store: str | None, *, as_json: bool) -> None:
    """Check migrations, the server's settings, triggers, roles and their grants. Ends with 1 where something is wrong.

    Changes nothing.
    """
    with schema_of(store) as schema:
        checks = schema.checks()
        at_work = schema.standing().at_work
        place = schema.place
    ok = all(one.ok for one in checks)
    if as_json:
        workers = [{"knows": knows, "workers": count} for knows, count in at_work]
        say_json({"store": place, "ok": ok, "checks": [asdict(one) for one in checks], "at_work": workers})
    else:
        table(
            ("check", "state", "found"),
            [(one.name, "ok" if one.ok else "wrong", one.found) for one in checks],
            styled="state",
        )
        for one in checks:
            if one.todo:
                say(f"{one.name}: {plain(one.todo)}")
        for knows, count in at_work:
            say(f"{count} at work whose code knows the migrations up to {knows:04}.")
        say(f"{place}: {'nothing is wrong' if ok else 'something is wrong'}.")
    click.get_current_context().exit(OK if ok else FOUND_DAMAGE)


@db.command()
@click.option("--sql", is_flag=True, help="Print the statements for who may make roles, and change nothing.")
@store_option
@json_option
def roles(store: str | None, *, sql: bool, as_json: bool) -> None:
    """Make the roles milepost_worker and milepost_operator, and grant each what it needs and no more.

    May be repeated, and has to be after a migration that brought new tables. Neither role logs in: make others members
    of them.
    """
    with schema_of(store) as schema:
        if sql:
            click.echo(schema.roles_sql, nl=False)
            return
        schema.grant_roles()
        place = schema.place
    if as_json:
        say_json({"store": place, "roles": ["milepost_worker", "milepost_operator"]})
        return
    say(f"{place} has the roles milepost_worker and milepost_operator. Next, as who may make roles:")
    say("  CREATE ROLE my_worker LOGIN PASSWORD '…' IN ROLE milepost_worker;")
    say("  CREATE ROLE ann LOGIN PASSWORD '…' IN ROLE milepost_operator;")

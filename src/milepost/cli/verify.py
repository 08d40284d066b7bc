"""`milepost verify`."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from milepost.cli.exits import FOUND_DAMAGE, OK
from milepost.cli.opening import SYSTEM, find_run, opened, wait_for
from milepost.cli.options import common
from milepost.cli.printing import plain, say, say_json
from milepost.cli.settings import Settings
from milepost.errors import UnknownRun
from milepost.operations.inspection import Inspector
from milepost.operations.recounting import recount
from milepost.stores.api import Check, Query

if TYPE_CHECKING:
    from milepost.operations.inspection import Verified
    from milepost.stores.api import Store


@click.command()
@click.argument("run", required=False)
@click.option("--all", "every", is_flag=True, help="Every run, and the pages of the file; the same as naming none.")
@common
def verify(run: str | None, store: str | None, app: str | None, *, every: bool, as_json: bool) -> None:
    """Check every hash, entry and chunk of one run, or of all; of all, also shared budgets against the journals.

    Ends with code 1 where anything is damaged, and names the run and the entry.
    """
    if every and run is not None:
        raise click.UsageError("name one run, or --all")
    with opened(Settings(store, app).url) as store_:
        found, pages = wait_for(_one(store_, run) if run is not None else _all(store_))
        damaged = [one for one in found if one.damage is not None]
        budgets = wait_for(recount(store_)) if run is None and not damaged else []
    sound = not damaged and not budgets and pages.ok
    if as_json:
        runs = [
            {"run": one.run_id, "entries": one.entries, "chunks": one.chunks, "damage": one.damage, "entry": one.seq}
            for one in found
        ]
        say_json({"sound": sound, "pages": pages.found, "runs": runs, "budgets": budgets})
    else:
        for differs in budgets:
            click.secho(f"DAMAGED  the shared budgets: {plain(differs)}", fg="red")
        _say(found, damaged, pages)
    click.get_current_context().exit(OK if sound else FOUND_DAMAGE)


async def _one(store: Store, prefix: str) -> tuple[list[Verified], Check]:
    run_id = await find_run(store, prefix)
    return [await Inspector(store).verify(run_id)], Check("pages", ok=True, found="not read", todo="")


async def _all(store: Store) -> tuple[list[Verified], Check]:
    inspector = Inspector(store)
    ids = [row.id for row in await inspector.runs(Query(limit=sys.maxsize))]
    with suppress(UnknownRun):  # where nothing was ever stopped or held, the store has no journal of its own
        ids.append(await store.resolve_id(SYSTEM))
    return [await inspector.verify(run_id) for run_id in reversed(ids)], await store.pages()


def _say(found: list[Verified], damaged: list[Verified], pages: Check) -> None:
    for one in damaged:
        at = "" if one.seq is None else f", entry {one.seq}"
        click.secho(f"DAMAGED  run {plain(one.run_id)}{at}: {plain(one.damage)}", fg="red")
    if not pages.ok:
        click.secho(f"DAMAGED  the file: {plain(pages.found)}. Next: {pages.todo}", fg="red")
    entries, chunks = sum(one.entries for one in found), sum(one.chunks for one in found)
    sound = f"{len(found) - len(damaged)} of {len(found)} run{'' if len(found) == 1 else 's'} sound"
    say(f"{sound}: {entries:,} entries, {chunks:,} chunks read.")

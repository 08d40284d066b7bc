"""`milepost runs`."""

from __future__ import annotations

import click

from milepost.cli.budget import say_overspent
from milepost.cli.code_asked import asked, changed, say_changes, say_stranded
from milepost.cli.describing import named, run_json, waits_for
from milepost.cli.opening import opened, wait_for
from milepost.cli.options import common, pairs
from milepost.cli.printing import ago, heading, note, plain, say, say_json, short, table
from milepost.cli.settings import Settings
from milepost.operations.inspection import Inspector
from milepost.stores.api import Query

STATUSES = ["ready", "running", "parked", "blocked", "done", "failed", "cancelled", "killed"]


@click.command()
@click.option("--status", type=click.Choice(STATUSES), help="Only runs in this status.")
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--key", help="Only the run that this key names.")
@click.option("--tag", metavar="NAME=VALUE", help="Only runs with this tag.")
@click.option("--parent", metavar="RUN", help="Only the runs that this one started.")
@click.option("--needs-you", is_flag=True, help="Only runs that a person must look at, with the commands to type.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@common
def runs(
    status: str | None,
    workflow: str | None,
    key: str | None,
    tag: str | None,
    parent: str | None,
    limit: int,
    store: str | None,
    app: str | None,
    *,
    needs_you: bool,
    as_json: bool,
) -> None:
    """List runs, newest first.

    With --app typed out, the App's code is asked which of them it would strand.
    """
    wanted = next(iter(pairs("--tag", [tag]).items())) if tag else None
    settings = Settings(store, app)
    with opened(settings.url) as store_:
        above = None if parent is None else wait_for(store_.resolve_id(parent))
        query = Query(status, workflow, key, above, needs_you, wanted, limit + 1)
        found = wait_for(Inspector(store_).runs(query))
        rows, more = found[:limit], len(found) > limit
        changes = wait_for(changed(store_, rows))
        over = wait_for(store_.overspent())
        over = {row.id: over[row.id] for row in rows if row.id in over}
    code = asked(settings, rows)
    if as_json:
        shown = [{**run_json(row), "changes": changes.get(row.id, ()), "code": code.get(row.id)} for row in rows]
        say_json([{**run, "overspent": over.get(run["run"], {})} for run in shown])
        return
    if not rows:
        say(
            "No run fits."
            if status or workflow or key or tag or parent or needs_you
            else "No runs yet. Start one: milepost start"
        )
        return
    table(
        ("run", "workflow", "stage", "status", "since", "waits for"),
        [(short(r.id), named(r), r.segment or "", r.status, ago(r.changed_at), waits_for(r)) for r in rows],
    )
    to_do = [row for row in rows if row.ask and (needs_you or row.status in {"parked", "blocked"})]
    if to_do:
        heading("To do")
        for row in to_do:
            say(f"  {short(row.id)}  {plain(row.ask)}")
    say_overspent(over)
    say_changes(changes)
    say_stranded(code)
    if more:
        note(f"There are more than {limit}: see them with --limit.")

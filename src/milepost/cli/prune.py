"""`milepost prune`."""

from __future__ import annotations

import click

from milepost.cli import options
from milepost.cli.opening import now_ms, opened, wait_for, writing
from milepost.cli.options import by_option, common
from milepost.cli.printing import ago, iso, plain, say, say_json, short, table
from milepost.cli.settings import Settings
from milepost.core.duration import parse_ms
from milepost.operations import retention
from milepost.stores.keeping import Prunable


@click.command()
@click.option("--before", type=options.Span(), required=True, metavar="SPAN", help="Only runs that ended so long ago.")
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted, and what would stay.")
@click.option("--why", default="", help="Recorded in the tombstones.")
@by_option
@common
def prune(
    before: str, workflow: str | None, why: str, by: str | None, store: str | None, app: str | None,
    *, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Delete runs that ended long ago, each beside a tombstone.

    What they claimed stays claimed, and their keys stay used. A run whose effects are open is never deleted.
    """
    now, user = now_ms(), options.user(by)
    reason = why or f"ended more than {before} ago"
    with opened(Settings(store, app).url) as store_:
        found = wait_for(
            retention.prune(
                store_, writing(store_), before=now - parse_ms(before), now=now, by=user, why=reason,
                workflow=workflow, dry=dry_run,
            )
        )  # fmt: skip
    if as_json:
        gone = [_json(one) for one in found.runs]
        say_json({"dry_run": dry_run, "pruned": gone, "kept": [{**_json(one), "why": one.kept} for one in found.kept]})
        return
    say(f"{'Would delete' if dry_run else 'Deleted'} {len(found.runs)} runs.")
    if dry_run and found.runs:
        rows = [(short(one.run_id), plain(one.workflow), one.status, ago(one.changed_at)) for one in found.runs]
        table(("run", "workflow", "status", "ended"), rows)
    if found.kept:
        say(f"{len(found.kept)} have to stay:")
        for one in found.kept:
            say(f"  {short(one.run_id)}  {one.kept}")


def _json(one: Prunable) -> dict[str, object]:
    return {"run": one.run_id, "workflow": one.workflow, "status": one.status, "ended": iso(one.changed_at)}

"""`milepost rewind`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from milepost.cli.delivering import look, tell, until_rested
from milepost.cli.opening import find_run, opened, operator, wait_for
from milepost.cli.options import by_option, common, user, waiting
from milepost.cli.printing import iso, moment, note, plain, say, say_json, short, table
from milepost.cli.settings import Settings
from milepost.errors import NotReversible
from milepost.operations.history import history_of, look_back, refusal

if TYPE_CHECKING:
    from milepost.app import App
    from milepost.core.history import Stage
    from milepost.stores.api import Store


@dataclass(frozen=True, slots=True)
class Way:
    """What a rewind would do. `sure` says whether the App was asked what undoes what, or only the record."""

    run: str
    boundary: str
    undo: list[dict[str, str | None]]
    left: list[str]
    refused: list[str]
    sure: bool


@click.command()
@click.argument("run")
@click.option("--to", metavar="BOUNDARY", help="A boundary, by its name or number. Without it they are listed.")
@click.option("--why", help="Recorded. Needed, unless it is a dry run.")
@click.option("--dry-run", is_flag=True, help="Show what would be undone and what forbids it; change nothing.")
@by_option
@waiting
@common
def rewind(run: str, to: str | None, why: str | None, by: str | None, *, dry_run: bool, **common_: Any) -> None:
    """Take a run back to an earlier boundary, undoing what it did since then.

    Its worker undoes each effect with the tool that was declared for it, newest first, and then enters the boundary's
    segment anew. It is refused before anything is done where one effect cannot be undone. Give --app to have that
    checked here.
    """
    settings = Settings(common_["store"], common_["app"])
    as_json = common_["as_json"]
    with opened(settings.url) as store:
        run_id = wait_for(find_run(store, run))
        if to is None:
            _boundaries(wait_for(history_of(store, run_id)).stages, as_json=as_json)
            return
        if dry_run:
            _show(wait_for(_way(store, settings, run_id, to)), as_json=as_json)
            return
        if not why:
            raise click.UsageError("say --why: it is recorded")
        wait_for(_rewind(store, settings, run_id, to, {"by": user(by), "why": why}, common_))


async def _rewind(
    store: Store, settings: Settings, run_id: str, to: str, who: dict[str, str], common_: dict[str, Any]
) -> None:
    before = (await store.run(run_id)).seq
    if settings.named_app is not None:
        way = await _way(store, settings, run_id, to)
        if way.refused:
            raise NotReversible(run_id, way.boundary, way.refused)
    back = await operator(store).rewind(run_id, to=to, **who)
    next_ = await (until_rested(store, run_id, common_["timeout"]) if common_["wait"] else look(store, run_id))
    refused = await refusal(store, run_id, before)
    if refused is not None:
        raise NotReversible(run_id, back.boundary, [refused])
    done = f"Asked run {short(run_id)} to go back to boundary {back.boundary}."
    tell(done, next_, {"verb": "rewind", "done": done, "boundary": back.boundary}, as_json=common_["as_json"])


async def _way(store: Store, settings: Settings, run_id: str, to: str) -> Way:
    if settings.named_app is None:
        back = await look_back(store, run_id, to)
        undo: list[dict[str, str | None]] = [{"path": path, "with": None} for path in back.since]
        return Way(run_id, back.boundary, undo, [], back.refused, sure=False)
    return await _way_of(settings.app, run_id, to)


async def _way_of(app: App, run_id: str, to: str) -> Way:
    async with app.client():
        way = await app.find_way(run_id, to)
    undo: list[dict[str, str | None]] = [{"path": one.path, "with": one.with_} for one in way.undo]
    return Way(run_id, way.target.name, undo, way.left, way.refused, sure=True)


def _show(way: Way, *, as_json: bool) -> None:
    if as_json:
        say_json(asdict(way))
        return
    say(f"Run {short(way.run)}, back to boundary {plain(way.boundary)}:")
    for one in way.undo:
        say(plain(f"  would undo   {one['path']}" + (f"  with {one['with']}" if one["with"] else "")))
    for what in way.left:
        say(plain(f"  would leave  {what}"))
    for why in way.refused:
        say(plain(f"  refused      {why}"))
    if not way.undo and not way.refused:
        say("  would undo   nothing")
    if not way.sure:
        note("From the record alone: give --app to have today's code say what undoes what, and what nothing undoes.")


def _boundaries(stages: list[Stage], *, as_json: bool) -> None:
    if as_json:
        told = [
            {"boundary": one.name, "number": one.visit, "entry": one.seq, "at": iso(one.at), "undone": one.undone}
            for one in stages
        ]
        say_json(told)
        return
    rows = [
        (one.name, str(one.visit), str(one.seq), moment(one.at), "undone" if one.undone else "stands") for one in stages
    ]
    table(("boundary", "number", "entry", "time (UTC)", "now"), rows)
    say("Go back to one: milepost rewind RUN --to BOUNDARY --why …")

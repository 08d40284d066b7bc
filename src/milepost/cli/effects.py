"""`milepost effects`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from milepost.cli.describing import effect_json, open_effect_json, resolve_command
from milepost.cli.opening import find_run, opened, wait_for
from milepost.cli.options import common
from milepost.cli.printing import ago, compact, heading, plain, say, say_json, short, table
from milepost.cli.settings import Settings
from milepost.operations.inspection import Inspector

if TYPE_CHECKING:
    from milepost.operations.inspection import EffectView
    from milepost.stores.api import OpenEffect, Store


@click.command()
@click.argument("run", required=False)
@click.option(
    "--all", "every", is_flag=True, help="Every effect of RUN from its whole journal, with outcomes and results."
)
@common
def effects(run: str | None, store: str | None, app: str | None, *, every: bool, as_json: bool) -> None:
    """Show effects whose outcome is not settled, of one run or of all."""
    if every and run is None:
        raise click.UsageError("--all reads a whole journal: say of which run")
    with opened(Settings(store, app).url) as store_:
        if every and run is not None:
            _show_all(wait_for(_all(store_, run)), as_json=as_json)
        else:
            _show_open(wait_for(_open(store_, run)), run, as_json=as_json)


async def _all(store: Store, prefix: str) -> list[EffectView]:
    return await Inspector(store).effects(await find_run(store, prefix))


async def _open(store: Store, prefix: str | None) -> list[OpenEffect]:
    return await Inspector(store).open_effects(None if prefix is None else await find_run(store, prefix))


def _show_all(found: list[EffectView], *, as_json: bool) -> None:
    if as_json:
        say_json([effect_json(effect) for effect in found])
        return
    if not found:
        say("This run has made no effect.")
        return
    table(
        ("step", "class", "outcome", "attempts", "by", "arguments", "result or reason"),
        [
            (
                effect.path,
                effect.effect,
                effect.outcome,
                str(effect.attempt),
                effect.by,
                compact(effect.args, 50),
                compact(effect.result) if effect.outcome == "confirmed" else effect.why,
            )
            for effect in found
        ],
        styled="outcome",
    )


def _show_open(found: list[OpenEffect], run: str | None, *, as_json: bool) -> None:
    if as_json:
        say_json([open_effect_json(effect) for effect in found])
        return
    if not found:
        say("Every effect is settled." + (f" See them with: milepost effects {run} --all" if run else ""))
        return
    table(
        ("run", "step", "class", "outcome", "attempts", "since", "why"),
        [
            (
                short(effect.run_id),
                effect.path,
                effect.effect,
                effect.outcome,
                str(effect.attempt),
                "" if effect.started_at is None else ago(effect.started_at),
                effect.person or effect.why or "",
            )
            for effect in found
        ],
        styled="outcome",
    )
    asked = [effect for effect in found if effect.person]
    if asked:
        heading("To do, once you know what happened outside")
        for effect in asked:
            say(f"  {plain(resolve_command(effect.run_id, effect.path))}")

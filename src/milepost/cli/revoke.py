"""`milepost revoke`: take scopes from a run, or lower what it may spend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli import options
from milepost.cli.delivering import is_dead, look, tell, until_rested
from milepost.cli.opening import find_run, opened, operator, wait_for
from milepost.cli.options import by_option, common, waiting
from milepost.cli.printing import note, short
from milepost.cli.settings import Settings

if TYPE_CHECKING:
    from milepost.stores.api import Store

NOT_YET = "The worker that holds the run has not taken it yet. What holds without a worker: milepost kill {run}"


@click.command()
@click.argument("run")
@click.argument("scopes", nargs=-1)
@click.option(
    "--ceiling", "ceilings", multiple=True, metavar="UNIT=AMOUNT", help="Most that it may spend in all, such as usd=5."
)
@click.option("--why", required=True, help="Recorded.")
@by_option
@waiting
@common
def revoke(
    run: str, scopes: tuple[str, ...], ceilings: tuple[str, ...], why: str, by: str | None, **common_: Any
) -> None:
    """Take scopes from a run, or lower what it was granted; what it has spent counts.

    Nothing starts beyond it once this has returned, now and whenever the run is resumed, until somebody grants anew.
    """
    if not scopes and not ceilings:
        raise click.UsageError("say what to revoke: SCOPE…, or --ceiling usd=5")
    lowered = options.amounts(ceilings, "--ceiling")
    where = Settings(common_["store"], common_["app"])

    async def work(store: Store) -> None:
        run_id = await find_run(store, run)
        holds = await operator(store).revoke(
            run_id,
            by=options.user(by),
            why=why,
            scopes=scopes,
            ceilings=lowered,
            dead=lambda worker: is_dead(store, worker),
        )
        if not holds:
            note(NOT_YET.format(run=short(run_id)))
        next_ = await until_rested(store, run_id, common_["timeout"]) if common_["wait"] else await look(store, run_id)
        lower = [f"{one} at most" for one in ceilings]
        done = f"Revoked from run {short(run_id)}: {', '.join([*scopes, *lower])}."
        tell(done, next_, {"verb": "revoke", "done": done, "holds": holds}, as_json=common_["as_json"])

    with opened(where.url) as store:
        wait_for(work(store))
